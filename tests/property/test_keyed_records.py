"""Reading a log for the last value of each key agrees with reading it record by record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from oncelog.broker.coordinator.group.offset_reader import OffsetReader
from oncelog.broker.coordinator.group.offsets import Claim, OffsetAndMetadata
from oncelog.broker.coordinator.group.records import decode_offset, encode_offset, group_key, offset_key
from oncelog.protocol.batch_header import read_batch_header
from oncelog.protocol.compression import Compression
from oncelog.protocol.errors import DecodeError
from oncelog.protocol.keyed_records import KeyedBatch, keyed_batches
from oncelog.protocol.records import CorruptBatch, Record, TimestampType, decode_batch, encode_batch

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMESTAMPS = st.integers(0, 1 << 42)
BYTES = st.one_of(st.none(), st.binary(max_size=10), st.binary(min_size=60, max_size=70), st.just(bytes(20_000)))
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    base_offset = offset = draw(st.integers(0, 1 << 40))
    records = []
    for _ in range(draw(st.integers(1, 5))):
        headers = draw(HEADERS) if draw(st.booleans()) else []
        records.append(Record(offset, draw(TIMESTAMPS), draw(BYTES), draw(BYTES), headers))
        offset += draw(st.sampled_from([1, 1, 1, 2, 100, 100_000]))
    return encode_batch(
        records,
        base_offset=base_offset,
        producer_id=draw(st.integers(-1, 3)),
        transactional=draw(st.booleans()),
        compression=draw(st.sampled_from([Compression.NONE, Compression.NONE, Compression.GZIP])),
        timestamp_type=draw(st.sampled_from(list(TimestampType))),
        last_offset_delta=draw(st.sampled_from([None, 1_000_000])),
    )


def one_by_one(data: bytes) -> list[KeyedBatch]:
    """What `keyed_batches` should yield."""
    expected: list[KeyedBatch] = []
    at = 0
    while at < len(data):
        header = read_batch_header(data, at)
        records = [(r.offset, r.timestamp, r.key, r.value) for r in decode_batch(data, at, header)]
        expected.append((header.last_offset, header.attributes, header.producer_id, records))
        at += header.size
    return expected


@given(st.lists(batches(), max_size=4).map(b"".join))
def test_keys_and_values_are_those_of_the_records(data: bytes) -> None:
    assert list(keyed_batches(data)) == one_by_one(data)


@given(batches(), st.data())
def test_damaged_records_are_refused_as_decoding_them_would(batch: bytes, data: st.DataObject) -> None:
    damaged = bytearray(batch)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(57, len(damaged) - 1))  # the count of records, and the records
        damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        expected = one_by_one(bytes(damaged))
    except CorruptBatch:
        expected = None
    try:
        found = list(keyed_batches(bytes(damaged)))
    except CorruptBatch:
        found = None
    assert found == expected


OFFSETS = st.builds(
    OffsetAndMetadata,
    st.integers(0, (1 << 63) - 1),
    INT32,
    st.sampled_from(["", "m", "metadata" * 20]),
    st.one_of(INT64, st.just(1_700_000_000_000)),
    st.sampled_from([-1, 5]),
    st.sampled_from([bytes(16), bytes(range(16))]),
    st.sampled_from([None, None, Claim(7, "id", 3)]),
)


@given(st.lists(OFFSETS, max_size=5))
def test_offsets_are_what_the_codec_reads(offsets: list[OffsetAndMetadata]) -> None:
    reader = OffsetReader()
    for number, offset in enumerate(offsets):
        value = encode_offset(offset)
        assert reader.offset(value, number) == decode_offset(value)._replace(record_offset=number)


PLAIN = encode_offset(OffsetAndMetadata(5, 1, "", 1_700_000_000_000, topic_id=bytes(range(16))))


@given(st.lists(st.integers(0, len(PLAIN) * 8 - 1), max_size=3))
def test_values_of_the_usual_size_are_what_the_codec_reads(flipped: list[int]) -> None:
    value = bytearray(PLAIN)
    for bit in flipped:
        value[bit >> 3] ^= 1 << (bit & 7)
    try:
        expected = decode_offset(bytes(value))
    except DecodeError:
        expected = None
    try:
        found = OffsetReader().offset(bytes(value), -1)
    except DecodeError:
        found = None
    assert found == expected


NAMES = st.sampled_from(["", "g", "g\x00\x01", "group", "topic" * 10])


@given(st.lists(st.tuples(NAMES, st.none() | st.tuples(NAMES, INT32)), max_size=10))
def test_keys_are_read_as_they_were_written(keys: list[tuple[str, tuple[str, int] | None]]) -> None:
    reader = OffsetReader()
    for group, partition in keys:
        raw = group_key(group) if partition is None else offset_key(group, partition)
        assert reader.key(raw) == (group, partition)
