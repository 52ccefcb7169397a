"""Define the writes to the compacted topic, which must keep the last committed value or tombstone of each key."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from oncelog.protocol.records import Record

KEYED = "keyed"

_KEYS = tuple(b"key %d " % number + b"." * 250 for number in range(5))
"""Long keys, so that a segment holds only a few records, and the memory of a compaction only a few keys."""


@dataclass
class KeyedWrite:
    """The write of a transaction to the compacted topic, and the offset in the broker's response."""

    key: bytes
    is_tombstone: bool
    offset: int = -1

    def record(self, number: int) -> Record:
        """Return the record of the transaction with this number."""
        value = None if self.is_tombstone else b"value"
        return Record(0, 1_700_000_000_000, self.key, value, [("transaction", b"%d" % number)])


def new_write(rng: Random) -> KeyedWrite:
    """Return a write of a random key."""
    return KeyedWrite(rng.choice(_KEYS), is_tombstone=rng.random() < 0.2)


def number_of(record: Record) -> int:
    """Return the number of the transaction that wrote a record."""
    ((_, number),) = record.headers
    assert number is not None
    return int(number)
