"""The three indexes of a segment, in Kafka's file formats.

* Offset index: (last offset of a batch, byte position where that batch begins), about one entry per
  `index.interval.bytes`. On disk int32 offset relative to the segment's base, int32 position.
* Time index: (largest timestamp so far, offset of the batch that has it), timestamps strictly rising. On disk int64
  timestamp, int32 relative offset. A finished segment's last entry holds its largest timestamp.
* Transaction index: one `AbortedTxn` per abort marker in the segment. On disk int16 version 0 and four int64.

A fourth file, `.checksums`, has the crc32c (uint32) of each of the three, none counting as empty: Kafka's formats have
no room for it, and an index with one wrong bit would hide records or show aborted ones.

Everything here can be made again from the `.log` file. The indexes of the active segment live in memory and are written
when it is rolled or the log is closed; those of older segments are loaded when they are needed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from struct import Struct
from typing import Final

from crc32c import crc32c

from .results import AbortedTxn

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_TXN_ENTRY: Final = Struct(">hqqqq")
_TXN_VERSION: Final = 0
_CHECKSUMS: Final = Struct(">III")


class CorruptIndex(Exception):
    """An index file is not what was written; it is made again from the log."""


class OffsetIndex:
    """Where to begin looking for an offset, and where batches begin."""

    __slots__ = ("_offsets", "_positions", "base_offset")

    entry_size: Final = _OFFSET_ENTRY.size

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("q")
        self._positions = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, last_offset: int, position: int) -> None:
        """Add the batch at byte `position`, which ends with `last_offset`; both rise from entry to entry."""
        self._offsets.append(last_offset)
        self._positions.append(position)

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`, as near as the index knows."""
        slot = bisect_right(self._offsets, offset)
        return self._positions[slot - 1] if slot else 0

    def floor(self, position: int) -> int:
        """The largest known batch boundary at or before byte `position`; 0 without one."""
        slot = bisect_right(self._positions, position)
        return self._positions[slot - 1] if slot else 0

    def last_position(self) -> int:
        """Where the last indexed batch begins; 0 without one."""
        return self._positions[-1] if self._positions else 0

    def encode(self) -> bytes:
        base = self.base_offset
        pack = _OFFSET_ENTRY.pack
        return b"".join([pack(offset - base, at) for offset, at in zip(self._offsets, self._positions, strict=True)])

    @classmethod
    def decode(cls, data: bytes, base_offset: int, log_size: int) -> OffsetIndex:
        """Raises CorruptIndex unless offsets and positions rise and lie within the log."""
        if len(data) % _OFFSET_ENTRY.size:
            raise CorruptIndex(f"offset index of {len(data)} bytes: not a multiple of {_OFFSET_ENTRY.size}")
        index = cls(base_offset)
        previous_offset, previous_position = -1, -1
        for relative, position in _OFFSET_ENTRY.iter_unpack(data):
            if relative <= previous_offset or position <= previous_position or position >= log_size:
                if relative == 0 and position == 0:
                    break  # Kafka preallocates the index of its active segment; zeros follow the entries
                raise CorruptIndex(f"offset index entry ({relative}, {position}) is out of order or beyond the log")
            index.append(base_offset + relative, position)
            previous_offset, previous_position = relative, position
        return index


class TimeIndex:
    """Where to begin looking for a timestamp."""

    __slots__ = ("_offsets", "_timestamps", "base_offset")

    entry_size: Final = _TIME_ENTRY.size

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("q")

    def __len__(self) -> int:
        return len(self._timestamps)

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry unless the last one has that timestamp or a larger one."""
        if not self._timestamps or timestamp > self._timestamps[-1]:
            self._timestamps.append(timestamp)
            self._offsets.append(offset)

    def last_timestamp(self) -> int:
        """The largest timestamp indexed; -1 without one."""
        return self._timestamps[-1] if self._timestamps else -1

    def last_offset(self) -> int:
        """The offset that goes with it; the base offset without one."""
        return self._offsets[-1] if self._offsets else self.base_offset

    def lookup(self, timestamp: int) -> int:
        """An offset before which no record has `timestamp` or a larger one."""
        slot = bisect_left(self._timestamps, timestamp)
        return self._offsets[slot - 1] if slot else self.base_offset

    def encode(self) -> bytes:
        base = self.base_offset
        pack = _TIME_ENTRY.pack
        return b"".join([pack(at, offset - base) for at, offset in zip(self._timestamps, self._offsets, strict=True)])

    @classmethod
    def decode(cls, data: bytes, base_offset: int) -> TimeIndex:
        """Raises CorruptIndex unless timestamps rise and offsets do not fall."""
        if len(data) % _TIME_ENTRY.size:
            raise CorruptIndex(f"time index of {len(data)} bytes: not a multiple of {_TIME_ENTRY.size}")
        index = cls(base_offset)
        previous_time, previous_offset = -2, 0
        for timestamp, relative in _TIME_ENTRY.iter_unpack(data):
            if timestamp <= previous_time or relative < previous_offset:
                if timestamp == 0 and relative == 0:
                    break
                raise CorruptIndex(f"time index entry ({timestamp}, {relative}) is out of order")
            index._timestamps.append(timestamp)
            index._offsets.append(base_offset + relative)
            previous_time, previous_offset = timestamp, relative
        return index


def encode_transaction_index(aborted: Iterable[AbortedTxn]) -> bytes:
    """The content of a `.txnindex` file."""
    return b"".join([_TXN_ENTRY.pack(_TXN_VERSION, *entry) for entry in aborted])


def decode_transaction_index(data: bytes, base_offset: int) -> list[AbortedTxn]:
    """Raises CorruptIndex on a file that is cut off, has an unknown version, or entries of another segment."""
    if len(data) % _TXN_ENTRY.size:
        raise CorruptIndex(f"transaction index of {len(data)} bytes: not a multiple of {_TXN_ENTRY.size}")
    aborted: list[AbortedTxn] = []
    for version, *values in _TXN_ENTRY.iter_unpack(data):
        entry = AbortedTxn(*values)
        if version != _TXN_VERSION:
            raise CorruptIndex(f"transaction index entry of version {version}")
        if entry.last_offset < base_offset or (aborted and entry.last_offset <= aborted[-1].last_offset):
            raise CorruptIndex(f"transaction index entry {entry} is out of order")
        aborted.append(entry)
    return aborted


def encode_checksums(offset_index: bytes, time_index: bytes, transaction_index: bytes) -> bytes:
    """The content of a `.checksums` file for these index files."""
    return _CHECKSUMS.pack(crc32c(offset_index), crc32c(time_index), crc32c(transaction_index))


def check_checksums(data: bytes, offset_index: bytes, time_index: bytes, transaction_index: bytes) -> None:
    """Raises CorruptIndex unless `data` belongs to these index files."""
    if data != encode_checksums(offset_index, time_index, transaction_index):
        raise CorruptIndex("the checksums of the indexes do not match")
