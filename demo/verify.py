"""Compare the records of a read_committed reader with the expected results.

The checks count lost, duplicate, altered and out-of-order records. They do not use a client. Records are added as plain
values, in the order in which the reader received them from each partition.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from .flights import CarrierDelays


class FlightCheck:
    """The check that a topic has every flight exactly once, unaltered, and in order per aircraft."""

    def __init__(self, topic: str, hashes: list[int]) -> None:
        self.topic = topic
        self.expected = len(hashes)
        self.records = 0
        self.doubled = 0
        self.altered = 0
        self.out_of_order = 0
        self.first_fault: str | None = None
        self._hashes = hashes
        self._seen = bytearray(len(hashes))
        self._last_row: dict[bytes, int] = {}
        self._partition_of: dict[bytes, int] = {}

    def add(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Count the next record that the reader received."""
        self.records += 1
        where = f"offset {offset} of {self.topic}-{partition}"
        try:
            row, fingerprint = self.read(value or b"")
        except (ValueError, KeyError, TypeError):
            row, fingerprint = None, 0
        if not self.take(where, row, fingerprint):
            return
        if key is not None:
            last, home = self._last_row.get(key, -1), self._partition_of.setdefault(key, partition)
            if partition != home:
                self.out_of_order += 1
                self._fault(f"flight {row} of aircraft {key!r} is in partition {partition}, its first one in {home}")
            elif row <= last:
                self.out_of_order += 1
                self._fault(f"flight {row} of aircraft {key!r} comes after flight {last}")
            self._last_row[key] = row

    def read(self, value: bytes) -> tuple[Any, int]:
        """Return a flight's row and the fingerprint by which it is compared, from the value of a record.

        Raise ValueError, KeyError or TypeError if the value is not a flight.
        """
        return json.loads(value)["row"], hash(value)

    def take(self, where: str, row: Any, fingerprint: int) -> bool:
        """Count a flight found at `where`. Return whether `row` is a row of the data set."""
        if not isinstance(row, int) or not 0 <= row < self.expected:
            self.altered += 1
            self._fault(f"{where} is not a flight of the data set")
            return False
        if self._seen[row]:
            self.doubled += 1
            self._fault(f"flight {row} comes again at {where}")
        self._seen[row] = 1
        if fingerprint != self._hashes[row]:
            self.altered += 1
            self._fault(f"flight {row} at {where} has a value that differs from the computed one")
        return True

    def _fault(self, text: str) -> None:
        if self.first_fault is None:
            self.first_fault = text

    @property
    def lost(self) -> int:
        return self.expected - sum(self._seen)

    @property
    def exact(self) -> bool:
        return not (self.lost or self.doubled or self.altered or self.out_of_order) and self.records == self.expected


@dataclass(slots=True)
class CarrierCheck:
    """The check that the sums per carrier of the records in `carrier-delays` are the expected ones."""

    expected: dict[str, CarrierDelays]
    found: dict[str, CarrierDelays] = field(default_factory=dict)
    records: int = 0
    unreadable: int = 0

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Count the next record that the reader received."""
        self.records += 1
        try:
            assert key is not None
            assert value is not None
            self.found.setdefault(key.decode(), CarrierDelays()).add(CarrierDelays.decode(value))
        except (AssertionError, ValueError, TypeError):
            self.unreadable += 1

    @property
    def differing(self) -> list[str]:
        """The carriers, sorted, whose sums differ from the computation or exist on one side only."""
        carriers = self.expected.keys() | self.found.keys()
        return sorted(carrier for carrier in carriers if self.expected.get(carrier) != self.found.get(carrier))

    @property
    def exact(self) -> bool:
        return not self.differing and not self.unreadable
