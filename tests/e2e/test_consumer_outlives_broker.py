"""Consumers and processors through kill -9 of the broker: they go on by themselves, and lose and double nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast

import pytest
from oncelog import Admin, Consumer, ConsumerRecord, Processor, Producer
from oncelog.client.admin import NewTopic
from oncelog.client.processor import ProcessorTransaction

WAIT_S = 60.0
PARTITIONS = 3


class Killable(Protocol):
    """Either broker."""

    address: str

    def kill9(self) -> None: ...

    def start(self) -> object: ...


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killable]:
    if request.config.getoption("--kafka"):
        from support.apache_kafka import ApacheKafka

        with ApacheKafka(tmp_path) as kafka:
            yield cast(Killable, kafka)
        return
    from support.broker import BrokerProcess

    with BrokerProcess(tmp_path) as broker:
        yield cast(Killable, broker)


async def crash(broker: Killable) -> None:
    await asyncio.to_thread(broker.kill9)
    await asyncio.to_thread(broker.start)


async def fill(producer: Producer, topic: str, start: int, end: int) -> None:
    for number in range(start, end):
        await producer.enqueue(topic, b"%d" % number, partition=number % PARTITIONS)
    await producer.flush()


async def test_a_member_goes_on_where_it_was(broker: Killable) -> None:
    # First, and alone: a subscribed consumer that asks for the topic would have it made automatically.
    async with Admin(bootstrap_servers=broker.address) as admin:
        await admin.create_topic("topic", PARTITIONS)
    async with (
        Producer(bootstrap_servers=broker.address) as producer,
        Consumer(
            bootstrap_servers=broker.address,
            group_id="group",
            topics=["topic"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=30_000,
        ) as consumer,
    ):
        values: list[int] = []

        async def read(until: int) -> None:
            async with asyncio.timeout(WAIT_S):
                while len(values) < until:
                    values.extend(int(record.value) for record in await consumer.poll(1000) if record.value)

        await fill(producer, "topic", 0, 300)
        await read(300)
        await consumer.commit()
        member = consumer.group_metadata()
        for start in (300, 600):
            await crash(broker)
            await fill(producer, "topic", start, start + 300)
            await read(start + 300)
            await consumer.commit()
        assert sorted(values) == list(range(900))
        assert consumer.group_metadata().generation_id >= member.generation_id
        committed = await consumer.committed(*consumer.assignment())
        assert sum(one.offset for one in committed.values() if one) == 900


async def test_processors_stay_exactly_once(broker: Killable) -> None:
    total = 6000

    def copy(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for record in records:
            transaction.send("target", record.value, partition=record.partition)

    def worker(name: str) -> Processor:
        return Processor(
            bootstrap_servers=broker.address,
            topics=["source"],
            group_id="group",
            transactional_id=name,
            process=copy,
            max_batch_records=50,
            max_batch_ms=10,
            consumer_settings={
                "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 200,
                "session_timeout_ms": 6000,
            },
            producer_settings={"transaction_timeout_ms": 5000},
        )

    async with (
        Admin(bootstrap_servers=broker.address) as admin,
        Producer(bootstrap_servers=broker.address) as producer,
    ):
        await admin.create_topics([NewTopic("source", PARTITIONS), NewTopic("target", PARTITIONS)])

        async def committed() -> int:
            offsets = await admin.group_offsets("group")
            return sum(position.offset for position in offsets.values())

        async def until(count: int) -> None:
            async with asyncio.timeout(WAIT_S):
                while await committed() < count:
                    for task in running:
                        if task.done():
                            task.result()
                    await asyncio.sleep(0.01)

        async with worker("one") as one, worker("two") as two:
            running = [asyncio.create_task(one.run()), asyncio.create_task(two.run())]
            await fill(producer, "source", 0, total // 3)
            await until(100)
            await crash(broker)
            await fill(producer, "source", total // 3, 2 * total // 3)
            await until(total // 3 + 100)
            await crash(broker)
            await fill(producer, "source", 2 * total // 3, total)
            await until(total)
            for processor in (one, two):
                processor.stop()
            async with asyncio.timeout(WAIT_S):
                await asyncio.gather(*running)
        async with Consumer(
            bootstrap_servers=broker.address, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            partitions = [("target", index) for index in range(PARTITIONS)]
            consumer.assign(partitions)
            found: list[list[int]] = [[] for _ in partitions]
            async with asyncio.timeout(WAIT_S):
                while sum([await consumer.lag(partition) for partition in partitions]):
                    for record in await consumer.poll(1000):
                        assert record.value is not None
                        found[record.partition].append(int(record.value))
        assert found == [list(range(index, total, PARTITIONS)) for index in range(PARTITIONS)]
