"""Fetches that wait for data: what they look at must never be felt by who writes it."""

from __future__ import annotations

import asyncio
from typing import Any

from oncelog.broker.log import CorruptLog, PartitionLog
from oncelog.broker.log.results import storage_error
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.raw_connection import RawConnection, batch

E = ErrorCode


def fetch(topic: str, *partitions: int) -> FetchRequest:
    wanted = [FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1 << 20) for p in partitions]
    return FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )


async def produce(wire: RawConnection, topic: str, partition: int) -> int:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, batch(b"x"))])
    (answer,) = (await wire.call(ProduceRequest(None, -1, 30_000, [data]), 9)).responses
    return int(answer.partition_responses[0].error_code)


def damage(broker: BrokerNode, topic: str, partition: int) -> PartitionLog:
    """Make every look into the partition's files find damage."""

    def broken(*_: object) -> None:
        raise CorruptLog("00000000000000000000.log", 0, 0, "damaged on purpose")

    log = broker.replica_manager.partition(topic, partition).log
    assert isinstance(log, PartitionLog)
    reader: Any = log.reader
    reader.read = reader.bytes_between = broken
    return log


async def test_damage_that_a_waiting_fetch_finds_does_not_fail_the_writers() -> None:
    async with (
        BrokerNode(logging_level="error") as broker,
        RawConnection(broker.address) as writer,
        RawConnection(broker.address) as reader,
    ):
        await writer.create_topic("t", 2)
        assert [await produce(writer, "t", partition) for partition in (0, 1)] == [0, 0]
        waiting = asyncio.ensure_future(reader.call(fetch("t", 0, 1), 12))
        async with asyncio.timeout(60):
            while not broker.fetch_purgatory.waiting:
                await asyncio.sleep(0)

        damaged = damage(broker, "t", 0)
        assert await produce(writer, "t", 1) == 0
        assert not damaged.failure, "only the partition that moved is looked at"
        assert await produce(writer, "t", 0) == 0, "appended and answered"
        (answer,) = (await waiting).responses
        codes = {p.partition_index: p.error_code for p in answer.partitions}
        assert codes == {0: E.KAFKA_STORAGE_ERROR, 1: 0}
        assert await produce(writer, "t", 0) == E.KAFKA_STORAGE_ERROR


async def test_a_fetch_waits_at_the_end_of_a_partition_that_takes_no_writes() -> None:
    """Answered at once with nothing, a consumer asks again at once, and again."""
    async with (
        BrokerNode(logging_level="error") as broker,
        RawConnection(broker.address) as writer,
        RawConnection(broker.address) as reader,
    ):
        await writer.create_topic("t", 2)
        assert [await produce(writer, "t", partition) for partition in (0, 1)] == [0, 0]
        broker.replica_manager.partition("t", 0).log.fail(storage_error("failed on purpose"))  # type: ignore[attr-defined]
        request = fetch("t", 0, 1)
        request.min_bytes = 1
        for partition in request.topics[0].partitions:
            partition.fetch_offset = 1
        waiting = asyncio.ensure_future(reader.call(request, 12))
        async with asyncio.timeout(60):
            while not broker.fetch_purgatory.waiting:
                assert not waiting.done()
                await asyncio.sleep(0)
        assert await produce(writer, "t", 1) == 0
        (answer,) = (await waiting).responses
        assert {p.partition_index: (p.error_code, bool(p.records)) for p in answer.partitions} == {
            0: (0, False),
            1: (0, True),
        }


async def test_a_fetch_that_waits_at_the_end_of_a_partition_without_writes_ends_when_it_is_deleted() -> None:
    async with (
        BrokerNode(logging_level="error") as broker,
        RawConnection(broker.address) as writer,
        RawConnection(broker.address) as reader,
    ):
        await writer.create_topic("t")
        assert await produce(writer, "t", 0) == 0
        log = broker.replica_manager.partition("t", 0).log
        log.fail(storage_error("failed on purpose"))  # type: ignore[attr-defined]
        request = fetch("t", 0)
        request.topics[0].partitions[0].fetch_offset = 1
        waiting = asyncio.ensure_future(reader.call(request, 12))
        async with asyncio.timeout(60):
            while not broker.fetch_purgatory.waiting:
                assert not waiting.done()
                await asyncio.sleep(0)
            log.discard()  # type: ignore[attr-defined]
            (answer,) = (await waiting).responses
        assert answer.partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_damaged_partition_does_not_keep_a_fetch_from_the_others() -> None:
    async with BrokerNode(logging_level="error") as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", 2)
        assert [await produce(wire, "t", partition) for partition in (0, 1)] == [0, 0]
        damage(broker, "t", 0)
        (answer,) = (await wire.call(fetch("t", 0, 1), 12)).responses
        codes = {p.partition_index: p.error_code for p in answer.partitions}
        assert codes == {0: E.KAFKA_STORAGE_ERROR, 1: 0}
