"""Groups in which our consumer and stock clients are members together, whoever of them leads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka import Consumer as ConfluentConsumer
from oncelog import Admin, Consumer, Producer

Names = Callable[[str], str]
PARTITIONS = 6
WAIT_S = 40.0

AIOKAFKA = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Shares:
    """Who has which partitions, and what was read, of all members together."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.assigned: dict[str, set[int]] = {}
        self.values: list[bytes] = []
        self.events: list[str] = []
        """What happened, for the message of a failure: who was assigned what, and who read what, when."""
        self._began = time.monotonic()

    @property
    def even(self) -> bool:
        shares = list(self.assigned.values())
        every = set().union(*shares)
        return len(every) == sum(map(len, shares)) == PARTITIONS and max(map(len, shares)) - min(map(len, shares)) <= 1

    def read(self, who: str, records: Sequence[tuple[int, int, bytes]]) -> None:
        """Add the (partition, offset, value) of records that a member got in one call."""
        if records:
            self.values.extend(value for _, _, value in records)
            first: dict[int, int] = {}
            for partition, offset, _ in records:
                first.setdefault(partition, offset)
            self.note(f"{who} read {len(records)} records, of each partition from {first}")

    def assign(self, who: str, partitions: set[int]) -> None:
        if self.assigned.get(who) != partitions:
            self.assigned[who] = partitions
            self.note(f"{who} has {sorted(partitions)}")

    def note(self, event: str) -> None:
        self.events.append(f"{time.monotonic() - self._began:7.3f} {event}")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.02)


@asynccontextmanager
async def ours(bootstrap: str, shares: Shares, group: str, strategy: str, name: str = "ours") -> AsyncIterator[None]:
    shares.assigned[name] = set()

    async def run(consumer: Consumer) -> None:
        while True:
            records = await consumer.poll(50)
            assert all(record.value is not None for record in records)
            shares.read(name, [(record.partition, record.offset, record.value or b"") for record in records])
            shares.assign(name, {one.partition for one in consumer.assignment()})

    async with Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        topics=[shares.topic],
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=10_000,
        partition_assignment_strategy=strategy,
    ) as consumer:
        task = asyncio.create_task(run(consumer))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            del shares.assigned[name]


@asynccontextmanager
async def aiokafka(bootstrap: str, shares: Shares, group: str, strategy: str) -> AsyncIterator[None]:
    shares.assigned["aiokafka"] = set()
    consumer = AIOKafkaConsumer(
        shares.topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=10_000,
        partition_assignment_strategy=(AIOKAFKA[strategy],),
    )

    async def run() -> None:
        while True:
            for records in (await consumer.getmany(timeout_ms=50)).values():
                shares.read("aiokafka", [(record.partition, record.offset, record.value or b"") for record in records])
            shares.assign("aiokafka", {one.partition for one in consumer.assignment()})

    await consumer.start()
    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await consumer.stop()
        del shares.assigned["aiokafka"]


@asynccontextmanager
async def confluent(bootstrap: str, shares: Shares, group: str, strategy: str) -> AsyncIterator[None]:
    shares.assigned["confluent"] = set()
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 10_000,
            "partition.assignment.strategy": strategy,
        }
    )
    consumer.subscribe([shares.topic], on_lost=lambda _, lost: shares.note(f"confluent lost {lost}"))
    stopped = threading.Event()

    def run() -> None:
        while not stopped.is_set():
            messages = consumer.consume(500, 0.05)
            assert all(message.error() is None for message in messages)
            shares.read(
                "confluent", [(one.partition() or 0, one.offset() or 0, one.value() or b"") for one in messages]
            )
            shares.assign("confluent", {one.partition for one in consumer.assignment()})
        consumer.close()

    running = asyncio.create_task(asyncio.to_thread(run))
    try:
        yield
    finally:
        stopped.set()
        await running
        del shares.assigned["confluent"]


MIXES = [
    (aiokafka, "range"),
    (aiokafka, "roundrobin"),
    (aiokafka, "sticky"),
    (confluent, "range"),
    (confluent, "roundrobin"),
    (confluent, "cooperative-sticky"),
]


async def fill(bootstrap: str, topic: str, start: int, end: int) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(start, end):
            await producer.enqueue(topic, b"%d" % number, partition=number % PARTITIONS)
        await producer.flush()


@pytest.mark.parametrize("first", ["ours", "theirs"])
@pytest.mark.parametrize(("theirs", "strategy"), MIXES, ids=[f"{who.__name__}-{name}" for who, name in MIXES])
async def test_a_mixed_group_shares_evenly_and_reads_everything_once(
    bootstrap: str,
    fresh_name: Names,
    theirs: Callable[..., AbstractAsyncContextManager[None]],
    strategy: str,
    first: str,
) -> None:
    topic, group = fresh_name("topic"), fresh_name("group")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(topic, PARTITIONS)
    shares = Shares(topic)
    leader, follower = (ours, theirs) if first == "ours" else (theirs, ours)
    async with leader(bootstrap, shares, group, strategy):
        await shares.until(lambda: shares.even)
        # The first reads before the other joins. If an answer to ListOffsets reaches librdkafka after the partition was
        # revoked, it asks again as soon as it has the partition back, and ignores the committed offset.
        await fill(bootstrap, topic, 0, 60)
        await shares.until(lambda: len(shares.values) >= 60)
        async with follower(bootstrap, shares, group, strategy):
            await shares.until(lambda: shares.even)
            await fill(bootstrap, topic, 60, 300)
            await shares.until(lambda: len(shares.values) >= 300)
        await shares.until(lambda: shares.even)
        await fill(bootstrap, topic, 300, 600)
        await shares.until(lambda: len(shares.values) >= 600)
    assert sorted(map(int, shares.values)) == list(range(600)), "\n".join(shares.events)
