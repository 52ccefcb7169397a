"""What the flights job on Spark must come to, computed without Spark: cleaned flights, hours, latest airports.

Owns: `expected_delays`, the plain computation that the job's topics and files are held against. It shares no code with
the job (pipeline/jobs/flights.toml is SQL), only what the columns mean. Pure functions of the data set.
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
"""Of a cleaned flight."""

LIST_SIZE: Final = 10
LEAST_ARRIVALS: Final = 100
"""An airport with fewer arrivals is not listed."""


@dataclass(slots=True)
class Hour:
    """One hour of one airport that flights leave."""

    flights: int = 0
    cancelled: int = 0
    departed: int = 0
    dep_delay_minutes: int | None = None
    """Null, as SQL's sum, when no flight departed."""

    def add(self, flight: Flight) -> None:
        """Count a flight that was to leave in this hour."""
        self.flights += 1
        self.cancelled += flight["dep_time"] is None
        if flight["dep_delay"] is not None:
            self.departed += 1
            self.dep_delay_minutes = (self.dep_delay_minutes or 0) + flight["dep_delay"]


@dataclass(frozen=True, slots=True)
class Late:
    """One line of the list: an airport and how late flights arrive there."""

    dest: str
    arrived: int
    arr_delay_minutes: int
    mean_arr_delay: float


@dataclass(slots=True)
class ExpectedDelays:
    """The right result."""

    cleaned: list[int] = field(default_factory=list)
    """Fingerprint of the cleaned flight, by row."""
    hours: dict[str, Hour] = field(default_factory=dict)
    """By airport and hour: JFK@2013-01-01T10."""
    latest: list[Late] = field(default_factory=list)


def fingerprint(cleaned: Mapping[str, Any]) -> int:
    """Of a cleaned flight, whatever form it came in: `time_hour` is text as in the data set; a missing name is null."""
    return hash(tuple([cleaned.get(column) for column in COLUMNS]))


def expected_delays(limit: int | None = None) -> ExpectedDelays:
    """The plain in-memory computation of the whole job, over the first `limit` flights."""
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
