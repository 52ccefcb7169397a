"""Record batches under arbitrary records and arbitrary damage, and beside the record classes of two other clients."""

from __future__ import annotations

import contextlib
from typing import Any

from aiokafka.record import default_records as aiokafka_records
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import default_records as kafka_records
from oncelog.protocol.batch_builder import BatchBuilder
from oncelog.protocol.compression import Compression
from oncelog.protocol.errors import KafkaError
from oncelog.protocol.record_walk import RecordLimits
from oncelog.protocol.records import (
    Record,
    decode_batch,
    encode_batch,
    iter_batches,
    read_batch_header,
    verify_crc,
)

blobs = st.none() | st.binary(max_size=40) | st.integers(0, 20_000).map(lambda size: b"z" * size)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
rows = st.lists(st.tuples(st.integers(0, 1 << 45), blobs, blobs, headers), min_size=1, max_size=12)
codecs = st.sampled_from(list(Compression))


def records_of(values: list[Any]) -> list[Record]:
    return [Record(offset, *value) for offset, value in enumerate(values)]


def built(values: list[Any], codec: Compression) -> bytes:
    builder = BatchBuilder(codec, 1 << 24)
    for value in values:
        assert builder.append(*value)
    return builder.build(5, 1, 3, True)


@given(rows, codecs)
def test_builder_and_encode_batch_agree_and_round_trip(values: list[Any], codec: Compression) -> None:
    batch = built(values, codec)
    again = encode_batch(
        records_of(values), compression=codec, producer_id=5, producer_epoch=1, base_sequence=3, transactional=True
    )
    assert batch == again
    header = read_batch_header(batch)
    assert verify_crc(batch, 0, header)
    assert decode_batch(memoryview(batch), 0, header) == records_of(values)


@given(st.lists(st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), blobs, blobs, headers), min_size=1, max_size=5))
def test_any_int64_timestamp_round_trips(values: list[Any]) -> None:
    batch = encode_batch(records_of(values))
    assert decode_batch(batch, 0, read_batch_header(batch)) == records_of(values)


@given(rows, codecs)
@settings(max_examples=50)
def test_aiokafka_reads_ours(values: list[Any], codec: Compression) -> None:
    theirs = aiokafka_records.DefaultRecordBatch(built(values, codec))
    assert theirs.validate_crc()
    assert theirs.is_transactional
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (5, 1, 3)
    assert [Record(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs] == records_of(values)


@given(rows, codecs)
@settings(max_examples=50)
def test_we_read_aiokafkas(values: list[Any], codec: Compression) -> None:
    builder = aiokafka_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=9,
        producer_epoch=2,
        base_sequence=0,
        batch_size=1 << 24,
    )
    for offset, (timestamp, key, value, hdrs) in enumerate(values):
        assert builder.append(offset, timestamp, key, value, hdrs) is not None
    batch = bytes(builder.build())
    header = read_batch_header(batch)
    assert verify_crc(batch, 0, header)
    assert (header.producer_id, header.is_transactional) == (9, True)
    assert decode_batch(batch, 0, header) == records_of(values)


@given(rows, codecs)
@settings(max_examples=50)
def test_kafka_python_reads_ours(values: list[Any], codec: Compression) -> None:
    theirs = kafka_records.DefaultRecordBatch(built(values, codec))
    assert theirs.validate_crc()
    assert theirs.last_sequence == 3 + len(values) - 1
    assert [Record(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs] == records_of(values)


@given(rows, codecs)
@settings(max_examples=50)
def test_we_read_kafka_pythons(values: list[Any], codec: Compression) -> None:
    builder = kafka_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=True,
        producer_id=9,
        producer_epoch=2,
        base_sequence=0,
        batch_size=1 << 24,
    )
    for offset, (timestamp, key, value, hdrs) in enumerate(values):
        assert builder.append(offset, timestamp, key, value, hdrs) is not None
    batch = bytes(builder.build())
    header = read_batch_header(batch)
    assert verify_crc(batch, 0, header)
    assert decode_batch(batch, 0, header) == records_of(values)


def damage(batch: bytes, edits: list[tuple[int, int]], cut: int) -> bytes:
    damaged = bytearray(batch)
    for position, byte in edits:
        damaged[position % len(damaged)] = byte
    return bytes(damaged[: len(damaged) - cut % len(damaged)])


@given(
    rows,
    codecs,
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=6),
    st.just(0) | st.integers(0, 200),
)
@settings(max_examples=300)
def test_damage_ends_in_a_typed_error_or_in_records(
    values: list[Any], codec: Compression, edits: list[tuple[int, int]], cut: int
) -> None:
    """The checksum is left out on purpose: a checksum that matches must not be what keeps the reader safe."""
    data = damage(built(values, codec), edits, cut)
    try:
        for position, header in iter_batches(data):
            verify_crc(data, position, header)
            decode_batch(data, position, header, limits=RecordLimits(decompressed_bytes=1 << 22))
    except KafkaError:
        pass


@given(st.binary(max_size=300), codecs)
def test_arbitrary_bytes_behind_a_header_end_in_a_typed_error_or_in_records(payload: bytes, codec: Compression) -> None:
    batch = bytearray(built([(0, None, b"x", [])], Compression.NONE)[:61])
    batch[8:12] = (49 + len(payload)).to_bytes(4, "big")
    batch[22] = codec
    data = bytes(batch) + payload
    with contextlib.suppress(KafkaError):
        decode_batch(data, 0, read_batch_header(data), limits=RecordLimits(decompressed_bytes=1 << 22))
