"""The three indexes of a segment, in Kafka's file formats.

* Offset index: (last offset of a batch, byte position where that batch begins), about one entry per
  `index.interval.bytes`. On disk int32 offset relative to the segment's base, int32 position.
* Time index: (largest timestamp so far, offset of the batch that has it), timestamps strictly rising. On disk int64
  timestamp, int32 relative offset. A finished segment's last entry holds its largest timestamp.
* Transaction index: one `AbortedTxn` per abort marker in the segment. On disk int16 version 0 and four int64.

A fourth file, `.checksums`, has what Kafka's formats have no room for (`IndexChecksums`): the crc32c of each of the
three, none counting as empty, because an index with one wrong bit would hide records or show aborted ones; and how many
bytes of the `.log` file they know of, because those of a segment that is still appended to end before it does. Only so
many bytes of each file count as the checksums were made of: indexes grow at their ends, so that a process may be killed
while it writes them.

Everything here can be made again from the `.log` file. The indexes of the active segment live in memory. They are
written when it is rolled, and now and then before (`PartitionLog.save_state`); those of older segments are loaded when
they are needed.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from operator import le, lt
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from .results import AbortedTxn

_TXN_ENTRY: Final = Struct(">hqqqq")
_TXN_VERSION: Final = 0
_CHECKSUMS: Final = Struct(">III")
_REACH: Final = Struct(">IIII")
_CHECKSUM: Final = Struct(">I")


class CorruptIndex(Exception):
    """An index file is not what was written; it is made again from the log."""


class OffsetIndex:
    """Where to begin looking for an offset, and where batches begin."""

    __slots__ = ("_offsets", "_positions", "base_offset")

    entry_size: Final = 8

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("i")  # relative to the base offset
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, last_offset: int, position: int) -> None:
        """Add the batch at byte `position`, which ends with `last_offset`; both rise from entry to entry."""
        self._offsets.append(last_offset - self.base_offset)
        self._positions.append(position)

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`, as near as the index knows."""
        slot = bisect_right(self._offsets, offset - self.base_offset)
        return self._positions[slot - 1] if slot else 0

    def floor(self, position: int) -> int:
        """The largest known batch boundary at or before byte `position`; 0 without one."""
        slot = bisect_right(self._positions, position)
        return self._positions[slot - 1] if slot else 0

    def ceiling(self, offset: int, log_size: int) -> int:
        """The smallest known batch boundary at or behind the batch that holds `offset`; `log_size` without one."""
        slot = bisect_left(self._offsets, offset - self.base_offset)
        return self._positions[slot] if slot < len(self._positions) else log_size

    def last_position(self) -> int:
        """Where the last indexed batch begins; 0 without one."""
        return self._positions[-1] if self._positions else 0

    def encode(self, first: int = 0) -> bytes:
        """The bytes of the entries from number `first` on."""
        words = array("i", bytes(self.entry_size * (len(self) - first)))
        words[0::2], words[1::2] = self._offsets[first:], self._positions[first:]
        return _big_endian(words).tobytes()

    @classmethod
    def decode(cls, data: bytes, base_offset: int, log_size: int, *, checked: bool = False) -> OffsetIndex:
        """Raises CorruptIndex unless offsets and positions rise and lie within the log.

        `checked`: the checksum says that the entries are those that were written, so that they are not looked at.
        """
        if len(data) % cls.entry_size:
            raise CorruptIndex(f"offset index of {len(data)} bytes: not a multiple of {cls.entry_size}")
        words = _big_endian(array("i", data))
        offsets, positions = words[0::2], words[1::2]
        count = _leading(
            len(offsets),
            (checked or (_rises(offsets, 0) and _rises(positions, 0))) and (not positions or positions[-1] < log_size),
            zip(offsets, positions, strict=True),
            lambda entry, last: entry[0] > max(last[0], -1) and last[1] < entry[1] < log_size,
            "offset",
        )
        index = cls(base_offset)
        index._offsets, index._positions = offsets[:count], positions[:count]
        return index


