"""Read from a batch only what compaction and searches by time need: `skim`, and `select`, which keeps chosen records.

`skim` is lazy: it stops when its caller stops. It does not read headers and values, and makes one small tuple per
record. It also reads batches whose offset deltas have gaps. The broker refuses such batches from producers, but
compaction leaves them in a log. A damaged batch raises CorruptBatch only when the damaged record is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from .batch_header import BatchHeader, CorruptBatch
from .record_varint import encode_varint, read_varint


class SkimmedRecord(NamedTuple):
    """One record. `body` and `end` delimit its bytes after the timestamp delta, in the decompressed records."""

    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool
    body: int
    end: int


def skim(data: bytes | bytearray, header: BatchHeader) -> Iterator[SkimmedRecord]:
    """Yield the records in `data`, the decompressed content of the batch with this header. Raises CorruptBatch.

    In a batch of type LOG_APPEND_TIME, every record has the header's timestamp.
    """
    number = 0
    try:
        for number, record in enumerate(_skimmed(data, header), 1):  # noqa: B007
            yield record
    except IndexError:
        raise CorruptBatch(f"record {number} of the batch at offset {header.base_offset} is cut off") from None


def _skimmed(data: bytes | bytearray, header: BatchHeader) -> Iterator[SkimmedRecord]:
    """Yield the records as `skim` does. Raises IndexError if a record is cut off."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.timestamp_type else None
    make = SkimmedRecord
    size = len(data)
    at = 0
    previous = -1
    for _ in range(header.record_count):
        # As in `records.decode_batch`, varints of one and two bytes are decoded inline.
        length = data[at]
        if length < 0x80:
            at += 1
        elif (more := data[at + 1]) < 0x80:
            length += (more << 7) - 0x80
            at += 2
        else:
            length, at = read_varint(data, at)
        end = at + (length >> 1)
        if length & 1 or end > size:
            raise CorruptBatch(f"a record of the batch at offset {base_offset} has an impossible length")
        at += 1  # skip the record's attributes: none are defined

        timestamp = data[at]
        if timestamp < 0x80:
            at += 1
        elif (more := data[at + 1]) < 0x80:
            timestamp += (more << 7) - 0x80
            at += 2
        else:
            timestamp, at = read_varint(data, at, 10)
        body = at

        delta = data[at]
        if delta < 0x80:
            at += 1
        elif (more := data[at + 1]) < 0x80:
            delta += (more << 7) - 0x80
            at += 2
        else:
            delta, at = read_varint(data, at)
        if delta & 1 or delta <= previous:
            raise CorruptBatch(f"offsets in the batch at offset {base_offset} do not increase")
        previous = delta

        length = data[at]
        if length < 0x80:
            at += 1
        elif (more := data[at + 1]) < 0x80:
            length += (more << 7) - 0x80
            at += 2
        else:
            length, at = read_varint(data, at)
        if length & 1:
            key = None
        else:
            stop = at + (length >> 1)
            key, at = bytes(data[at:stop]), stop

        length = data[at]
        if length < 0x80:
            at += 1
        elif (more := data[at + 1]) < 0x80:
            length += (more << 7) - 0x80
            at += 2
        else:
            length, at = read_varint(data, at)
        if at > end:
            raise CorruptBatch(f"a record of the batch at offset {base_offset} does not end where its length says")
        yield make(
            base_offset + (delta >> 1),
            base_timestamp + ((timestamp >> 1) ^ -(timestamp & 1)) if fixed_timestamp is None else fixed_timestamp,
            key,
            key is not None and bool(length & 1),
            body,
            end,
        )
        at = end
    if at != size:
        raise CorruptBatch(f"{size - at} bytes follow the last record of the batch at offset {base_offset}")


_ATTRIBUTES: Final = b"\0"


def select(data: bytes | bytearray, records: Iterable[SkimmedRecord], base_timestamp: int) -> bytes:
    """Encode `records`, which `skim` found in `data`, as the content of a batch with another base timestamp.

    Except for the timestamp delta and the record's length, all bytes stay the same.
    """
    pieces: list[bytes | bytearray] = []
    for record in records:
        delta = encode_varint(record.timestamp - base_timestamp)
        pieces += (encode_varint(1 + len(delta) + record.end - record.body), _ATTRIBUTES, delta)
        pieces.append(data[record.body : record.end])
    return b"".join(pieces)
