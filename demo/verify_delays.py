"""Compare the topics and files of the flights job on Spark with the expected results.

The checks count the same faults as those in `verify.py`. They use neither a client nor Spark. Records and rows are
added as plain values.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from .delays import ExpectedDelays, Hour, Late, fingerprint
from .verify import FlightCheck


class CleanedCheck(FlightCheck):
    """The check that a topic or a set of files has the cleaned row of every flight exactly once and unaltered."""

    def __init__(self, name: str, expected: ExpectedDelays) -> None:
        super().__init__(name, expected.cleaned)

    def read(self, value: bytes) -> tuple[Any, int]:
        cleaned = json.loads(value)
        cleaned["time_hour"] = _seconds(cleaned["time_hour"])
        return cleaned["row"], fingerprint(cleaned)

    def add_row(self, file: str, row: Mapping[str, Any]) -> None:
        """Count the next row of a file."""
        self.records += 1
        self.take(file, row["row"], fingerprint(row))


class HoursCheck:
    """The check of the counts by airport and hour. The last value of each key is compared with the computation.

    `lost` and `doubled` are numbers of flights, not of hours.
    """

    def __init__(self, topic: str, expected: ExpectedDelays) -> None:
        self.topic = topic
        self.expected = sum(hour.flights for hour in expected.hours.values())
        self.keys = len(expected.hours)
        self.records = 0
        self.unreadable = 0
        self._wanted = expected.hours
        self._found: dict[str, Hour] = {}

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Count the next record that the reader received."""
        self.records += 1
        try:
            assert key is not None
            assert value is not None
            parsed = json.loads(value)
            name = key.decode()
            if (parsed["id"], f"{parsed['origin']}@{parsed['hour'][:13]}") != (name, name):
                raise ValueError("the hour in the value differs from that in its key")
            self._found[name] = Hour(
                parsed["flights"], parsed["cancelled"], parsed["departed"], parsed.get("dep_delay_minutes")
            )
        except (AssertionError, ValueError, KeyError, TypeError):
            self.unreadable += 1

    @property
    def counted(self) -> int:
        return sum(hour.flights for hour in self._found.values())

    @property
    def lost(self) -> int:
        return sum((self._count_differences()).values())

    @property
    def doubled(self) -> int:
        return sum((self._count_differences(more=True)).values())

    @property
    def altered(self) -> int:
        """The number of hours that have the right number of flights but differ otherwise, plus unreadable records."""
        wrong = [
            key
            for key, hour in self._found.items()
            if key in self._wanted and hour.flights == self._wanted[key].flights and hour != self._wanted[key]
        ]
        return len(wrong) + self.unreadable

    @property
    def exact(self) -> bool:
        return self._found == self._wanted and not self.unreadable

    @property
    def first_fault(self) -> str | None:
        for key in sorted(self._found.keys() | self._wanted.keys()):
            found, wanted = self._found.get(key), self._wanted.get(key)
            if found != wanted:
                return f"{key} of {self.topic} is {found}, but {wanted} was computed"
        return f"{self.unreadable} records of {self.topic} cannot be read" if self.unreadable else None

    def _count_differences(self, more: bool = False) -> Counter[str]:
        wanted = Counter({key: hour.flights for key, hour in self._wanted.items()})
        found = Counter({key: hour.flights for key, hour in self._found.items()})
        return found - wanted if more else wanted - found


class ListCheck:
    """The check of the list of airports with the longest arrival delays.

    The list consists of the records with the newest `listed_at`.
    """

    def __init__(self, topic: str, expected: ExpectedDelays) -> None:
        self.topic = topic
        self.expected = len(expected.latest)
        self.unreadable = 0
        self._wanted = expected.latest
        self._newest = ""
        self._found: list[Late] = []

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Count the next record that the reader received."""
        try:
            assert key is not None
            assert value is not None
            parsed = json.loads(value)
            if parsed["dest"] != key.decode():
                raise ValueError("the airport in the value differs from that in its key")
            if parsed["listed_at"] > self._newest:
                self._newest = parsed["listed_at"]
                self._found = []
            if parsed.pop("listed_at") == self._newest:
                self._found.append(Late(**parsed))
        except (AssertionError, ValueError, KeyError, TypeError):
            self.unreadable += 1

    @property
    def records(self) -> int:
        return len(self._found)

    @property
    def lost(self) -> int:
        return len({line.dest for line in self._wanted} - {line.dest for line in self._found})

    @property
    def doubled(self) -> int:
        return len(self._found) - len({line.dest for line in self._found})

    @property
    def altered(self) -> int:
        wanted = set(self._wanted)
        return sum(line not in wanted for line in self._found) + self.unreadable

    @property
    def exact(self) -> bool:
        return self.first_fault is None

    @property
    def first_fault(self) -> str | None:
        if sorted(self._found, key=lambda line: (-line.mean_arr_delay, line.dest)) != self._wanted:
            return f"{self.topic} lists {self._found}, but {self._wanted} was computed"
        return f"{self.unreadable} records of {self.topic} cannot be read" if self.unreadable else None


def _seconds(text: str) -> str:
    """Remove the milliseconds `.000` that Spark writes, so that a time has the format of the data set."""
    return text.removesuffix(".000Z") + "Z" if text.endswith(".000Z") else text
