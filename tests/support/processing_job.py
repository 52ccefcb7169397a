"""Create two topics with numbers in one of them, run processors between them, and check the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from oncelog import Admin, Consumer, ConsumerRecord, Processor, Producer
from oncelog.client.admin import NewTopic
from oncelog.client.processor import ProcessorTransaction

Names = Callable[[str], str]
PARTITIONS = 3
WAIT_S = 30.0


class Job:
    """A copy of `source` to `target`, partition by partition. `extra` topics are created beside them."""

    def __init__(self, bootstrap: str, fresh_name: Names) -> None:
        self.bootstrap = bootstrap
        self.source, self.target = fresh_name("source"), fresh_name("target")
        self.group = fresh_name("group")
        self.fresh_name = fresh_name
        self.dead = ""

    async def create(self, *extra: str) -> None:
        async with Admin(bootstrap_servers=self.bootstrap) as admin:
            await admin.create_topics([NewTopic(name, PARTITIONS) for name in (self.source, self.target, *extra)])

    async def create_source(self) -> None:
        async with Admin(bootstrap_servers=self.bootstrap) as admin:
            await admin.create_topics([NewTopic(self.source, PARTITIONS)])

    async def fill(self, numbers: Iterable[int]) -> None:
        async with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number in numbers:
                await producer.enqueue(self.source, b"%d" % number, partition=number % PARTITIONS)
            await producer.flush()

    def copy(self, records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for record in records:
            transaction.send(self.target, record.value, partition=record.partition)

    def processor(self, transactional_id: str | None = None, **options: Any) -> Processor:
        settings: dict[str, object] = {
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 10_000,
            **options.pop("consumer_settings", {}),
        }
        if "process" not in options and "transform" not in options:
            options["process"] = self.copy
        return Processor(
            bootstrap_servers=self.bootstrap,
            topics=[self.source],
            group_id=self.group,
            transactional_id=transactional_id or self.fresh_name("transactional"),
            max_batch_ms=options.pop("max_batch_ms", 20),
            consumer_settings=settings,
            **options,
        )

    async def until_committed(self, total: int) -> None:
        """Wait until the group has committed `total` offsets."""
        async with Admin(bootstrap_servers=self.bootstrap) as admin, asyncio.timeout(WAIT_S):
            while True:
                offsets = await admin.group_offsets(self.group)
                if sum(position.offset for position in offsets.values()) >= total:
                    return
                await asyncio.sleep(0.01)

    async def _until_decided(self) -> None:
        """Wait until no transaction is open: Kafka confirms a commit before its markers are in every partition."""
        partitions = [(self.target, index) for index in range(PARTITIONS)]
        client = {"bootstrap.servers": self.bootstrap}
        async with (
            Consumer(client, isolation_level="read_committed") as stable,
            Consumer(client, isolation_level="read_uncommitted") as written,
            asyncio.timeout(WAIT_S),
        ):
            while await stable.end_offsets(partitions) != await written.end_offsets(partitions):
                await asyncio.sleep(0.01)

    async def result(self) -> list[list[int]]:
        """Return the numbers that a read_committed reader sees, per partition."""
        await self._until_decided()
        async with Consumer(
            bootstrap_servers=self.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            partitions = [(self.target, index) for index in range(PARTITIONS)]
            consumer.assign(partitions)
            found: list[list[int]] = [[] for _ in partitions]
            async with asyncio.timeout(WAIT_S):
                while sum([await consumer.lag(partition) for partition in partitions]):
                    for record in await consumer.poll(1000):
                        assert record.value is not None
                        found[record.partition].append(int(record.value))
            return found

    async def copies(self, count: int, **settings: Any) -> list[ConsumerRecord[Any, Any]]:
        """Return the first `count` records in partition 0 of `target` that a read_committed reader sees."""
        async with Consumer(bootstrap_servers=self.bootstrap, isolation_level="read_committed", **settings) as consumer:
            consumer.assign([(self.target, 0)])
            await consumer.seek_to_beginning()
            async with asyncio.timeout(WAIT_S):
                return [await anext(consumer) for _ in range(count)]

    async def check(self, total: int) -> None:
        """Check that every number is there once, and in order."""
        assert await self.result() == [list(range(index, total, PARTITIONS)) for index in range(PARTITIONS)]


async def stop(processor: Processor, running: asyncio.Task[None]) -> None:
    processor.stop()
    async with asyncio.timeout(WAIT_S):
        await running


def make_copier(
    number: int, *, bootstrap: str, source: str, target: str, group: str, group_aware: object = True, poison: str = ""
) -> Processor:
    """Return a processor that copies partition by partition, and fails on the value `poison`.

    This is a factory for worker processes.
    """

    def copy(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for record in records:
            if record.value == poison.encode():
                raise ValueError(f"{poison} cannot be processed")
            transaction.send(target, record.value, partition=record.partition)

    return Processor(
        bootstrap_servers=bootstrap,
        topics=[source],
        group_id=group,
        transactional_id=f"{group}-{number}",
        process=copy,
        max_batch_ms=20,
        max_batch_records=50,
        consumer_group_aware_transaction=group_aware,  # type: ignore[arg-type]
        consumer_settings={"heartbeat_interval_ms": 200, "session_timeout_ms": 6000},
        producer_settings={"transaction_timeout_ms": 6000},
    )


def make_nothing(number: int) -> None:
    """Return None: a factory that makes no processor."""


class Unclosable:
    """Has a processor's methods, except `__aexit__`."""

    async def __aenter__(self) -> None: ...
    async def run(self) -> None: ...
    def stop(self) -> None: ...


def make_unclosable(number: int) -> Unclosable:
    """Return an object that can be started, but not closed."""
    return Unclosable()
