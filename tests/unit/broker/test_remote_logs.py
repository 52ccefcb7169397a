"""A broker over logs where nothing is at hand: opening, reads and look-ups wait for a store that is elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from oncelog.broker.log import Log
from oncelog.broker.node import BrokerNode
from oncelog.broker.partitions.partition import Partition
from oncelog.broker.scheduling.steps import Steps, waited
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.logs import values_of
from support.memory_log import MemoryLog, MemoryStore
from support.raw_connection import RawConnection, batch


class Stores:
    """The stores of all partitions; opening a log takes a turn of the event loop."""

    def __init__(self, broker: BrokerNode) -> None:
        self.broker = broker
        self.stores: dict[tuple[str, int], MemoryStore] = {}
        self.logs: list[MemoryLog] = []

    def open(self, partition: Partition) -> Steps[Log]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        loop.call_soon(answer.set_result, None)
        yield from waited(answer)
        key = (partition.topic, partition.index)
        store = self.stores.setdefault(key, MemoryStore(*key))
        topic = self.broker.metadata.topic(partition.topic)
        assert topic is not None
        config = self.broker.replica_manager.log_config(topic)
        log = MemoryLog(store, config, self.broker.clock, remote=True)
        self.logs.append(log)
        return log


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    async with BrokerNode(logging_level="error") as broker:
        yield broker


@pytest.fixture
async def stores(broker: BrokerNode) -> Stores:
    stores = Stores(broker)
    broker.replica_manager._open_log = stores.open  # type: ignore[method-assign]
    await broker.metadata.create_topic("t", 3, {})
    return stores


def produce(*partitions: int) -> ProduceRequest:
    rows = [PartitionProduceData(index, batch(b"value %d" % index)) for index in partitions]
    return ProduceRequest(None, -1, 30_000, [TopicProduceData("t", partition_data=rows)])


def fetch(*partitions: int, max_wait_ms: int = 30_000, offset: int = 0) -> FetchRequest:
    rows = [FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index in partitions]
    topics = [FetchTopic(topic="t", partitions=rows)]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_epoch=-1, topics=topics)


async def test_records_are_produced_fetched_and_looked_up(broker: BrokerNode, stores: Stores) -> None:
    async with RawConnection(broker.address) as wire:
        (answer,) = (await wire.call(produce(0, 1, 2), 9)).responses
        assert [row.error_code for row in answer.partition_responses] == [0, 0, 0]
        (topic,) = (await wire.call(fetch(0, 1, 2), 12)).responses
        values = {row.partition_index: values_of(bytes(row.records or b"")) for row in topic.partitions}
        assert values == {0: ["value 0"], 1: ["value 1"], 2: ["value 2"]}
        looks = [ListOffsetsPartition(index, -1, timestamp) for index, timestamp in ((0, -1), (1, 0))]
        (found,) = (await wire.call(ListOffsetsRequest(topics=[ListOffsetsTopic("t", looks)]), 5)).topics
        assert [(row.error_code, row.offset) for row in found.partitions] == [(0, 1), (0, 0)]
    assert all(log.reads_that_waited for log in stores.logs)


async def test_a_waiting_fetch_is_answered_when_records_come(broker: BrokerNode, stores: Stores) -> None:
    async with RawConnection(broker.address) as reader, RawConnection(broker.address) as writer:
        waiting = asyncio.ensure_future(reader.call(fetch(1, 2), 12))
        async with asyncio.timeout(60):
            while not broker.fetch_purgatory.waiting:
                await asyncio.sleep(0)
        await writer.call(produce(2), 9)
        (topic,) = (await waiting).responses
        assert {row.partition_index: bool(row.records) for row in topic.partitions} == {1: False, 2: True}


async def test_a_log_is_opened_once_however_many_need_it(broker: BrokerNode, stores: Stores) -> None:
    connections = [RawConnection(broker.address) for _ in range(5)]
    await asyncio.gather(*(wire.__aenter__() for wire in connections))
    try:
        answers = await asyncio.gather(*(wire.call(produce(0), 9) for wire in connections))
    finally:
        await asyncio.gather(*(wire.__aexit__(None, None, None) for wire in connections))
    offsets = sorted(answer.responses[0].partition_responses[0].base_offset for answer in answers)
    assert offsets == [0, 1, 2, 3, 4]
    assert len(stores.logs) == 1


async def test_a_read_that_fails_is_an_error_of_its_partition(broker: BrokerNode, stores: Stores) -> None:
    async with RawConnection(broker.address) as wire:
        await wire.call(produce(0), 9)
        (topic,) = (await wire.call(fetch(0, offset=1, max_wait_ms=0), 12)).responses
        assert topic.partitions[0].error_code == 0
        stores.stores["t", 0].log_start_offset = 1
        (topic,) = (await wire.call(fetch(0, max_wait_ms=0), 12)).responses
        assert topic.partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_broker_whose_partition_has_a_new_owner_says_so(broker: BrokerNode, stores: Stores) -> None:
    async with RawConnection(broker.address) as wire:
        await wire.call(produce(0), 9)
        stores.stores["t", 0].owner_epoch = 7
        (answer,) = (await wire.call(produce(0), 9)).responses
        assert answer.partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stores.stores["t", 0].log_end_offset == 1
