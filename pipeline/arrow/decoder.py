"""Decode fetched record batches into Arrow arrays, without a Python object per record: `decode`.

`record_bounds.py` finds where records begin. The other fields (offsets, timestamps, keys, values) are read at once for
all records of a group of batches. Keys and values are not copied one by one: an Arrow array divides the bytes of the
group into slices, and Arrow copies many slices in one call.

Headers are rare. A Python loop decodes them for the records that have headers.

Invariant: damaged bytes always raise CorruptBatch. Each position is compared with the end of its record before it is
used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...protocol.compression import decompress
from ...protocol.record_varint import read_varint
from ...protocol.record_walk import MAX_BATCH_OBJECTS
from ...protocol.records import HEADER_SIZE, BatchBudgetExceeded, BatchHeader, CorruptBatch
from ...protocol.schema import Buffer
from . import varints
from .record_bounds import record_bounds
from .varints import Numbers

HEADER_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

JOINED_BYTES: Final = 4 * 1024 * 1024
"""Small compressed batches are decompressed into one buffer, up to about this size in bytes, and decoded together."""

PIECE_BYTES: Final = 1024 * 1024
"""The approximate size in bytes of the records that are yielded together. It fits into the processor's cache."""


class Columns(NamedTuple):
    """The records of several batches, in offset order. Timestamps are in ms. `headers` is None unless requested."""

    offset: Numbers
    timestamp: Numbers
    timestamp_type: NDArray[np.int32]
    key: pa.Array
    value: pa.Array
    headers: pa.Array | None

    def __len__(self) -> int:
        return len(self.offset)


class _Place(NamedTuple):
    """The position of a batch's records in the buffer of a group of batches that are decoded together."""

    header: BatchHeader
    begin: int
    end: int


def decode(
    data: Buffer, batches: Iterable[tuple[int, BatchHeader]], start: int, end: int, *, headers: bool
) -> Iterator[Columns]:
    """Yield the records with start <= offset < end from some batches of one response.

    `data` is the response's records, and `batches` are given as (position in `data`, header). The caller checks
    checksums and transactions. Raises CorruptBatch and UnsupportedCompression.
    """
    for together, group in _groups(memoryview(data), batches):
        yield from _decode_group(together, group, start, end, headers)


def _groups(data: memoryview, batches: Iterable[tuple[int, BatchHeader]]) -> Iterator[tuple[memoryview, list[_Place]]]:
    """Yield groups of batches to decode together.

    The batches of a group share one buffer: `data` itself for uncompressed batches, or a new buffer into which
    compressed batches have been decompressed.
    """
    plain: list[_Place] = []
    packed: list[_Place] = []
    pieces: list[bytes] = []
    size = 0
    for position, header in batches:
        if not header.record_count:
            continue
        begin, end = position + HEADER_SIZE, position + header.size
        if header.record_count > MAX_BATCH_OBJECTS:
            raise BatchBudgetExceeded(
                f"the batch at offset {header.base_offset} has {header.record_count} records, more than the"
                f" limit of {MAX_BATCH_OBJECTS}"
            )
        if packed and (size >= JOINED_BYTES or not header.compression):
            yield memoryview(b"".join(pieces)), packed
            packed, pieces, size = [], [], 0
        if header.compression:
            if plain:
                yield data, plain
                plain = []
            pieces.append(decompress(header.compression, data[begin:end]))
            packed.append(_Place(header, size, size + len(pieces[-1])))
            size = packed[-1].end
        else:
            plain.append(_Place(header, begin, end))
    if plain:
        yield data, plain
    elif packed:
        yield memoryview(b"".join(pieces)), packed


def _decode_group(data: memoryview, group: list[_Place], start: int, end: int, with_headers: bool) -> Iterator[Columns]:
    """Yield, in pieces, a group's records for which start <= offset < end. Raises CorruptBatch."""
    begins, bodies, ends = record_bounds(data, [(begin, end, header.record_count) for header, begin, end in group])
    raw = np.frombuffer(data, np.uint8)
    batches = [place.header for place in group]
    counts = [header.record_count for header in batches]
    delta, at = varints.read(raw, bodies + 1)  # skip the record's attributes: none are defined
    _within(at, ends)
    timestamp = delta + np.repeat([header.base_timestamp for header in batches], counts)
    delta, at = varints.read(raw, at)
    _within(at, ends)
    _check_offsets(delta, counts, batches)
    offset = delta + np.repeat([header.base_offset for header in batches], counts)
    key_length, key_at = varints.read(raw, at)
    key_end = _part_end(key_at, key_length, ends)
    value_length, value_at = varints.read(raw, key_end)
    value_end = _part_end(value_at, value_length, ends)
    header_count, header_at = varints.read(raw, value_end)
    if (header_at[header_count == 0] != ends[header_count == 0]).any() or (header_count < 0).any():
        raise CorruptBatch("a record does not end where its length says")
    types = np.array([header.timestamp_type for header in batches], np.int32)
    if types.any():
        appended = np.repeat(types == 1, counts)
        timestamp[appended] = np.repeat([header.max_timestamp for header in batches], counts)[appended]
    types = np.repeat(types, counts)
    for some in _pieces(begins, ends):
        if offset[some.start] < start or offset[some.stop - 1] >= end:
            within = np.flatnonzero((offset[some] >= start) & (offset[some] < end))
            wanted: slice | Numbers = within + some.start
            if not within.size:
                continue
        else:
            wanted = some
        yield Columns(
            offset[wanted],
            timestamp[wanted],
            types[wanted],
            _taken(data, key_at[wanted], key_length[wanted]),
            _taken(data, value_at[wanted], value_length[wanted]),
            _headers(data, header_at[wanted], header_count[wanted], ends[wanted]) if with_headers else None,
        )