class TimeIndex:
    """Where to begin looking for a timestamp."""

    __slots__ = ("_offsets", "_timestamps", "base_offset")

    entry_size: Final = 12

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("i")  # relative to the base offset

    def __len__(self) -> int:
        return len(self._timestamps)

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry unless the last one has that timestamp or a larger one."""
        if not self._timestamps or timestamp > self._timestamps[-1]:
            self._timestamps.append(timestamp)
            self._offsets.append(offset - self.base_offset)

    def last_timestamp(self) -> int:
        """The largest timestamp indexed; -1 without one."""
        return self._timestamps[-1] if self._timestamps else -1

    def last_offset(self) -> int:
        """The offset that goes with it; the base offset without one."""
        return self.base_offset + (self._offsets[-1] if self._offsets else 0)

    def lookup(self, timestamp: int) -> int:
        """An offset before which no record has `timestamp` or a larger one."""
        slot = bisect_left(self._timestamps, timestamp)
        return self.base_offset + (self._offsets[slot - 1] if slot else 0)

    def encode(self, first: int = 0) -> bytes:
        """The bytes of the entries from number `first` on."""
        data = bytearray(self.entry_size * (len(self) - first))
        _scatter(data, _big_endian(self._timestamps[first:]).tobytes(), 0, 8)
        _scatter(data, _big_endian(self._offsets[first:]).tobytes(), 8, 4)
        return bytes(data)

    @classmethod
    def decode(cls, data: bytes, base_offset: int, *, checked: bool = False) -> TimeIndex:
        """Raises CorruptIndex unless timestamps rise and offsets do not fall; `checked`: as for an offset index."""
        if len(data) % cls.entry_size:
            raise CorruptIndex(f"time index of {len(data)} bytes: not a multiple of {cls.entry_size}")
        timestamps = _big_endian(array("q", _gathered(data, 0, 8)))
        offsets = _big_endian(array("i", _gathered(data, 8, 4)))
        count = _leading(
            len(offsets),
            checked
            or (_rises(timestamps, -1) and (not offsets or offsets[0] >= 0) and all(map(le, offsets, offsets[1:]))),
            zip(timestamps, offsets, strict=True),
            lambda entry, last: entry[0] > max(last[0], -2) and entry[1] >= max(last[1], 0),
            "time",
        )
        index = cls(base_offset)
        index._timestamps, index._offsets = timestamps[:count], offsets[:count]
        return index


# The files are as large as a log's look-ups are slow: their bytes are turned around without a loop in Python.


def _big_endian(words: array[int]) -> array[int]:
    """The words with their bytes turned into, or from, the order of the files."""
    if sys.byteorder == "little":
        words.byteswap()
    return words


def _gathered(data: bytes, start: int, size: int) -> bytes:
    """The `size` bytes at `start` of each entry of a time index."""
    words = bytearray(len(data) // TimeIndex.entry_size * size)
    for place in range(size):
        words[place::size] = data[start + place :: TimeIndex.entry_size]
    return bytes(words)


def _scatter(data: bytearray, words: bytes, start: int, size: int) -> None:
    """The opposite of `_gathered`."""
    for place in range(size):
        data[start + place :: TimeIndex.entry_size] = words[place::size]


def _rises(words: array[int], least: int) -> bool:
    return not words or (words[0] >= least and all(map(lt, words, words[1:])))


def _leading(
    count: int,
    sound: bool,
    entries: Iterable[tuple[int, int]],
    follows: Callable[[tuple[int, int], tuple[int, int]], bool],
    kind: str,
) -> int:
    """How many entries an index has: all `count` where they are `sound`, else those in front of zeros.

    Kafka preallocates the index of its active segment; zeros follow the entries. Anything else raises CorruptIndex.
    """
    if sound:
        return count
    last = (-1 << 63, -1)
    for number, entry in enumerate(entries):
        if not follows(entry, last):
            if entry == (0, 0):
                return number
            raise CorruptIndex(f"{kind} index entry {entry} is out of order or beyond the log")
        last = entry
    return count


TXN_ENTRY_SIZE: Final = _TXN_ENTRY.size


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


class IndexChecksums(NamedTuple):
    """What a `.checksums` file says: of each of the three indexes the crc32c and the size, and how far they reach.

    `covered`: the bytes of the `.log` file that they know of, a batch boundary; -1 where that is not said, as in files
    of older releases, which had the three checksums alone (uint32). Now these are followed by `covered` and the three
    sizes (uint32) and the crc32c of all before it.
    """

    crcs: tuple[int, int, int] = (0, 0, 0)
    sizes: tuple[int, int, int] | None = (0, 0, 0)
    covered: int = 0

    def extended(self, tails: tuple[bytes, bytes, bytes], covered: int) -> IndexChecksums:
        """Those of the same offset, time and transaction index when these bytes have been written behind each."""
        assert self.sizes is not None
        crc, size = self.crcs, self.sizes
        return IndexChecksums(
            (crc32c(tails[0], crc[0]), crc32c(tails[1], crc[1]), crc32c(tails[2], crc[2])),
            (size[0] + len(tails[0]), size[1] + len(tails[1]), size[2] + len(tails[2])),
            covered,
        )

    def encode(self) -> bytes:
        assert self.sizes is not None
        data = _CHECKSUMS.pack(*self.crcs) + _REACH.pack(self.covered, *self.sizes)
        return data + _CHECKSUM.pack(crc32c(data))

    @classmethod
    def decode(cls, data: bytes) -> IndexChecksums:
        """Raises CorruptIndex."""
        if len(data) == _CHECKSUMS.size:
            return cls(_CHECKSUMS.unpack(data), None, -1)
        if len(data) != _CHECKSUMS.size + _REACH.size + _CHECKSUM.size:
            raise CorruptIndex(f"a file of {len(data)} bytes has no checksums of indexes")
        end = len(data) - _CHECKSUM.size
        if _CHECKSUM.unpack_from(data, end) != (crc32c(data[:end]),):
            raise CorruptIndex("the checksum of the checksums does not match")
        covered, *sizes = _REACH.unpack_from(data, _CHECKSUMS.size)
        return cls(_CHECKSUMS.unpack_from(data), (sizes[0], sizes[1], sizes[2]), covered)

    def check_reach(self, size: int) -> None:
        """Raise CorruptIndex unless the indexes know of all `size` bytes of a finished segment."""
        if self.covered not in (-1, size):
            raise CorruptIndex(f"the indexes reach to byte {self.covered} of {size}")

    def check_aborted(self, index: bytes) -> bytes:
        """The part of the transaction index that counts. Raises CorruptIndex unless it is what was written."""
        if self.sizes is not None:
            index = index[: self.sizes[2]]
        if crc32c(index) != self.crcs[2]:
            raise CorruptIndex("the checksum of the transaction index does not match")
        return index

    def check(self, indexes: tuple[bytes, bytes, bytes]) -> tuple[bytes, bytes, bytes]:
        """The parts of the three index files that count. Raises CorruptIndex unless they are what was written."""
        if self.sizes is not None:
            offsets, times, aborted = indexes
            indexes = offsets[: self.sizes[0]], times[: self.sizes[1]], aborted[: self.sizes[2]]
        if (crc32c(indexes[0]), crc32c(indexes[1]), crc32c(indexes[2])) != self.crcs:
            raise CorruptIndex("the checksums of the indexes do not match")
        return indexes
