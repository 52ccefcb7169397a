"""Implement the three indexes of a segment, in Kafka's file formats.

* Offset index: entries (last offset of a batch, byte position of that batch), about one per `index.interval.bytes`. On
  disk: int32 offset relative to the segment's base offset, int32 position.
* Time index: entries (largest timestamp so far, last offset of the batch that has it), with strictly rising timestamps.
  On disk: int64 timestamp, int32 relative offset. The last entry of a finished segment has the segment's largest
  timestamp.
* Transaction index: one `AbortedTxn` per abort marker in the segment. On disk: int16 version 0 and four int64.

A fourth file, `.checksums`, has facts for which Kafka's formats have no room (`IndexChecksums`). It has the crc32c and
the size of each index, because an index with one wrong bit would hide records or show aborted ones. A missing index
file has the checksum of an empty index. Only the stated number of bytes of an index file is valid: a process may be
killed while it writes entries at the end. The file also has the number of bytes of the `.log` file that the indexes
cover, because the indexes of the active segment are saved while the `.log` file still grows.

All indexes can be rebuilt from the `.log` file. The indexes of the active segment are in memory. They are written when
the segment is rolled, and sometimes earlier (`SavedState.save`). The indexes of older segments are loaded when they are
needed.
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

from .aborted_index import AbortedIndex
from .results import AbortedTxn

_TXN_ENTRY: Final = Struct(">hqqqq")
_TXN_VERSION: Final = 0
_CHECKSUMS: Final = Struct(">III")
_REACH: Final = Struct(">IIII")
_CHECKSUM: Final = Struct(">I")


class CorruptIndex(Exception):
    """An index file is damaged or missing; the caller rebuilds the index from the `.log` file."""


class OffsetIndex:
    """Maps offsets to the byte positions of batches, with one entry per interval of bytes."""

    __slots__ = ("_offsets", "_positions", "base_offset")

    entry_size: Final = 8

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("i")  # relative to the base offset
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, last_offset: int, position: int) -> None:
        """Add an entry for the batch at byte `position`. `position` and `last_offset` must rise from entry to entry."""
        self._offsets.append(last_offset - self.base_offset)
        self._positions.append(position)

    def lookup(self, offset: int) -> int:
        """Return the nearest indexed position at or before the batch that holds `offset`; 0 if there is none."""
        slot = bisect_right(self._offsets, offset - self.base_offset)
        return self._positions[slot - 1] if slot else 0

    def floor(self, position: int) -> int:
        """Return the largest indexed batch boundary at or before byte `position`; 0 if there is none."""
        slot = bisect_right(self._positions, position)
        return self._positions[slot - 1] if slot else 0

    def ceiling(self, offset: int, log_size: int) -> int:
        """Return the first indexed position at or after the batch that holds `offset`; `log_size` if there is none."""
        slot = bisect_left(self._offsets, offset - self.base_offset)
        return self._positions[slot] if slot < len(self._positions) else log_size

    def last_position(self) -> int:
        """Return the position of the last indexed batch; 0 if the index is empty."""
        return self._positions[-1] if self._positions else 0

    def encode(self, first: int = 0) -> bytes:
        """Return the file content for the entries from number `first` on."""
        words = array("i", bytes(self.entry_size * (len(self) - first)))
        words[0::2], words[1::2] = self._offsets[first:], self._positions[first:]
        return _big_endian(words).tobytes()

    @classmethod
    def decode(cls, data: bytes, base_offset: int, log_size: int, *, checked: bool = False) -> OffsetIndex:
        """Return the offset index in the file content `data`.

        Raises CorruptIndex unless offsets and positions rise and the positions are below `log_size`. With `checked`,
        the checksum has been verified, so the order of the entries is not checked.
        """
        if len(data) % cls.entry_size:
            raise CorruptIndex(f"the offset index has {len(data)} bytes, which is not a multiple of {cls.entry_size}")
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
    """Maps each timestamp to an offset at which a search for the timestamp can begin."""

    __slots__ = ("_offsets", "_timestamps", "base_offset")

    entry_size: Final = 12

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("i")  # relative to the base offset

    def __len__(self) -> int:
        return len(self._timestamps)

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless the last entry has the same or a larger timestamp."""
        if not self._timestamps or timestamp > self._timestamps[-1]:
            self._timestamps.append(timestamp)
            self._offsets.append(offset - self.base_offset)

    def last_timestamp(self) -> int:
        """Return the largest indexed timestamp in ms; -1 if the index is empty."""
        return self._timestamps[-1] if self._timestamps else -1

    def last_offset(self) -> int:
        """Return the offset of the entry with the largest timestamp; the base offset if the index is empty."""
        return self.base_offset + (self._offsets[-1] if self._offsets else 0)

    def lookup(self, timestamp: int) -> int:
        """Return an offset before which no record of the segment has `timestamp` or a larger one."""
        slot = bisect_left(self._timestamps, timestamp)
        return self.base_offset + (self._offsets[slot - 1] if slot else 0)

    def encode(self, first: int = 0) -> bytes:
        """Return the file content for the entries from number `first` on."""
        data = bytearray(self.entry_size * (len(self) - first))
        _scatter(data, _big_endian(self._timestamps[first:]).tobytes(), 0, 8)
        _scatter(data, _big_endian(self._offsets[first:]).tobytes(), 8, 4)
        return bytes(data)

    @classmethod
    def decode(cls, data: bytes, base_offset: int, *, checked: bool = False) -> TimeIndex:
        """Return the time index in the file content `data`.

        Raises CorruptIndex unless timestamps rise and offsets do not fall. With `checked`, the checksum has been
        verified, so the order of the entries is not checked.
        """
        if len(data) % cls.entry_size:
            raise CorruptIndex(f"the time index has {len(data)} bytes, which is not a multiple of {cls.entry_size}")
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


