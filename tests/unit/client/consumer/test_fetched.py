"""Fetched bytes that are not as they should be, and positions around what a reader does not see."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from oncelog import TopicPartition
from oncelog.client.consumer.deserialization import RecordDeserializer
from oncelog.client.consumer.errors import DeserializationError, RecordCorruptError
from oncelog.client.consumer.fetched import PORTION, FetchedPartition
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.record_walk import RecordLimits
from oncelog.protocol.records import Record, TimestampType, encode_batch, read_batch_header
from support.crooked_batches import many_records, packed_batch, raw_batch, with_many_headers

PARTITION = TopicPartition("t", 0)


def batch(start: int, count: int = 2, **options: Any) -> bytes:
    records = [Record(start + n, n, b"k", b"v%d" % (start + n), [("h", None)]) for n in range(count)]
    return encode_batch(records, base_offset=start, leader_epoch=7, **options)


def test_a_part_of_a_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    fetched = FetchedPartition(PARTITION, batch(0) + batch(2)[:-1], 0)
    assert fetched.end_offset == 2
    assert [record.offset for record in fetched.take(10)] == [0, 1]
    assert fetched.take(10) == []
    assert fetched.next_offset == 2


def test_a_wrong_checksum_is_told_at_its_batch_and_again_when_asked_again() -> None:
    data = bytearray(batch(0) + batch(2))
    data[-1] ^= 1
    fetched = FetchedPartition(PARTITION, bytes(data), 0)
    assert [record.offset for record in fetched.take(10)] == [0, 1]
    for _ in range(2):
        with pytest.raises(RecordCorruptError, match=r"offset 2.*checksum") as raised:
            fetched.take(10)
        assert raised.value.offset == 2
        assert fetched.next_offset == 2


def test_checksums_can_be_left_unchecked() -> None:
    data = bytearray(batch(0))
    data[17] ^= 1
    assert len(FetchedPartition(PARTITION, bytes(data), 0, check_crcs=False).take(10)) == 2


def test_an_unknown_format_is_told() -> None:
    data = bytearray(batch(0))
    data[16] = 1
    with pytest.raises(RecordCorruptError, match="magic"):
        FetchedPartition(PARTITION, bytes(data), 0).take(10)


def test_the_position_passes_markers_along_with_the_last_record() -> None:
    data = batch(0, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    data += control_batch(True, 0, 5, 0, 0, base_offset=2)
    fetched = FetchedPartition(PARTITION, data, 0, [])
    assert len(fetched.take(10)) == 2
    assert fetched.next_offset == 3


def test_an_abort_that_began_before_the_position_still_hides() -> None:
    """The first batch of the transaction was read, as far as it counts, by an earlier fetch."""
    data = batch(4, producer_id=5, producer_epoch=0, base_sequence=2, transactional=True)
    data += control_batch(False, 0, 5, 0, 0, base_offset=6)
    data += batch(7, producer_id=5, producer_epoch=0, base_sequence=4, transactional=True)
    data += control_batch(True, 0, 5, 0, 0, base_offset=9)
    fetched = FetchedPartition(PARTITION, data, 4, [(5, 0)])
    assert [record.offset for record in fetched.take(10)] == [7, 8]
    assert fetched.next_offset == 10


def test_records_say_where_they_come_from() -> None:
    data = batch(0, timestamp_type=TimestampType.LOG_APPEND_TIME)
    record = FetchedPartition(PARTITION, data, 0).take(1)[0]
    assert (record.topic, record.partition, record.topic_partition) == ("t", 0, PARTITION)
    assert (record.leader_epoch, record.timestamp_type) == (7, TimestampType.LOG_APPEND_TIME)
    assert record.headers == [("h", None)]
    assert "offset=0" in repr(record)


def test_records_are_values_that_travel_and_differ_by_identity() -> None:
    first, second = FetchedPartition(PARTITION, encode_batch([Record(n, 1, None, b"v") for n in (0, 1)]), 0).take(2)
    assert (first.headers, second.headers) == ([], [])
    assert first.headers is not second.headers
    copy = pickle.loads(pickle.dumps(first))
    assert (repr(copy), copy.origin) == (repr(first), first.origin)
    assert copy != first
    assert len({first, second, copy}) == 3
    with pytest.raises(AttributeError):
        first.value = b"other"


def test_one_take_goes_beyond_the_end_of_a_batch() -> None:
    data = b"".join(batch(start) for start in range(0, 10, 2))
    fetched = FetchedPartition(PARTITION, data, 1)
    assert [record.offset for record in fetched.take(6)] == [1, 2, 3, 4, 5, 6]
    assert fetched.next_offset == 7
    assert [record.offset for record in fetched.take(6)] == [7, 8, 9]
    assert (fetched.next_offset, fetched.waiting_bytes) == (10, 0)


def test_a_large_batch_is_decoded_in_portions() -> None:
    count = 2 * PORTION + 10
    data = packed_batch(many_records(count), count)
    fetched = FetchedPartition(PARTITION, data, 5)
    first = fetched.take(PORTION - 5)
    assert [record.offset for record in first] == list(range(5, PORTION))
    assert fetched.next_offset == PORTION
    record = fetched.take_one()
    assert record is not None
    assert record.offset == PORTION
    rest = [*fetched.take(count), *fetched.take(count)]
    assert [record.offset for record in rest] == list(range(PORTION + 1, count))
    assert fetched.next_offset == count


@pytest.mark.parametrize(
    "data",
    [
        packed_batch(with_many_headers(2_000_000)),
        packed_batch(many_records(1_200), 1_200),
        packed_batch(bytes(20_000_000), 3),
        raw_batch(many_records(2), 5),
        raw_batch(b"\xff" * 60, 5, compression=4),
        raw_batch(b"\xff" * 60, (1 << 31) - 1, compression=4),
    ],
    ids=["many headers", "many records", "many bytes", "fewer records", "garbage", "billions of records"],
)
def test_a_batch_that_cannot_be_read_says_where_it_is_and_how_to_go_on(data: bytes) -> None:
    limits = RecordLimits(1_000, decompressed_bytes=10_000_000)
    end = read_batch_header(data).next_offset
    fetched = FetchedPartition(PARTITION, data, 0, limits=limits)
    for _ in range(2):
        with pytest.raises(
            RecordCorruptError, match=rf"t-0, batch at offset 0: .*seek\(\) to offset {end} to skip"
        ) as e:
            fetched.take(10)
        assert (e.value.offset, e.value.next_offset, fetched.next_offset) == (0, end, 0)


def test_what_precedes_damage_in_a_large_batch_is_handed_out() -> None:
    count = PORTION + 100
    payload = bytearray(many_records(count))
    payload[-1] = 9
    fetched = FetchedPartition(PARTITION, raw_batch(bytes(payload), count), 0)
    assert len(fetched.take(count)) == PORTION
    for _ in range(2):
        with pytest.raises(RecordCorruptError) as error:
            fetched.take(count)
        assert (error.value.offset, error.value.next_offset) == (PORTION, count)
    assert fetched.next_offset == PORTION


def refusing(*offsets: int) -> RecordDeserializer:
    """Deserializes values to strings, and fails at these offsets."""

    def decode(data: bytes) -> str:
        if int(data[1:]) in offsets:
            raise ValueError("refused")
        return data.decode()

    return RecordDeserializer(None, decode)


@pytest.mark.parametrize("bad", [0, 3, PORTION - 1, PORTION, PORTION + 3, 2 * PORTION + 1])
def test_records_before_one_that_cannot_be_deserialized_come_first_and_none_is_passed_over(bad: int) -> None:
    data = batch(0, PORTION + 5) + batch(PORTION + 5, PORTION + 5)
    fetched = FetchedPartition(PARTITION, data, 0, deserialize=refusing(bad))
    before: list[int] = []
    while len(before) < bad:
        records = fetched.take(2 * PORTION)
        assert [record.value for record in records] == [f"v{record.offset}" for record in records]
        before += [record.offset for record in records]
        assert records
        assert fetched.next_offset == before[-1] + 1
    assert before == list(range(bad))
    for take in (lambda: fetched.take(10), fetched.take_one, lambda: fetched.take(1)):
        with pytest.raises(DeserializationError) as raised:
            take()
        assert (raised.value.offset, raised.value.record.value) == (bad, b"v%d" % bad)
        assert fetched.next_offset == bad


def test_behind_a_record_that_cannot_be_deserialized_the_rest_is_read() -> None:
    fetched = FetchedPartition(PARTITION, batch(0, 5), 3, deserialize=refusing(2))
    records = fetched.take(10)
    assert [record.value for record in records] == ["v3", "v4"]
    assert [record.raw.value for record in records] == [b"v3", b"v4"]
    assert fetched.take_one() is None
