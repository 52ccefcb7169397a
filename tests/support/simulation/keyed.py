"""The compacted topic: transactions write a value for a key, or a tombstone; the last committed one of a key stays."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from oncelog.protocol.records import Record

KEYED = "keyed"

_KEYS = tuple(b"key %d " % number + b"." * 250 for number in range(5))
"""Long ones: a segment takes a few records, and the memory of a compaction a few keys."""


@dataclass
class KeyedWrite:
    """What a transaction writes there, and the offset that the broker gave it."""

    key: bytes
    is_tombstone: bool
    offset: int = -1

    def record(self, number: int) -> Record:
        """The record of the transaction with that number."""
        value = None if self.is_tombstone else b"value"
        return Record(0, 1_700_000_000_000, self.key, value, [("transaction", b"%d" % number)])


def new_write(rng: Random) -> KeyedWrite:
    """A write of some key."""
    return KeyedWrite(rng.choice(_KEYS), is_tombstone=rng.random() < 0.2)


def number_of(record: Record) -> int:
    """The number of the transaction that wrote a record."""
    ((_, number),) = record.headers
    assert number is not None
    return int(number)
