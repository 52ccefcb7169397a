"""Encode and decode the records inside a batch (format v2): `Record`, `encode_batch`, `decode_batch`, `BatchReader`.

This module also re-exports the functions of `protocol/batch_header.py` that work on headers. Producers, which add
records one at a time, use `protocol/batch_builder.py`.

A record is: length varint | attributes int8 (0) | timestamp delta varlong | offset delta varint | key length varint,
key | value length varint, value | header count varint, each header: key length varint, key, value length varint, value.
Varints are zigzag encoded. Length -1 is null. Deltas are relative to the batch's base timestamp and base offset.

Invariants: offsets within a decoded batch increase. Damaged bytes always end in CorruptBatch. Each count and length is
compared with the bytes that are left, and with the limits of a batch, before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Final, TypeAlias, TypeVar, overload

from .batch_header import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchBudgetExceeded,
    BatchHeader,
    CorruptBatch,
    TimestampType,
    assemble_batch,
    iter_batches,
    next_sequence,
    read_batch_header,
    stamp,
    verify_crc,
)
from .compression import Compression, UnsupportedCompression, compress, decompress
from .record_runs import read_run
from .record_varint import read_varint, write_varint
from .record_walk import DEFAULT_LIMITS, MIN_RECORD_SIZE, RecordLimits
from .schema import Buffer

__all__ = [
    "HEADER_SIZE",
    "BatchBudgetExceeded",
    "BatchHeader",
    "BatchReader",
    "CorruptBatch",
    "Headers",
    "Record",
    "TimestampType",
    "UnsupportedCompression",
    "decode_batch",
    "encode_batch",
    "encode_record",
    "iter_batches",
    "next_sequence",
    "read_batch_header",
    "stamp",
    "verify_crc",
]

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""A record's headers in order. A key may occur more than once."""

_R = TypeVar("_R")

RecordMaker: TypeAlias = Callable[[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]], _R]
"""A function that makes a record from (offset, timestamp, key, value, headers)."""


Row: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers, object]
"""A decoded record: offset, timestamp, key, value, headers (() for none), and the `common` object of its `BatchReader`.
"""

MIN_SINGLES: Final = 8
MAX_SINGLES: Final = 256
"""How many records are read one by one before the reader looks for a run of equally shaped records again. The number
begins at MIN_SINGLES, doubles after each look that finds no run, and stops growing at MAX_SINGLES."""


