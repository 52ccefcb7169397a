"""Build batches whose records contradict the header, with a valid checksum, as broken or hostile clients send them."""

from __future__ import annotations

import zlib

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


def many_empty_blocks(codec: Compression, payload: bytes, size: int) -> bytes:
    """Return `payload`, compressed with gzip or zstd, behind so many empty blocks that the result has `size` bytes.

    The result may have up to 100 bytes more. `payload` may have up to 60 bytes.
    """
    if codec is Compression.GZIP:
        head = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
        block = b"\0\0\0\xff\xff"  # a stored block of no bytes
        deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        tail = deflate.compress(payload) + deflate.flush()
        tail += zlib.crc32(payload).to_bytes(4, "little") + len(payload).to_bytes(4, "little")
    else:
        head = b"\x28\xb5\x2f\xfd\x00\x50"
        block = b"\0\0\0"  # a raw block of no bytes
        tail = (len(payload) << 3 | 1).to_bytes(3, "little") + payload
    return head + block * (size // len(block)) + tail
