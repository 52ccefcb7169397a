"""Encode Arrow arrays as payloads of record batches, without a Python object per record: `encode`.

All length fields are written at once as numbers, and Arrow joins them with the keys and values of the records. All
timestamp deltas are zero. The records of a batch therefore have the batch's timestamp, the time at which the task wrote
them.

A Python loop encodes the headers of the records that have headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.record_varint import encode_varint
from . import varints
from .varints import Numbers

OVERHEAD: Final = 21
"""The maximum number of bytes that this encoder adds to the key and value of a record without headers."""

_NO_HEADERS: Final = b"\x00"
_AT_ONCE: Final = 8 << 20
"""The approximate number of bytes to encode at once: enough to save fixed costs, few enough to bound the memory."""


class Payload(NamedTuple):
    """The uncompressed records of one batch, in the form in which they follow the batch header."""

    records: memoryview
    record_count: int


def encode(key: pa.Array, value: pa.Array, headers: pa.Array | None, max_bytes: int) -> Iterator[Payload]:
    """Yield the records in batches of about `max_bytes`, with at least one record each.

    `key` and `value` are binary arrays. `headers` is an array of lists of structs of key (string) and value (binary).
    """
    key_length, value_length = _lengths(key), _lengths(value)
    blobs = None if headers is None or headers.null_count == len(headers) else _header_blobs(headers)
    sizes = np.maximum(key_length, 0) + np.maximum(value_length, 0) + OVERHEAD
    if blobs is not None:
        sizes += _lengths(blobs)
    start = 0
    for end, cuts in _stretches(sizes, max_bytes):
        some = slice(start, end)
        joined = _join(
            key.slice(start, end - start),
            key_length[some],
            value.slice(start, end - start),
            value_length[some],
            None if blobs is None else blobs.slice(start, end - start),
            _offset_deltas(cuts, end - start),
        )
        _, offsets, data = joined.buffers()
        bounds = np.frombuffer(offsets, np.int32, len(joined) + 1)
        records = memoryview(data)
        for first, behind in zip(cuts, [*cuts[1:], end - start], strict=True):
            yield Payload(records[bounds[first] : bounds[behind]], behind - first)
        start = end


def _stretches(sizes: Numbers, max_bytes: int) -> Iterator[tuple[int, list[int]]]:
    """Divide records of these sizes into parts to encode at once, and each part into batches of about `max_bytes`.

    Yield (end, cuts) for each part. `end` is the index of the first record after the part. `cuts` are the indexes at
    which batches begin, counted from the first record of the part.
    """
    behind = np.cumsum(sizes)
    start = at = 0
    cuts: list[int] = []
    while at < len(sizes):
        cuts.append(at - start)
        before = int(behind[at - 1]) if at else 0
        at = max(int(np.searchsorted(behind, before + max_bytes, side="right")), at + 1)
        before = int(behind[start - 1]) if start else 0
        if at == len(sizes) or int(behind[at - 1]) - before >= _AT_ONCE:
            yield at, cuts
            start, cuts = at, []


def _offset_deltas(cuts: list[int], count: int) -> Numbers:
    """Return each record's offset delta within its batch. `cuts` are the indexes where batches begin."""
    first = np.repeat(np.array(cuts, np.int64), np.diff([*cuts, count]))
    return np.arange(count, dtype=np.int64) - first


def _join(
    key: pa.Array,
    key_length: Numbers,
    value: pa.Array,
    value_length: Numbers,
    blobs: pa.Array | None,
    offset_delta: Numbers,
) -> pa.Array:
    """Return a binary array with the bytes of each record. A length of -1 stands for null."""
    count = len(key)
    length = 2 + varints.sizes(offset_delta) + varints.sizes(key_length) + varints.sizes(value_length)
    length += np.maximum(key_length, 0) + np.maximum(value_length, 0)
    length += 1 if blobs is None else _lengths(blobs)
    lead = np.zeros((count, 5), np.int64)  # length, attributes, timestamp delta, offset delta, key length
    lead[:, 0], lead[:, 3], lead[:, 4] = length, offset_delta, key_length
    return pc.binary_join_element_wise(
        _binary(*varints.write(lead.reshape(-1)), 5),
        pc.fill_null(key, b""),
        _binary(*varints.write(value_length), 1),
        pc.fill_null(value, b""),
        pa.scalar(_NO_HEADERS) if blobs is None else blobs,
        b"",
    )


def _binary(data: varints.Bytes, lengths: Numbers, per_element: int) -> pa.Array:
    """Return a binary array in which each element has the next `per_element` varints of `data`.

    `lengths`: the length of each varint in bytes.
    """
    if per_element > 1:
        lengths = lengths.reshape(-1, per_element).sum(1)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _lengths(array: pa.Array) -> Numbers:
    """Return the length of each element in bytes, -1 for null."""
    if not len(array):
        return np.zeros(0, np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int32, array.offset + len(array) + 1)[array.offset :]
    lengths = np.diff(offsets).astype(np.int64)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths


def _header_blobs(headers: pa.Array) -> pa.Array:
    """Return the encoded headers of each record as a binary array."""
    return pa.array([_NO_HEADERS if one is None else _header_blob(one) for one in headers.to_pylist()], pa.binary())


def _header_blob(headers: list[dict[str, Any]]) -> bytes:
    """Return the encoded headers of one record: their count, then each header."""
    pieces = [encode_varint(len(headers))]
    for header in headers:
        name, value = header["key"].encode(), header["value"]
        pieces += (encode_varint(len(name)), name)
        pieces += (encode_varint(-1),) if value is None else (encode_varint(len(value)), value)
    return b"".join(pieces)