@dataclass(slots=True)
class Record:
    """One record. `timestamp` is in ms since the epoch, or -1 for none. A key or value of None is null."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> bytes:
    """Return the bytes of one record in the form that it has in an uncompressed batch."""
    body = bytearray(1)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    for part in (key, value):
        if part is None:
            body.append(1)
        else:
            write_varint(body, len(part))
            body += part
    write_varint(body, len(headers))
    for name, content in headers:
        encoded = name.encode()
        write_varint(body, len(encoded))
        body += encoded
        if content is None:
            body.append(1)
        else:
            write_varint(body, len(content))
            body += content
    lead = bytearray()
    write_varint(lead, len(body))
    return bytes(lead + body)


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    last_offset_delta: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Return a whole batch of `records`. Their offsets must increase and be at least `base_offset`; gaps are kept.

    `last_offset_delta` defaults to that of the last record. A compacted batch has the delta of the original batch, so
    that its last offset and last sequence stay the same; `records` may then be empty. With `delete_horizon_ms`, the
    base timestamp is that horizon (KIP-534). Raises ValueError if offsets do not increase, or if `last_offset_delta` is
    too small, or missing in a batch without records.
    """
    records = list(records)
    if not records and last_offset_delta is None:
        raise ValueError("a batch without records needs a last_offset_delta")
    timestamps = [record.timestamp for record in records] or [-1]
    base_timestamp = timestamps[0] if delete_horizon_ms is None else delete_horizon_ms
    previous = -1
    pieces = []
    for record in records:
        delta = record.offset - base_offset
        if delta <= previous:
            raise ValueError(
                f"offset {record.offset} is not greater than the previous offset {base_offset + previous} "
                f"in the batch with base offset {base_offset}"
            )
        previous = delta
        pieces.append(encode_record(record.timestamp - base_timestamp, delta, record.key, record.value, record.headers))
    if last_offset_delta is None:
        last_offset_delta = previous
    elif last_offset_delta < previous:
        raise ValueError(f"last_offset_delta {last_offset_delta} is less than the last record's delta {previous}")
    return assemble_batch(
        compress(compression, b"".join(pieces)) if records else b"",
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=(compression if records else 0)
        | (LOG_APPEND_TIME if timestamp_type else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (0 if delete_horizon_ms is None else DELETE_HORIZON),
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max(timestamps),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


@overload
def decode_batch(
    buffer: Buffer, position: int, header: BatchHeader, *, limits: RecordLimits = DEFAULT_LIMITS
) -> list[Record]: ...


@overload
def decode_batch(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    make: RecordMaker[_R],
    *,
    limits: RecordLimits = DEFAULT_LIMITS,
) -> list[_R]: ...


def decode_batch(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    make: RecordMaker[_R] = Record,  # type: ignore[assignment]
    *,
    limits: RecordLimits = DEFAULT_LIMITS,
) -> list[_R]:
    """Return the records of the batch at `position`, each as `make(offset, timestamp, key, value, headers)`.

    `header` is the result of `read_batch_header` for this position. Raises the same errors as `BatchReader`.
    """
    rows = BatchReader(buffer, position, header, None, limits).read(header.record_count)
    return [make(offset, timestamp, key, value, list(headers)) for offset, timestamp, key, value, headers, _ in rows]


class BatchReader:
    """A reader that decodes the records of one batch in portions. Each record is a `Row`.

    The last item of each row is the object `common` that the constructor was given. The checksum is not verified.
    Header names that are not UTF-8 get replacement characters. The constructor decompresses the batch, and raises
    UnsupportedCompression. Both the constructor and `read` raise CorruptBatch for damaged data, and BatchBudgetExceeded
    if the batch has more records and headers, or more decompressed bytes, than `limits` allow.
    """

    __slots__ = ("_at", "_common", "_data", "_header", "_objects", "_previous", "left")

    def __init__(
        self,
        buffer: Buffer,
        position: int,
        header: BatchHeader,
        common: object = None,
        limits: RecordLimits = DEFAULT_LIMITS,
    ) -> None:
        count = header.record_count
        data = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
        if count > limits.batch_objects:
            limits.check_count(count, limits.decompressed_bytes if header.compression else len(data))
        payload = decompress(header.compression, data, limits.decompressed_bytes) if count else b""
        if count * MIN_RECORD_SIZE > len(payload):
            raise CorruptBatch(
                f"{count} records do not fit into the {len(payload)} bytes of the batch at {header.base_offset}"
            )
        self.left = count
        """The number of records that have not been read yet."""
        self._data = payload
        self._header = header
        self._common = common
        self._objects = limits.batch_objects - count
        self._at = 0
        self._previous = -1

    def read(self, most: int) -> Iterable[Row]:
        """Return at most `most` further records, to be iterated once. The result is empty after the last record."""
        header = self._header
        count = min(most, self.left)
        try:
            rows = self._decode(count)
        except IndexError:
            raise CorruptBatch(f"a record of the batch at offset {header.base_offset} is cut off") from None
        self.left -= count
        if not self.left:
            if self._previous >> 1 > header.last_offset_delta:
                raise CorruptBatch(f"records of the batch at offset {header.base_offset} go beyond its last offset")
            if self._at != len(self._data):
                behind = len(self._data) - self._at
                raise CorruptBatch(f"{behind} bytes follow the last record of the batch at {header.base_offset}")
        return rows

    def _decode(self, count: int) -> Iterable[Row]:
        """Decode `count` records: runs of equally shaped records at once, the records between the runs one by one."""
        pieces: list[Iterable[Row]] = []
        singles = MIN_SINGLES
        header = self._header
        while count:
            delta = (self._previous >> 1) + 1
            run = read_run(self._data, self._at, count, delta, header.base_timestamp)
            if run is not None:
                taken = run.record_count
                offset = header.base_offset + delta
                timestamps = repeat(header.max_timestamp) if header.timestamp_type else run.timestamps
                pieces.append(
                    zip(
                        range(offset, offset + taken),
                        timestamps,
                        run.keys,
                        run.values,
                        repeat(()),
                        repeat(self._common),
                    )
                )
                self._at += taken * run.size
                self._previous += taken << 1
                singles = MIN_SINGLES
            else:
                taken = min(count, singles)
                pieces.append(self._decode_singles(taken))
                singles = min(2 * singles, MAX_SINGLES)
            count -= taken
        return pieces[0] if len(pieces) == 1 else chain.from_iterable(pieces)

    def _decode_singles(self, count: int) -> list[Row]:
        """Decode the next `count` records one by one. Raises CorruptBatch, or IndexError if a record is cut off."""
        # This is the consumer's inner loop. Varints of one and two bytes are decoded inline, because a call costs as
        # much as the rest of a field. Reading past the end raises IndexError. Slices never raise, but lengths only move
        # `at` forward, so `at == end` at the end of a record proves that every slice was within the record.
        data = self._data
        header, common = self._header, self._common
        base_offset = header.base_offset
        base_timestamp = header.base_timestamp
        fixed_timestamp = header.max_timestamp if header.timestamp_type else None
        rows: list[Row] = []
        add = rows.append
        previous, at = self._previous, self._at
        size = len(data)
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
            if length & 1 or end > size:
                raise CorruptBatch(f"a record of the batch at offset {base_offset} has an impossible length")
            at += 1  # skip the record's attributes: none are defined

            delta = data[at]
            if delta < 0x80:
                at += 1
            elif (more := data[at + 1]) < 0x80:
                delta += (more << 7) - 0x80
                at += 2
            else:
                delta, at = read_varint(data, at, 10)
            timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))

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
            else:
                length, at = read_varint(data, at)
            if length & 1:
                key = None
                if length != 1:
                    raise CorruptBatch(f"a key in the batch at offset {base_offset} has a negative length")
            else:
                stop = at + (length >> 1)
                key = data[at:stop]
                at = stop

            length = data[at]
            if length < 0x80:
                at += 1
            elif (more := data[at + 1]) < 0x80:
                length += (more << 7) - 0x80
                at += 2
            else:
                length, at = read_varint(data, at)
            if length & 1:
                value = None
                if length != 1:
                    raise CorruptBatch(f"a value in the batch at offset {base_offset} has a negative length")
            else:
                stop = at + (length >> 1)
                value = data[at:stop]
                at = stop

            headers: Headers = ()
            if data[at]:
                headers, at = _decode_headers(data, at, end, self._objects)
                self._objects -= len(headers)
            else:
                at += 1
            if at != end:
                raise CorruptBatch(f"a record of the batch at offset {base_offset} does not end where its length says")
            if fixed_timestamp is not None:
                timestamp = fixed_timestamp
            add((base_offset + (delta >> 1), timestamp, key, value, headers, common))
        self._previous, self._at = previous, at
        return rows


def _decode_headers(data: bytes, at: int, end: int, most: int) -> tuple[list[tuple[str, bytes | None]], int]:
    """Decode a record's headers, whose count is at `at`. Return them and the position after them.

    Raises CorruptBatch, or BatchBudgetExceeded for more than `most` headers.
    """
    headers: list[tuple[str, bytes | None]] = []
    count, at = read_varint(data, at)
    if count & 1 or (count >> 1) * 2 > end - at:
        raise CorruptBatch("a record has an impossible number of headers")
    if count >> 1 > most:
        raise BatchBudgetExceeded("a batch has more records and headers than its limits allow")
    for _ in range(count >> 1):
        length, at = read_varint(data, at)
        if length & 1:
            raise CorruptBatch("a record header has no name")
        stop = at + (length >> 1)
        name = data[at:stop].decode(errors="replace")
        length, at = read_varint(data, stop)
        if length & 1:
            if length != 1:
                raise CorruptBatch("a record header has a value of negative length")
            headers.append((name, None))
        else:
            stop = at + (length >> 1)
            headers.append((name, data[at:stop]))
            at = stop
    return headers, at
