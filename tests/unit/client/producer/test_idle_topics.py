"""Topics that got no records for metadata.max.idle.ms are forgotten, but not while a record waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from oncelog.client.config import ProducerConfig
from oncelog.client.metadata import ClusterMetadata, TopicMetadata
from oncelog.client.producer.accumulator import INITIAL_SIZE, RecordAccumulator
from oncelog.client.producer.batch import Delivery
from oncelog.client.producer.placement import RecordPlacement
from support.scripted_cluster import known_topic
from support.virtual_time import VirtualTimeLoop

IDLE_S = 5.0


class SlowCluster:
    """A cluster whose topics are known when `learned` has a result. A topic is looked up a few times at most.

    Each topic has `partitions` partitions. `on_refresh` is called with the result of a refresh.
    """

    def __init__(self) -> None:
        self.learned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.look_ups = 0
        self.partitions = 1
        self.on_refresh: Callable[[ClusterMetadata], None]

    async def topic(self, name: str, timeout_s: float) -> TopicMetadata:
        self.look_ups += 1
        assert self.look_ups < 10, "the topic is looked up again and again"
        await self.learned
        return known_topic(name, self.partitions)

    def request_refresh(self) -> None:
        pass

    async def refresh(self, topics: Iterable[str]) -> None:
        self.on_refresh(ClusterMetadata(topics={name: known_topic(name, self.partitions) for name in topics}))

    def untrack(self, topics: Iterable[str]) -> None:
        pass


class Records:
    """The placement of records of a producer without idempotence."""

    def __init__(self) -> None:
        self.cluster = SlowCluster()
        cluster: Any = self.cluster
        config = ProducerConfig.of(
            enable_idempotence=False,
            metadata_max_idle_ms=int(IDLE_S * 1000),
            buffer_memory=2 * INITIAL_SIZE,
            batch_size=INITIAL_SIZE,
        )
        self.accumulator = RecordAccumulator(config, asyncio.get_running_loop().time, lambda: None)
        self.placement = RecordPlacement(config, cluster, self.accumulator, lambda: None)
        self.placement.open = True
        self.cluster.on_refresh = self.placement.on_metadata

    def send(self, topic: str, value: bytes) -> Delivery:
        arguments = (topic, value, None, None, None, ())
        return self.placement.append(*arguments) or self.placement.hold(*arguments)

    def enqueue(self, topic: str, value: bytes, partition: int | None = None) -> asyncio.Task[Delivery]:
        return asyncio.create_task(self.placement.append_waiting(topic, value, None, partition, None, ()))

    async def become_idle(self) -> None:
        """Let all topics be idle for long enough, and bring a snapshot that says nothing about them."""
        await asyncio.sleep(IDLE_S + 1)
        self.placement.on_metadata(ClusterMetadata())

    def deliver(self, topic: str) -> None:
        """Take the topic's batches off the queue, as if the broker had taken them."""
        for batch in [one for one in self.accumulator.incomplete if one.topic == topic]:
            self.accumulator.topics[topic].queues[0].waiting.remove(batch)
            self.accumulator.release(batch)

    def appended(self, topic: str) -> int:
        return sum(batch.record_count for batch in self.accumulator.incomplete if batch.topic == topic)


def run(test: Callable[[Records], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Records())

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main())


def test_a_record_whose_topic_is_learned_late_is_appended() -> None:
    async def test(records: Records) -> None:
        enqueued = records.enqueue("t", b"1")
        await records.become_idle()
        records.cluster.learned.set_result(None)
        await enqueued
        assert records.appended("t") == 1

    run(test)


def test_a_record_sent_while_another_waits_for_its_topic_is_appended() -> None:
    async def test(records: Records) -> None:
        enqueued = records.enqueue("t", b"1")
        await records.become_idle()
        records.send("t", b"2")
        records.cluster.learned.set_result(None)
        await enqueued
        assert records.appended("t") == 2

    run(test)


def test_a_record_that_has_waited_for_memory_is_appended() -> None:
    async def test(records: Records) -> None:
        records.cluster.learned.set_result(None)
        await records.enqueue("t", b"1")
        records.deliver("t")
        for _ in range(2):
            await records.enqueue("full", bytes(INITIAL_SIZE - 200))
        enqueued = records.enqueue("t", b"2")
        await records.become_idle()
        records.accumulator.release(next(iter(records.accumulator.incomplete)))
        await enqueued
        assert records.appended("t") == 1

    run(test)


def test_a_record_whose_topic_is_forgotten_by_the_question_for_its_partition_is_appended() -> None:
    async def test(records: Records) -> None:
        records.cluster.learned.set_result(None)
        await records.enqueue("t", b"1")
        records.deliver("t")
        await asyncio.sleep(IDLE_S + 1)
        records.cluster.partitions = 3
        await records.enqueue("t", b"2", partition=2)
        assert [batch.partition for batch in records.accumulator.incomplete] == [2]
        assert records.cluster.look_ups == 2, "the topic was forgotten"

    run(test)


def test_an_idle_topic_is_forgotten() -> None:
    async def test(records: Records) -> None:
        records.cluster.learned.set_result(None)
        await records.enqueue("used", b"1")
        await records.enqueue("idle", b"1")
        records.deliver("idle")
        await records.become_idle()
        assert [*records.accumulator.topics] == ["used"]

    run(test)