# Index files can be large, and reads wait for them. So their bytes are swapped without a loop in Python.


def _big_endian(words: array[int]) -> array[int]:
    """Convert the words between the machine's byte order and the files' byte order, in place; return them."""
    if sys.byteorder == "little":
        words.byteswap()
    return words


def _gathered(data: bytes, start: int, size: int) -> bytes:
    """Return the `size` bytes at position `start` of each entry of a time index, joined."""
    words = bytearray(len(data) // TimeIndex.entry_size * size)
    for place in range(size):
        words[place::size] = data[start + place :: TimeIndex.entry_size]
    return bytes(words)


def _scatter(data: bytearray, words: bytes, start: int, size: int) -> None:
    """Write the joined `words` to position `start` of each entry of a time index, `size` bytes each."""
    for place in range(size):
        data[start + place :: TimeIndex.entry_size] = words[place::size]


def _rises(words: array[int], least: int) -> bool:
    """Whether the words rise strictly and the first word is at least `least`."""
    return not words or (words[0] >= least and all(map(lt, words, words[1:])))


def _leading(
    count: int,
    sound: bool,
    entries: Iterable[tuple[int, int]],
    follows: Callable[[tuple[int, int], tuple[int, int]], bool],
    kind: str,
) -> int:
    """Return the number of valid entries of an index: all `count` if they are `sound`, else those before the zeros.

    Kafka preallocates the index files of its active segment, so zeros follow the entries. Any other invalid entry
    raises CorruptIndex.
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
    """Return the content of a `.txnindex` file with these aborted transactions."""
    return b"".join([_TXN_ENTRY.pack(_TXN_VERSION, *entry) for entry in aborted])


def decode_transaction_index(data: bytes, base_offset: int) -> AbortedIndex:
    """Return the aborted transactions in the content of a `.txnindex` file.

    Raises CorruptIndex if the content is cut off or has an unknown version, if its entries are out of order, or if an
    entry ends below `base_offset`.
    """
    if len(data) % _TXN_ENTRY.size:
        raise CorruptIndex(f"the transaction index has {len(data)} bytes, which is not a multiple of {_TXN_ENTRY.size}")
    aborted: list[AbortedTxn] = []
    for version, *values in _TXN_ENTRY.iter_unpack(data):
        entry = AbortedTxn(*values)
        if version != _TXN_VERSION:
            raise CorruptIndex(f"a transaction index entry has the unknown version {version}")
        if entry.last_offset < base_offset or (aborted and entry.last_offset <= aborted[-1].last_offset):
            raise CorruptIndex(f"transaction index entry {entry} is out of order")
        aborted.append(entry)
    return AbortedIndex(aborted)


class IndexChecksums(NamedTuple):
    """The content of a `.checksums` file: the crc32c and the size of the offset, time and transaction index.

    `covered`: how many bytes of the `.log` file the indexes cover (a batch boundary); -1 if that is not recorded. The
    file contains the three checksums (uint32), then `covered` and the three sizes (uint32), and then the crc32c of all
    these. Files of older versions contain only the three checksums: `sizes` is None for them.
    """

    crcs: tuple[int, int, int] = (0, 0, 0)
    sizes: tuple[int, int, int] | None = (0, 0, 0)
    covered: int = 0

    def extended(self, tails: tuple[bytes, bytes, bytes], covered: int) -> IndexChecksums:
        """Return the checksums after the bytes `tails` have been appended to the offset, time and transaction index.

        `covered` is the number of bytes of the `.log` file that the extended indexes cover.
        """
        assert self.sizes is not None
        crc, size = self.crcs, self.sizes
        return IndexChecksums(
            (crc32c(tails[0], crc[0]), crc32c(tails[1], crc[1]), crc32c(tails[2], crc[2])),
            (size[0] + len(tails[0]), size[1] + len(tails[1]), size[2] + len(tails[2])),
            covered,
        )

    def encode(self) -> bytes:
        """Return the content of the `.checksums` file."""
        assert self.sizes is not None
        data = _CHECKSUMS.pack(*self.crcs) + _REACH.pack(self.covered, *self.sizes)
        return data + _CHECKSUM.pack(crc32c(data))

    @classmethod
    def decode(cls, data: bytes) -> IndexChecksums:
        """Return the checksums in the content of a `.checksums` file; raise CorruptIndex if it is damaged."""
        if len(data) == _CHECKSUMS.size:
            return cls(_CHECKSUMS.unpack(data), None, -1)
        if len(data) != _CHECKSUMS.size + _REACH.size + _CHECKSUM.size:
            raise CorruptIndex(f"the checksums file has an invalid size of {len(data)} bytes")
        end = len(data) - _CHECKSUM.size
        if _CHECKSUM.unpack_from(data, end) != (crc32c(data[:end]),):
            raise CorruptIndex("the checksum of the checksums file does not match its content")
        covered, *sizes = _REACH.unpack_from(data, _CHECKSUMS.size)
        return cls(_CHECKSUMS.unpack_from(data), (sizes[0], sizes[1], sizes[2]), covered)

    def check_reach(self, size: int) -> None:
        """Raise CorruptIndex if the index files record that they cover more or fewer bytes than `size`.

        `size` is the size in bytes of a finished segment's log file.
        """
        if self.covered not in (-1, size):
            raise CorruptIndex(f"the indexes cover {self.covered} bytes of the log file, which has {size}")

    def check_aborted(self, index: bytes) -> bytes:
        """Return the valid part of the transaction index file's content; raise CorruptIndex if it is damaged."""
        if self.sizes is not None:
            index = index[: self.sizes[2]]
        if crc32c(index) != self.crcs[2]:
            raise CorruptIndex("the checksum of the transaction index does not match its content")
        return index

    def check(self, indexes: tuple[bytes, bytes, bytes]) -> tuple[bytes, bytes, bytes]:
        """Return the valid parts of the three index files' contents; raise CorruptIndex if one is damaged."""
        if self.sizes is not None:
            offsets, times, aborted = indexes
            indexes = offsets[: self.sizes[0]], times[: self.sizes[1]], aborted[: self.sizes[2]]
        if (crc32c(indexes[0]), crc32c(indexes[1]), crc32c(indexes[2])) != self.crcs:
            raise CorruptIndex("the checksums of the indexes do not match their content")
        return indexes
