"""Compute the expected result of the flights job on Spark, without using Spark.

`expected_delays` computes cleaned flights, delays per hour, and the list of the "latest" airports, which are those with
the longest mean arrival delays. The demo compares these results with the job's topics and files. The computation shares
no code with the job, which consists of SQL in pipeline/jobs/flights.toml. All functions are pure functions of the data
set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .flights import Flight, airline_names, airport_names, delay_class, flights

COLUMNS: Final = (
    *("row", "time_hour", "carrier", "airline", "flight", "tailnum", "origin", "dest", "dest_name", "distance"),
    *("dep_delay", "arr_delay", "outcome"),
)
"""The columns of a cleaned flight."""

LIST_SIZE: Final = 10
LEAST_ARRIVALS: Final = 100
"""The minimum number of arrivals that puts an airport on the list."""


@dataclass(slots=True)
class Hour:
    """Totals of the flights that were scheduled to leave one airport in one hour of one day."""

    flights: int = 0
    cancelled: int = 0
    departed: int = 0
    dep_delay_minutes: int | None = None
    """The sum of the departure delays. It is None if no flight departed, because SQL's sum over no rows is null."""

    def add(self, flight: Flight) -> None:
        """Count a flight that was scheduled to leave in this hour."""
        self.flights += 1
        self.cancelled += flight["dep_time"] is None
        if flight["dep_delay"] is not None:
            self.departed += 1
            self.dep_delay_minutes = (self.dep_delay_minutes or 0) + flight["dep_delay"]


@dataclass(frozen=True, slots=True)
class Late:
    """An entry in the list of the airports with the longest delays: an airport, and the arrival delays of its incoming
    flights.
    """

    dest: str
    arrived: int
    arr_delay_minutes: int
    mean_arr_delay: float


@dataclass(slots=True)
class ExpectedDelays:
    """The expected result of the flights job on Spark."""

    cleaned: list[int] = field(default_factory=list)
    """The fingerprint of each cleaned flight, by the flight's row."""
    hours: dict[str, Hour] = field(default_factory=dict)
    """The counts by airport and hour. A key is, for example, JFK@2013-01-01T10."""
    latest: list[Late] = field(default_factory=list)


def fingerprint(cleaned: Mapping[str, Any]) -> int:
    """Return a hash of a cleaned flight, to compare flights from topics and from files.

    `time_hour` must be text, as in the data set. A missing name is None.
    """
    return hash(tuple([cleaned.get(column) for column in COLUMNS]))


def expected_delays(limit: int | None = None) -> ExpectedDelays:
    """Compute the result of the whole job in memory, over the first `limit` flights (None: all)."""
    airlines, airports = airline_names(), airport_names()
    result = ExpectedDelays()
    arrivals: dict[str, list[int]] = {}
    for flight in flights(limit):
        names = {"airline": airlines.get(flight["carrier"]), "dest_name": airports.get(flight["dest"])}
        result.cleaned.append(fingerprint({**flight, **names, "outcome": delay_class(flight)}))
        result.hours.setdefault(f"{flight['origin']}@{flight['time_hour'][:13]}", Hour()).add(flight)
        if flight["arr_delay"] is not None:
            arrivals.setdefault(flight["dest"], []).append(flight["arr_delay"])
    lines = [
        Late(dest, len(delays), sum(delays), sum(delays) / len(delays))
        for dest, delays in arrivals.items()
        if len(delays) >= LEAST_ARRIVALS
    ]
    result.latest = sorted(lines, key=lambda line: (-line.mean_arr_delay, line.dest))[:LIST_SIZE]
    return result