def _pieces(begins: Numbers, ends: Numbers) -> Iterator[slice]:
    """Yield slices that divide the records into pieces of about PIECE_BYTES. Each piece has at least one record."""
    first, count = 0, len(ends)
    while first < count:
        behind = max(int(np.searchsorted(ends, begins[first] + PIECE_BYTES, side="right")), first + 1)
        yield slice(first, behind)
        first = behind


def _check_offsets(delta: Numbers, counts: list[int], group: list[BatchHeader]) -> None:
    """Raise CorruptBatch unless the offsets of each batch increase and stay within the batch."""
    behind = np.cumsum(counts)
    rising = np.empty(len(delta), bool)
    rising[0] = delta[0] >= 0
    rising[1:] = delta[1:] > delta[:-1]
    firsts = behind[:-1]
    rising[firsts] = delta[firsts] >= 0
    lasts = delta[behind - 1]
    if not rising.all() or (lasts > np.array([header.last_offset_delta for header in group])).any():
        raise CorruptBatch(
            "offsets do not increase within a batch or go beyond its last offset, at or after offset "
            f"{group[0].base_offset}"
        )


def _within(at: Numbers, ends: Numbers) -> None:
    """Raise CorruptBatch if a position is after the end of its record."""
    if (at > ends).any():
        raise CorruptBatch("a field of a record goes beyond the record")


def _part_end(at: Numbers, length: Numbers, ends: Numbers) -> Numbers:
    """Return where each key or value ends. A length of -1 stands for null. Raises CorruptBatch."""
    end = at + np.maximum(length, 0)
    if (length < -1).any():
        raise CorruptBatch("a key or value has a negative length")
    # The first comparison catches a sum that overflowed.
    if (length > ends).any() or (end > ends).any():
        raise CorruptBatch("a key or value goes beyond its record")
    return end


def _taken(data: memoryview, at: Numbers, length: Numbers) -> pa.Array:
    """Return a binary array of the slices of `data` at these positions, of these lengths. Length -1 stands for null."""
    count = len(at)
    null = length < 0
    if null.all():
        return pa.nulls(count, pa.binary())
    # The even elements of this array are the wanted parts, and the odd ones are the bytes between them.
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = at
    bounds[1::2] = at + np.maximum(length, 0)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    parts = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    return parts.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int64), mask=null if null.any() else None))


def _headers(data: memoryview, at: Numbers, counts: Numbers, ends: Numbers) -> pa.Array:
    """Return the headers of each record as a list array, with null for a record without headers."""
    if not counts.any():
        return pa.nulls(len(counts), HEADER_TYPE)
    if (count := int(counts.sum())) > MAX_BATCH_OBJECTS:
        raise BatchBudgetExceeded(f"a batch has at least {count} headers, more than the limit of {MAX_BATCH_OBJECTS}")
    found: list[list[dict[str, str | bytes | None]] | None] = [None] * len(counts)
    try:
        for index in np.flatnonzero(counts).tolist():
            found[index] = _headers_of_one(data, int(at[index]), int(counts[index]), int(ends[index]))
    except IndexError:
        raise CorruptBatch("a record header is cut off") from None
    return pa.array(found, HEADER_TYPE)


def _headers_of_one(data: memoryview, at: int, count: int, end: int) -> list[dict[str, str | bytes | None]]:
    """Return the `count` headers of one record, which begin at `at` and end at `end`. Raises CorruptBatch."""
    if count * 2 > end - at:
        raise CorruptBatch("a record has an impossible number of headers")
    headers: list[dict[str, str | bytes | None]] = []
    for _ in range(count):
        length, at = read_varint(data, at)
        if length & 1:
            raise CorruptBatch("a record header has no name")
        stop = at + (length >> 1)
        name = str(data[at:stop], errors="replace")
        length, at = read_varint(data, stop)
        value: bytes | None = None
        if not length & 1:
            stop = at + (length >> 1)
            value, at = bytes(data[at:stop]), stop
        elif length != 1:
            raise CorruptBatch("a record header has a value of negative length")
        headers.append({"key": name, "value": value})
    if at != end:
        raise CorruptBatch("a record does not end where its length says")
    return headers
