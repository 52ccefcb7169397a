"""Read the keys and values of many batches. Readers that keep the last value of each key use this for a whole log.

Coordinators write uncompressed batches whose records have no headers. Such a batch is decoded in place, at a fraction
of the cost of `records.decode_batch`, unless its timestamp type is LOG_APPEND_TIME. All other batches, including
damaged ones, are left to `decode_batch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from .batch_header import COMPRESSION_MASK, HEADER, HEADER_SIZE, LENGTH_END, LOG_APPEND_TIME, read_batch_header
from .record_varint import read_varint
from .records import Headers, decode_batch

KeyedRecord: TypeAlias = tuple[int, int, bytes | None, bytes | None]
"""The record (offset, timestamp in ms, key, value). A tombstone's value is None."""

KeyedBatch: TypeAlias = tuple[int, int, int, list[KeyedRecord]]
"""The batch (last offset, attributes, producer id, records)."""

_NOT_PLAIN: Final = COMPRESSION_MASK | LOG_APPEND_TIME


def keyed_batches(data: bytes) -> Iterator[KeyedBatch]:
    """Yield each batch of `data`, which consists of whole batches. Checksums are not verified.

    Raises the same errors as `decode_batch`.
    """
    at = 0
    while at < len(data):
        header = HEADER.unpack_from(data, at)
        end = at + LENGTH_END + header[1]
        records: list[KeyedRecord] = []
        try:
            plain = not header[5] & _NOT_PLAIN and _walk(
                data, at + HEADER_SIZE, end, header[12], header[0], header[7], records
            )
        except IndexError:
            plain = False
        if not plain:
            records = decode_batch(data, at, read_batch_header(data, at), _without_headers)
        yield header[0] + header[6], header[5], header[9], records
        at = end


def _without_headers(
    offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
) -> KeyedRecord:
    return offset, timestamp, key, value


def _walk(
    data: bytes,
    at: int,
    stop: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    records: list[KeyedRecord],
) -> bool:
    """Append the records from byte `at` to byte `stop` to `records`. Return False unless the batch is plain and valid.

    Raises IndexError if the data ends early, CorruptBatch if a varint is too long.
    """
    previous = -1
    for _ in range(count):
        length = data[at]
        if length < 0x80:
            at += 1
        elif (more := data[at + 1]) < 0x80:
            length += (more << 7) - 0x80
            at += 2
        else:
            length, at = read_varint(data, at)
        end = at + (length >> 1)
        at += 1  # skip the record's attributes: none are defined

        timestamp = data[at]
        if timestamp < 0x80:
            at += 1
        else:
            timestamp, at = read_varint(data, at, 10)

        delta = data[at]
        if delta < 0x80:
            at += 1
        else:
            delta, at = read_varint(data, at)
        if length & 1 or delta & 1 or delta <= previous:
            return False
        previous = delta

        length = data[at]
        if length < 0x80:
            at += 1
        else:
            length, at = read_varint(data, at)
        key = value = None
        if not length & 1:
            start, at = at, at + (length >> 1)
            key = data[start:at]
        elif length != 1:
            return False

        length = data[at]
        if length < 0x80:
            at += 1
        elif (more := data[at + 1]) < 0x80:
            length += (more << 7) - 0x80
            at += 2
        else:
            length, at = read_varint(data, at)
        if not length & 1:
            start, at = at, at + (length >> 1)
            value = data[start:at]
        elif length != 1:
            return False

        if data[at] or at + 1 != end:  # headers, or a record that does not end where its length says
            return False
        at = end
        records.append((base_offset + (delta >> 1), base_timestamp + ((timestamp >> 1) ^ -(timestamp & 1)), key, value))
    return at == stop
