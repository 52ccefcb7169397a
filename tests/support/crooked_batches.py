"""Build batches whose records contradict the header, with a valid checksum, as broken or hostile clients send them."""

from __future__ import annotations

from oncelog.protocol.batch_header import assemble_batch
from oncelog.protocol.compression import Compression, compress
from oncelog.protocol.record_varint import encode_varint
from oncelog.protocol.records import encode_record

NOW = 1_700_000_000_000


def raw_batch(
    payload: bytes,
    count: int = 1,
    *,
    compression: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = NOW,
    max_timestamp: int = NOW,
) -> bytes:
    """Return a batch with `payload` as its records, unchanged. `compression` only sets the code in the header."""
    return assemble_batch(
        payload,
        base_offset=0,
        leader_epoch=-1,
        attributes=compression,
        last_offset_delta=count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


def packed_batch(payload: bytes, count: int = 1, codec: Compression = Compression.ZSTD, **header: int) -> bytes:
    """Return a batch with `payload`, compressed, as its records."""
    return raw_batch(compress(codec, payload), count, compression=codec, **header)


def record_body(body: bytes) -> bytes:
    """Return a record: the length of `body`, then `body`."""
    return encode_varint(len(body)) + body


def with_many_headers(count: int) -> bytes:
    """Return one record with `count` headers, each with an empty name and an empty value."""
    return record_body(b"\0\0\0\1\1" + encode_varint(count) + b"\0\0" * count)


def many_records(count: int, key: bytes | None = b"k", value: bytes = b"v", step: int = 0) -> bytes:
    """Return `count` small records without a batch header. Their timestamps are `step` ms apart."""
    return b"".join(encode_record(number * step, number, key, value) for number in range(count))
