"""Producer, consumer, processor and pool with serializers and deserializers, and what becomes of what they refuse."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import oncelog.sync
import pytest
from oncelog import (
    Consumer,
    ConsumerRecord,
    DataclassSerde,
    DeserializationError,
    JsonSerde,
    OutputRecord,
    Producer,
    SerializationError,
    StringSerde,
    TopicPartition,
    TransactionalProducerPool,
)
from support.processing_job import PARTITIONS, Job, Names, stop
from support.reading import make_topic, values

Fresh = Callable[[str], str]


@dataclass
class Order:
    item: str
    count: int


def reader(bootstrap: str, topic: str, **settings: Any) -> Consumer[str, Order]:
    return Consumer(
        bootstrap_servers=bootstrap,
        topics=[topic],
        auto_offset_reset="earliest",
        key_deserializer=StringSerde(),
        value_deserializer=DataclassSerde(Order),
        **settings,
    )


async def read(consumer: Consumer[Any, Any], count: int) -> list[ConsumerRecord[Any, Any]]:
    found: list[ConsumerRecord[Any, Any]] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += await consumer.poll(1000)
    return found


async def test_objects_arrive_as_they_were_sent(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    orders = [Order("apples", 42), None, Order("pears", 7)]
    async with Producer(
        bootstrap_servers=bootstrap, key_serializer=StringSerde(), value_serializer=DataclassSerde(Order)
    ) as producer:
        await producer.send(topic, orders[0], key="alice")
        await producer.enqueue(topic, orders[1], key="bob")
        await producer.enqueue(topic, orders[2])
    async with reader(bootstrap, topic, group_id=fresh_name("group")) as consumer:
        records = await read(consumer, 3)
    assert [(record.key, record.value) for record in records] == list(zip(("alice", "bob", None), orders, strict=True))
    assert [record.raw.key for record in records] == [b"alice", b"bob", None]
    assert records[0].raw.value == b'{"item":"apples","count":42}'
    copy = pickle.loads(pickle.dumps(records[0]))
    assert (copy.value, copy.raw.value) == (orders[0], records[0].raw.value)
    async with reader(bootstrap, topic, group_id=fresh_name("group")) as consumer:
        one_by_one = [await anext(consumer) for _ in range(3)]
    assert [record.value for record in one_by_one] == orders


async def test_functions_do_as_serializers(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(
        {"bootstrap.servers": bootstrap, "value.serializer": lambda value: json.dumps(value).encode()}
    ) as producer:
        await producer.send(topic, {"count": 42}, key=b"raw")  # type: ignore[arg-type] # the mapping has no types
    async with Consumer(bootstrap_servers=bootstrap, value_deserializer=json.loads) as consumer:
        consumer.assign([(topic, 0)])
        await consumer.seek_to_beginning()
        (record,) = await read(consumer, 1)
    assert (record.key, record.value) == (b"raw", {"count": 42})


async def test_a_value_that_cannot_be_serialized_is_refused_by_the_call_and_not_sent(
    bootstrap: str, fresh_name: Fresh
) -> None:
    topic, wrong = make_topic(bootstrap, fresh_name("topic")), Order("apples", 42)
    async with Producer(bootstrap_servers=bootstrap, value_serializer=StringSerde()) as producer:
        for unknown in (fresh_name("not-yet-known"), topic):
            with pytest.raises(SerializationError, match=f"value .*{unknown}.*StringSerde.*expected str, not Order"):
                producer.send(unknown, wrong)  # type: ignore[arg-type]
            with pytest.raises(SerializationError):
                await producer.enqueue(unknown, wrong)  # type: ignore[arg-type]
        await producer.send(topic, "right")
    assert values(bootstrap, topic) == [b"right"]


async def test_a_value_that_cannot_be_serialized_leaves_the_transaction_open(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with (
        Producer(
            bootstrap_servers=bootstrap, transactional_id=fresh_name("id"), value_serializer=StringSerde()
        ) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(topic, "one")
        with pytest.raises(SerializationError):
            transaction.send(topic, b"two")  # type: ignore[arg-type]
        await transaction.enqueue(topic, "three")
    assert values(bootstrap, topic) == [b"one", b"three"]


async def test_a_pool_passes_its_serializers_on(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with (
        TransactionalProducerPool(
            bootstrap_servers=bootstrap, prefix=fresh_name("pool"), value_serializer=JsonSerde()
        ) as pool,
        pool.transaction() as transaction,
    ):
        transaction.send(topic, [1])
    assert values(bootstrap, topic) == [b"[1]"]


GOOD = b'{"item":"apples","count":%d}'


async def bad_among_good(bootstrap: str, topic: str, count: int, bad: int, partition: int = 0) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            await producer.enqueue(topic, b"bad" if number == bad else GOOD % number, partition=partition)


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_a_record_that_cannot_be_deserialized_holds_the_position_until_it_is_skipped(
    bootstrap: str, fresh_name: Fresh, one_by_one: bool
) -> None:
    topic, group = make_topic(bootstrap, fresh_name("topic")), fresh_name("group")
    await bad_among_good(bootstrap, topic, 6, 3)

    async def next_records(consumer: Consumer[str, Order]) -> list[ConsumerRecord[str, Order]]:
        async with asyncio.timeout(30):
            if one_by_one:
                return [await anext(consumer)]
            while not (found := await consumer.poll(1000)):
                pass
            return found

    counts: list[int] = []
    async with reader(bootstrap, topic, group_id=group) as consumer:
        while len(counts) < 3:
            counts += [record.value.count for record in await next_records(consumer) if record.value]
        for _ in range(3):
            with pytest.raises(DeserializationError) as raised:
                await next_records(consumer)
            assert await consumer.position((topic, 0)) == 3
    error = raised.value
    assert (error.partition, error.offset, error.next_offset, error.part) == (TopicPartition(topic, 0), 3, 4, "value")
    assert (error.record.value, error.record.offset) == (b"bad", 3)
    assert f"the value of {topic}-0 at offset 3 cannot be deserialized by DataclassSerde" in str(error)
    assert "seek() to offset 4" in str(error)
    assert isinstance(error.__cause__, ValueError)
    async with reader(bootstrap, topic, group_id=group) as consumer:  # committed up to the bad record, not beyond
        with pytest.raises(DeserializationError):
            await next_records(consumer)
        consumer.seek(error.partition, error.next_offset)
        while len(counts) < 5:
            counts += [record.value.count for record in await next_records(consumer) if record.value]
    assert counts == [0, 1, 2, 4, 5]


async def test_other_partitions_are_read_beside_a_record_that_cannot_be_deserialized(
    bootstrap: str, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), partitions=2)
    await bad_among_good(bootstrap, topic, 3, 1, partition=0)
    await bad_among_good(bootstrap, topic, 3, -1, partition=1)
    seen: list[tuple[int, int]] = []
    async with reader(bootstrap, topic, group_id=fresh_name("group")) as consumer, asyncio.timeout(30):
        while len(seen) < 5:
            try:
                seen += [(record.partition, record.offset) for record in await consumer.poll(1000)]
            except DeserializationError as error:
                consumer.seek(error.partition, error.next_offset)
    assert sorted(seen) == [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2)]


async def test_a_deserializer_may_make_something_of_null(bootstrap: str, fresh_name: Fresh) -> None:
    class OrNothing:
        handles_null = True

        def deserialize(self, topic: str, data: bytes | None) -> str:
            return "nothing" if data is None else data.decode()

    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send(topic, None)
    async with Consumer(bootstrap_servers=bootstrap, value_deserializer=OrNothing()) as consumer:
        consumer.assign([(topic, 0)])
        await consumer.seek_to_beginning()
        (record,) = await read(consumer, 1)
    assert (record.key, record.value) == (None, "nothing")


# -- the processor


@pytest.fixture
async def job(bootstrap: str, fresh_name: Names) -> Job:
    job = Job(bootstrap, fresh_name)
    job.dead = fresh_name("dead")
    await job.create(job.dead)
    return job


def as_number(data: bytes) -> int:
    return int(data)


def from_number(number: int) -> bytes:
    return b"%d" % number


@pytest.mark.parametrize("group_aware", [True, False], ids=["group-aware", "per-partition"])
async def test_a_processor_reads_and_writes_objects(job: Job, group_aware: bool) -> None:
    await job.fill(range(30))

    def transform(record: ConsumerRecord[bytes, int]) -> list[OutputRecord[bytes, int]] | None:
        assert record.value is not None
        kept = record.value + 100
        return [OutputRecord(job.target, kept, partition=record.partition)] if record.value % 2 else None

    async with job.processor(
        transform=transform,
        value_deserializer=as_number,
        value_serializer=from_number,
        consumer_group_aware_transaction=group_aware,
    ) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(30)
        await stop(processor, running)
    assert await job.result() == [[n + 100 for n in range(p, 30, PARTITIONS) if n % 2] for p in range(PARTITIONS)]


@pytest.mark.parametrize("kind", ["process", "transform"])
async def test_records_that_cannot_be_deserialized_go_to_the_dead_letters_as_they_are(job: Job, kind: str) -> None:
    await job.fill(range(9))
    async with Producer(bootstrap_servers=job.bootstrap) as producer:
        await producer.send(job.source, b"no number", key=b"key", partition=1)
        await producer.send(job.source, b"9", partition=1)

    def transform(record: ConsumerRecord[bytes, int]) -> list[OutputRecord[bytes, int]]:
        if record.value == 4:
            raise ValueError("four")
        return [OutputRecord(job.target, record.value, partition=record.partition)]

    def process(records: list[ConsumerRecord[bytes, int]], transaction: Any) -> None:
        for record in records:
            for output in transform(record):
                transaction.send(*output)

    functions: dict[str, Any] = {"process": process, "transform": transform}
    async with job.processor(
        dead_letter_topic=job.dead,
        value_deserializer=as_number,
        value_serializer=from_number,
        **{kind: functions[kind]},
    ) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(11)
        await stop(processor, running)
        assert processor.metrics.dead_letters == 2
    assert await job.result() == [[0, 3, 6], [1, 7, 9], [2, 5, 8]]
    letters = [letter for partition in range(PARTITIONS) for letter in await dead_letters(job, partition)]
    assert sorted((letter.key or b"", letter.value) for letter in letters) == [(b"", b"4"), (b"key", b"no number")]
    errors = {letter.value: dict(letter.headers)["__oncelog.errors.exception"] for letter in letters}
    assert errors[b"no number"] == b"oncelog.client.consumer.errors.DeserializationError"
    assert errors[b"4"] == b"ValueError"


async def dead_letters(job: Job, partition: int) -> list[ConsumerRecord]:
    async with Consumer(bootstrap_servers=job.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([(job.dead, partition)])
        await consumer.seek_to_beginning()
        found: list[ConsumerRecord] = []
        async with asyncio.timeout(30):
            while await consumer.lag((job.dead, partition)):
                found += await consumer.poll(1000)
        return found


async def test_without_dead_letters_a_processor_stops_before_a_record_that_it_cannot_read(job: Job) -> None:
    async with Producer(bootstrap_servers=job.bootstrap) as producer:
        await producer.send(job.source, b"no number", partition=1)
    attempts: list[bytes] = []

    def as_number(data: bytes) -> int:
        attempts.append(data)
        return int(data)

    async with job.processor(value_deserializer=as_number, value_serializer=from_number) as processor:
        with pytest.raises(DeserializationError, match=f"{job.source}-1 at offset 0.*as_number") as raised:
            await processor.run()
    assert any("dead_letter_topic" in note for note in raised.value.__notes__)
    assert attempts == [b"no number"]
    assert await job.result() == [[], [], []]


async def test_output_that_cannot_be_serialized_makes_its_input_a_dead_letter(job: Job) -> None:
    await job.fill(range(9))

    def process(records: list[ConsumerRecord], transaction: Any) -> None:
        for record in records:
            value = record.value.decode() if record.value and record.value != b"5" else 5
            transaction.send(job.target, value, partition=record.partition)

    async with job.processor(dead_letter_topic=job.dead, process=process, value_serializer=StringSerde()) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(9)
        await stop(processor, running)
    assert await job.result() == [[0, 3, 6], [1, 4, 7], [2, 8]]
    assert [letter.value for letter in await dead_letters(job, 2)] + [
        letter.value for partition in (0, 1) for letter in await dead_letters(job, partition)
    ] == [b"5"]


# -- the blocking clients


async def test_the_blocking_clients_have_serializers_too(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))

    def work() -> None:
        with oncelog.sync.Producer(
            bootstrap_servers=bootstrap, key_serializer=StringSerde(), value_serializer=DataclassSerde(Order)
        ) as producer:
            producer.send(topic, Order("apples", 42), key="alice").result()
            with pytest.raises(SerializationError, match="expected Order, not str"):
                producer.send(topic, "apples")  # type: ignore[arg-type]
        with oncelog.sync.Producer(bootstrap_servers=bootstrap) as producer:
            producer.send(topic, b"bad")
        with oncelog.sync.Consumer(
            bootstrap_servers=bootstrap,
            topics=[topic],
            group_id=fresh_name("group"),
            auto_offset_reset="earliest",
            key_deserializer=StringSerde(),
            value_deserializer=DataclassSerde(Order),
        ) as consumer:
            record = next(consumer)
            assert (record.key, record.value) == ("alice", Order("apples", 42))
            with pytest.raises(DeserializationError) as raised:
                next(consumer)
            assert raised.value.record.value == b"bad"

    await asyncio.to_thread(work)
