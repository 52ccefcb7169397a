"""Read neighbouring records of one shape all at once: `read_run`.

Records have one shape if they have the same size, keys and values of the same lengths, no headers, successive offsets,
and timestamp deltas of the same width. Producers often write such records. Each field is then a column: a slice of the
batch whose step is the record's size. Checking a column takes a few nanoseconds per record.

`read_run` raises no errors. It leaves all other records, valid or not, to the reader of single records. Both readers
return equal results for the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Final, NamedTuple

from .batch_header import CorruptBatch
from .record_varint import read_varint

FEWEST: Final = 4
"""The shortest run. For fewer records, reading them one by one is faster."""

_NULL: Final = 1
"""The encoded length of a key or value that is null."""

_LOW: Final = bytes(range(0x80, 0x100, 2))
_OFFSET_COLUMNS: Final = (
    (0, (bytes(range(0, 0x80, 2)),)),
    (64, (_LOW * 128, b"".join(bytes([high]) * 64 for high in range(128)))),
    (
        8192,
        (
            _LOW * 1024,
            b"".join(bytes([middle]) * 64 for middle in range(0x80, 0x100)) * 8,
            b"".join(bytes([high]) * 8192 for high in range(8)),
        ),
    ),
)
"""For each width in bytes, the first offset delta of that width, and the columns of the encoded deltas.

Column `i` consists of byte `i` of the encodings of 0, 1, 2, and so on.
"""


class Run(NamedTuple):
    """`record_count` neighbouring records of `size` bytes each, as columns."""

    record_count: int
    size: int
    timestamps: Iterable[int]
    keys: Iterable[bytes | None]
    values: Iterable[bytes | None]


def read_run(data: bytes, at: int, most: int, offset_delta: int, base_timestamp: int) -> Run | None:
    """Read the records of one shape that begin at `at`. The first must have the offset delta `offset_delta`.

    At most `most` records are read. Return None if fewer than `FEWEST` records form a run.
    """
    if most < FEWEST:
        return None
    try:
        length, body = read_varint(data, at)
        end = body + (length >> 1)
        size = end - at
        count = _alike(data, range(at, body), size, min(most, (len(data) - at) // size))
        if count < FEWEST:
            return None
        _, offset_at = read_varint(data, body + 1, 10)  # skip the attributes and the timestamp
        _, key_length_at = read_varint(data, offset_at)
        key_length, key_at = read_varint(data, key_length_at)
        value_length_at = key_at if key_length == _NULL else key_at + (key_length >> 1)
        value_length, value_at = read_varint(data, value_length_at)
        headers_at = value_at if value_length == _NULL else value_at + (value_length >> 1)
    except (IndexError, CorruptBatch):
        return None
    if headers_at != end - 1 or data[headers_at] or length & 1:
        return None
    if (key_length & 1 and key_length != _NULL) or (value_length & 1 and value_length != _NULL):
        return None
    count = _alike(data, (*range(key_length_at, key_at), *range(value_length_at, value_at), headers_at), size, count)
    count = _successive(data, range(offset_at, key_length_at), size, count, offset_delta)
    if count < FEWEST:
        return None
    stop = at + count * size
    timestamps = _timestamps([data[position:stop:size] for position in range(body + 1, offset_at)], base_timestamp)
    if timestamps is None:
        return None
    keys = _parts(data, range(key_at, stop, size), key_length)
    return Run(count, size, timestamps, keys, _parts(data, range(value_at, stop, size), value_length))


def _alike(data: bytes, positions: Iterable[int], size: int, count: int) -> int:
    """Return how many of `count` records, counted from the first, have the first record's bytes at these positions."""
    for position in positions:
        column = data[position : position + count * size : size]
        same = column[:1]
        if column != same * count:
            count -= len(column.lstrip(same))
    return count


def _successive(data: bytes, positions: range, size: int, count: int, offset_delta: int) -> int:
    """Return how many of `count` records have successive offset deltas of one width at these positions.

    A width has a limited range of deltas, so the result may be less than `count`. It is 0 if the deltas in this range
    are not successive.
    """
    if len(positions) > len(_OFFSET_COLUMNS):
        return 0
    first, columns = _OFFSET_COLUMNS[len(positions) - 1]
    if offset_delta < first:
        return 0
    count = min(count, len(columns[0]) - offset_delta)
    for position, column in zip(positions, columns, strict=True):
        if data[position : position + count * size : size] != column[offset_delta : offset_delta + count]:
            return 0
    return count


def _timestamps(columns: list[bytes], base: int) -> Iterable[int] | None:
    """Return the base timestamp plus each record's delta, or None if not all deltas have the same width.

    `columns` are the bytes of the deltas, lowest byte first.
    """
    *lower, highest = columns
    if not highest.isascii():
        return None
    if not lower and highest == highest[:1] * len(highest):  # all records were written within the same millisecond
        return repeat(base + ((highest[0] >> 1) ^ -(highest[0] & 1)))
    deltas = list(highest)
    for column in reversed(lower):
        if min(column) < 0x80:
            return None
        deltas = [(delta << 7) + byte - 0x80 for delta, byte in zip(deltas, column, strict=True)]
    return [base + ((delta >> 1) ^ -(delta & 1)) for delta in deltas]


def _parts(data: bytes, begins: range, length: int) -> Iterable[bytes | None]:
    """Return the keys, or the values, that begin at these positions. `length` is their encoded length."""
    if length == _NULL:
        return repeat(None)
    length >>= 1
    return [data[begin : begin + length] for begin in begins]
