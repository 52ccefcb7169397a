"""A batch takes memory as it grows, up to batch.size."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog.client.config import ProducerConfig
from oncelog.client.metadata import PartitionMetadata, TopicMetadata
from oncelog.client.producer.accumulator import COMPRESSED_AT_ONCE, INITIAL_SIZE, RecordAccumulator, TopicQueues
from oncelog.client.producer.batch import ProducerBatch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.record_walk import MAX_BATCH_OBJECTS, MAX_RECORD_HEADERS

TIMESTAMP = 1_700_000_000_000


def accumulator(partitions: int = 1, **settings: Any) -> tuple[RecordAccumulator, TopicQueues]:
    made = RecordAccumulator(ProducerConfig.of(bootstrap_servers="a:1", **settings), lambda: 0.0, lambda: None)
    metadata = tuple(PartitionMetadata(number, 1, 0) for number in range(partitions))
    return made, made.use_topic(TopicMetadata("t", b"1" * 16, ErrorCode.NONE, False, metadata))


def filled(made: RecordAccumulator, topic: TopicQueues, value: bytes) -> ProducerBatch:
    """Append the value until a batch is full, and return the batch."""
    made.batch_filled = False
    while not made.batch_filled:
        assert made.append(topic, 0, TIMESTAMP, None, value, ()) is not None
    return topic.queues[0].waiting[-2]


def used(made: RecordAccumulator) -> int:
    return sum(batch.reserved for batch in made.incomplete)


@pytest.mark.parametrize("size", [1, 100, 1000, INITIAL_SIZE - 1, INITIAL_SIZE + 1, 30_000])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_batch_takes_records_up_to_batch_size(size: int, compression: str) -> None:
    made, topic = accumulator(batch_size=65_536, compression_type=compression)
    batch = filled(made, topic, bytes(size))
    assert 65_536 - size - 100 < batch.builder.size <= 65_536
    assert batch.builder.size <= batch.reserved <= 65_536


@pytest.mark.parametrize(
    ("batch_size", "ratio", "full"),
    [(65_536, 0.25, 262_144), (65_536, 0.01, COMPRESSED_AT_ONCE), (1_000_000, 0.1, 1_000_000)],
)
def test_a_batch_that_compresses_well_takes_more_records_and_the_memory_for_them(
    batch_size: int, ratio: float, full: int
) -> None:
    made, topic = accumulator(batch_size=batch_size, compression_type="lz4")
    topic.ratio = ratio
    batch = filled(made, topic, bytes(1000))
    assert full - 2000 < batch.builder.size <= full
    assert batch.builder.size <= batch.reserved <= full


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_buffer_holds_no_more_bytes_of_records_than_buffer_memory(compression: str) -> None:
    made, topic = accumulator(4, buffer_memory=1_000_000, compression_type=compression)
    topic.ratio = 0.01 if compression != "none" else 1.0
    appended = 0
    while made.append(topic, appended % 4, TIMESTAMP, None, bytes(1000), ()) is not None:
        appended += 1
    assert 500_000 < appended * 1000 < 1_000_000


def test_a_compressed_batch_keeps_only_the_memory_for_its_compressed_records() -> None:
    made, topic = accumulator(buffer_memory=4 * INITIAL_SIZE, batch_size=INITIAL_SIZE, compression_type="lz4")
    topic.ratio = 0.25
    while made.append(topic, 0, TIMESTAMP, None, bytes(1000), ()) is not None:
        pass
    (batch,) = made.incomplete
    payload = batch.encode(transactional=False)
    made.compressed(batch)
    assert batch.reserved == len(payload) < 1000
    assert made.append(topic, 0, TIMESTAMP, None, bytes(1000), ()) is not None
    for one in list(made.incomplete):
        made.release(one)
    assert made.append(topic, 0, TIMESTAMP, None, bytes(4 * INITIAL_SIZE - 200), ()) is not None, "all memory is free"


def test_a_record_larger_than_a_batch_is_a_batch() -> None:
    made, topic = accumulator(batch_size=65_536)
    for _ in range(2):
        assert made.append(topic, 0, TIMESTAMP, None, bytes(100_000), ()) is not None
    assert [batch.record_count for batch in topic.queues[0].waiting] == [1, 1]
    assert all(100_000 < batch.reserved < 100_200 for batch in topic.queues[0].waiting)


def test_many_partitions_with_a_record_each_do_not_take_batch_size_each() -> None:
    made, topic = accumulator(2000, buffer_memory=2000 * INITIAL_SIZE)
    for number in range(2000):
        assert made.append(topic, number, TIMESTAMP, None, b"value", ()) is not None
    assert used(made) == 2000 * INITIAL_SIZE
    assert made.append(topic, 0, TIMESTAMP, None, bytes(INITIAL_SIZE), ()) is None, "no memory is left"


def test_without_memory_a_batch_is_closed_at_the_size_that_it_has() -> None:
    made, topic = accumulator(buffer_memory=3 * INITIAL_SIZE, batch_size=65_536)
    appended = 0
    while made.append(topic, 0, TIMESTAMP, None, bytes(1000), ()) is not None:
        appended += 1
    first, second = topic.queues[0].waiting
    assert (first.reserved, second.reserved) == (2 * INITIAL_SIZE, INITIAL_SIZE)
    assert first.closed
    assert first.record_count + second.record_count == appended


def test_all_memory_is_free_when_all_batches_are_released() -> None:
    made, topic = accumulator(buffer_memory=10 * INITIAL_SIZE)
    while made.append(topic, 0, TIMESTAMP, None, bytes(700), ()) is not None:
        pass
    assert used(made) == 10 * INITIAL_SIZE
    for batch in list(made.incomplete):
        made.release(batch)
    while made.append(topic, 0, TIMESTAMP, None, bytes(700), ()) is not None:
        pass
    assert used(made) == 10 * INITIAL_SIZE


@pytest.mark.parametrize(("batch_size", "counts"), [(0, [1, 1, 1]), (300, [2, 1])])
def test_a_small_batch_size_is_kept_exactly(batch_size: int, counts: list[int]) -> None:
    made, topic = accumulator(batch_size=batch_size)
    for _ in range(3):
        assert made.append(topic, 0, TIMESTAMP, None, bytes(100), ()) is not None
    assert [batch.record_count for batch in topic.queues[0].waiting] == counts


def test_batches_of_a_topic_stay_below_the_size_that_its_broker_has_refused() -> None:
    made, topic = accumulator(batch_size=131_072)
    refused = filled(made, topic, bytes(1000))
    assert len(refused.encode(transactional=False)) > 130_000
    made.split(refused)
    filled(made, topic, bytes(1000))  # it was begun before
    halved = filled(made, topic, bytes(1000))
    assert 63_000 < halved.builder.size <= 65_536
    halved.encode(transactional=False)
    made.split(halved)
    filled(made, topic, bytes(1000))
    assert 31_000 < filled(made, topic, bytes(1000)).builder.size <= 32_768


def test_a_batch_with_more_records_and_headers_than_a_reader_accepts_can_be_split() -> None:
    made, topic = accumulator(batch_size=16_000_000, max_request_size=16_000_000)
    headers = (("", None),) * (MAX_RECORD_HEADERS + 1)
    for _ in range(MAX_BATCH_OBJECTS // MAX_RECORD_HEADERS + 1):
        assert made.append(topic, 0, TIMESTAMP, None, b"", headers) is not None
    (batch,) = topic.queues[0].waiting
    batch.encode(transactional=False)
    first, second = made.split(batch)
    assert first.record_count + second.record_count == batch.record_count


async def test_a_task_that_gives_up_waiting_for_memory_lets_the_next_one_have_it() -> None:
    made, topic = accumulator(buffer_memory=100_000)
    assert made.append(topic, 0, TIMESTAMP, None, bytes(60_000), ()) is not None
    first, second = asyncio.create_task(made.room(90_000)), asyncio.create_task(made.room(1000))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(10):
        made.end_turn(await second)
    assert first.cancelled()
