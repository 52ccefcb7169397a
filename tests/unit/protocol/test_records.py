"""Record batches: what a broker reads from headers, and where reading records must refuse."""

from __future__ import annotations

import pytest
from oncelog.protocol.compression import Compression
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.record_varint import SMALL_VARINTS, encode_varint, read_varint
from oncelog.protocol.records import (
    HEADER_SIZE,
    CorruptBatch,
    Record,
    TimestampType,
    UnsupportedCompression,
    decode_batch,
    encode_batch,
    encode_record,
    iter_batches,
    next_sequence,
    read_batch_header,
    stamp,
    verify_crc,
)

RECORDS = [
    Record(0, 1000, b"k", b"v", [("h", b"1"), ("h", None)]),
    Record(1, 990, None, b"second"),
    Record(2, 2000, b"gone", None),
]


def batch_with_payload(payload: bytes, count: int = 1, attributes: int = 0, last_offset_delta: int = 0) -> bytes:
    from oncelog.protocol.batch_header import assemble_batch

    return assemble_batch(
        payload,
        base_offset=0,
        leader_epoch=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


def decode(batch: bytes) -> list[Record]:
    return decode_batch(batch, 0, read_batch_header(batch))


def test_header_tells_everything_that_was_written() -> None:
    batch = encode_batch(
        RECORDS, leader_epoch=3, producer_id=7, producer_epoch=2, base_sequence=40, transactional=True, control=False
    )
    header = read_batch_header(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (0, 2, 3)
    assert (header.partition_leader_epoch, header.magic, header.record_count) == (3, 2, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 2, 40, 42)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 2000)
    assert header.has_producer
    assert header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.compression == Compression.NONE


def test_batch_without_a_producer_has_no_sequences() -> None:
    header = read_batch_header(encode_batch(RECORDS))
    assert not header.has_producer
    assert header.last_sequence == -1


@pytest.mark.parametrize(
    ("sequence", "count", "expected"),
    [(0, 1, 1), (2**31 - 1, 1, 0), (2**31 - 2, 2, 0), (2**31 - 2, 5, 3), (2**31 - 1, 0, 2**31 - 1)],
)
def test_sequences_wrap_after_the_largest_int32(sequence: int, count: int, expected: int) -> None:
    assert next_sequence(sequence, count) == expected


def test_last_sequence_wraps() -> None:
    header = read_batch_header(encode_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def test_stamp_changes_offset_and_epoch_and_keeps_the_checksum_valid() -> None:
    batch = bytearray(b"....") + encode_batch(RECORDS)
    stamp(batch, 4, base_offset=1 << 40, leader_epoch=9)
    header = read_batch_header(batch, 4)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 9)
    assert verify_crc(batch, 4, header)
    assert [record.offset for record in decode_batch(batch, 4, header)] == [1 << 40, (1 << 40) + 1, (1 << 40) + 2]


def test_log_append_time_replaces_the_timestamps_and_renews_the_checksum() -> None:
    batch = bytearray(encode_batch(RECORDS, compression=Compression.LZ4, transactional=True))
    stamp(batch, 0, base_offset=5, leader_epoch=0, log_append_time=77_000)
    header = read_batch_header(batch)
    assert verify_crc(batch, 0, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.is_transactional
    assert header.compression == Compression.LZ4
    assert {record.timestamp for record in decode_batch(batch, 0, header)} == {77_000}


@pytest.mark.parametrize("position", [17, 21, 40, HEADER_SIZE, -1])
def test_one_flipped_bit_fails_the_checksum(position: int) -> None:
    batch = bytearray(encode_batch(RECORDS))
    assert verify_crc(batch, 0, read_batch_header(batch))
    batch[position] ^= 1
    assert not verify_crc(batch, 0, read_batch_header(batch))


def test_iteration_ends_before_a_batch_that_is_cut_off() -> None:
    one, two = encode_batch(RECORDS), encode_batch(RECORDS, base_offset=0)
    for cut in range(1, len(two)):
        assert [position for position, _ in iter_batches(memoryview(one + two[:cut]))] == [0]
    assert [position for position, _ in iter_batches(one + two)] == [0, len(one)]
    assert list(iter_batches(b"")) == []


def test_iteration_refuses_a_broken_batch_instead_of_ending() -> None:
    one = encode_batch(RECORDS)
    broken = bytearray(one)
    broken[8:12] = b"\x00\x00\x00\x05"
    with pytest.raises(CorruptBatch, match="less than its header"):
        list(iter_batches(one + broken))


@pytest.mark.parametrize(
    ("position", "value", "text"),
    [
        (16, b"\x01", "format .magic. 1"),
        (8, b"\xff\xff\xff\xff", "claims 11 bytes"),
        (8, b"\x7f\xff\xff\xff", "only .* are there"),
        (57, b"\xff\xff\xff\xff", "claims -1 records"),
        (23, b"\x80\x00\x00\x00", "last offset delta"),
    ],
)
def test_impossible_header_is_corrupt(position: int, value: bytes, text: str) -> None:
    batch = bytearray(encode_batch(RECORDS))
    batch[position : position + len(value)] = value
    with pytest.raises(CorruptBatch, match=text) as caught:
        read_batch_header(batch)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_header_alone_can_be_read_when_the_rest_is_elsewhere() -> None:
    batch = encode_batch(RECORDS)
    assert read_batch_header(batch[:HEADER_SIZE], whole=False) == read_batch_header(batch)
    with pytest.raises(CorruptBatch, match="60 of 61 bytes"):
        read_batch_header(batch[: HEADER_SIZE - 1], whole=False)
    with pytest.raises(CorruptBatch, match="0 of 61 bytes"):
        read_batch_header(batch, len(batch) + 5)


def test_compacted_batch_keeps_gaps_and_its_end() -> None:
    kept = [Record(12, 5, b"a", b"1"), Record(17, 6, b"b", None)]
    batch = encode_batch(
        kept, base_offset=10, last_offset_delta=9, delete_horizon_ms=123, base_sequence=3, producer_id=1
    )
    header = read_batch_header(batch)
    assert (header.next_offset, header.last_sequence, header.record_count) == (20, 12, 2)
    assert header.has_delete_horizon
    assert header.base_timestamp == 123
    assert decode(batch) == kept


def test_batch_may_be_compacted_to_nothing() -> None:
    batch = encode_batch([], base_offset=10, last_offset_delta=4, compression=Compression.GZIP)
    header = read_batch_header(batch)
    assert (header.record_count, header.next_offset, header.size) == (0, 15, HEADER_SIZE)
    assert decode(batch) == []


def test_encoding_refuses_offsets_that_do_not_increase() -> None:
    with pytest.raises(ValueError, match="offset 0 is not greater than the previous offset 0"):
        encode_batch([Record(0, 0, None, b""), Record(0, 0, None, b"")])
    with pytest.raises(ValueError, match="offset 4 is not greater than the previous offset 4"):
        encode_batch([Record(4, 0, None, b"")], base_offset=5)
    with pytest.raises(ValueError, match="last_offset_delta 1"):
        encode_batch(RECORDS, last_offset_delta=1)
    with pytest.raises(ValueError, match="without records"):
        encode_batch([])


def test_make_builds_the_callers_own_record() -> None:
    batch = encode_batch(RECORDS)
    made = decode_batch(batch, 0, read_batch_header(batch), lambda offset, *rest: (offset, len(rest)))
    assert made == [(0, 4), (1, 4), (2, 4)]


GOOD = encode_record(0, 0, b"k", b"v", [("n", b"x")])


@pytest.mark.parametrize(
    ("payload", "count", "text"),
    [
        (GOOD, 2, "do not fit into"),
        (GOOD, 2**31 - 1, "do not fit into"),
        (GOOD + GOOD, 2, "do not increase"),
        (GOOD + b"\x00", 1, "1 bytes follow"),
        (bytes([GOOD[0] + 2]) + GOOD[1:], 1, "impossible length"),
        (bytes([GOOD[0] - 2]) + GOOD[1:], 1, "does not end where"),
        (b"\x01" + GOOD[1:], 1, "impossible length"),
        (b"\xff\xff\xff\xff\xff\xff" + GOOD, 1, "longer than 5 bytes"),
        (b"\x0c\x00" + b"\xff" * 12, 1, "longer than 10 bytes|cut off|impossible"),
        (b"\x0c\x00\x00\x00\x03\x01\x00", 1, "key .* negative"),
        (b"\x0c\x00\x00\x00\x01\x03\x00", 1, "value .* negative"),
        (b"\x0c\x00\x00\x01\x01\x01\x00", 1, "do not increase"),
        (b"\x0c\x00\x00\x00\x01\x01\x06", 1, "impossible number of headers"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1, "no name"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x00\x03", 1, "header .*negative"),
        (encode_record(0, 1, None, None), 1, "beyond its last offset"),
    ],
)
def test_damaged_records_are_corrupt(payload: bytes, count: int, text: str) -> None:
    with pytest.raises(CorruptBatch, match=text):
        decode(batch_with_payload(payload, count))


def test_unknown_codec_is_named() -> None:
    with pytest.raises(UnsupportedCompression, match="code 5") as caught:
        decode(batch_with_payload(GOOD, attributes=5))
    assert isinstance(caught.value, KafkaError)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_header_name_that_is_not_utf8_does_not_block_the_reader() -> None:
    record = encode_record(0, 0, None, None, [("n", b"x")]).replace(b"n", b"\xff")
    assert decode(batch_with_payload(record))[0].headers == [("\ufffd", b"x")]


@pytest.mark.parametrize(("value", "encoded"), [(0, "00"), (-1, "01"), (63, "7e"), (64, "8001"), (-65, "8101")])
def test_varints_are_zigzag(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


def test_varint_of_the_extremes() -> None:
    assert encode_varint(8191).hex() == "fe7f"
    assert encode_varint(8192).hex() == "808001"
    assert encode_varint(2**63 - 1).hex() == "fe" + "ff" * 8 + "01"
    assert encode_varint(-(2**63)).hex() == "ff" * 9 + "01"


def test_the_table_of_small_varints_has_the_varint_of_each_number_at_its_index() -> None:
    assert len(SMALL_VARINTS) == 8192
    for value, encoded in enumerate(SMALL_VARINTS):
        assert read_varint(encoded, 0) == (2 * value, len(encoded))
