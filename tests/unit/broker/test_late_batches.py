"""Batches and offsets that come after their transaction was decided, while its markers are still on their way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.broker.partitions.markers import Marker, TopicPartition
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.raw_connection import RawConnection, batch

E = ErrorCode
ID = "id"


class World:
    """A broker whose markers wait for `release`, and a producer at it."""

    def __init__(self, broker: BrokerNode, wire: RawConnection) -> None:
        self.broker = broker
        self.wire = wire
        self.released = asyncio.Event()
        self.producer = (-1, -1)
        manager = broker.replica_manager
        append_markers = manager.append_markers

        async def held(markers: list[Marker]) -> list[dict[TopicPartition, ErrorCode]]:
            await self.released.wait()
            return await append_markers(markers)

        manager.append_markers = held  # type: ignore[method-assign]

    async def begin(self) -> None:
        """A transaction with one batch in partition 0, registered as older clients do."""
        await self.wire.create_topic("t", 2)
        identity = await self.wire.call(InitProducerIdRequest(ID, 60_000), 4)
        self.producer = identity.producer_id, identity.producer_epoch
        await self.add(0)
        assert await self.produce({0: 0}, 9) == {0: E.NONE}

    async def add(self, *partitions: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic("t", list(partitions))],
        )
        (answer,) = (await self.wire.call(request, 3)).results_by_topic_v3_and_below
        assert {result.partition_error_code for result in answer.results_by_partition} == {0}

    async def produce(self, sequences: dict[int, int], version: int) -> dict[int, ErrorCode]:
        """A batch of one record to each partition."""
        data = [
            PartitionProduceData(
                partition,
                batch(
                    b"%d/%d" % (partition, sequence),
                    producer_id=self.producer[0],
                    producer_epoch=self.producer[1],
                    base_sequence=sequence,
                    transactional=True,
                ),
            )
            for partition, sequence in sequences.items()
        ]
        async with RawConnection(self.broker.address) as wire:
            request = ProduceRequest(ID, -1, 30_000, [TopicProduceData(name="t", partition_data=data)])
            (answer,) = (await wire.call(request, version)).responses
        return {p.index: ErrorCode(p.error_code) for p in answer.partition_responses}

    async def end(self, version: int = 3) -> ErrorCode:
        answer = await self.wire.call(EndTxnRequest(ID, *self.producer, True), version)
        return ErrorCode(answer.error_code)

    def end_offset(self, partition: int) -> int:
        return self.broker.replica_manager.partition("t", partition).log.log_end_offset

    async def stable(self, partition: int, offset: int) -> None:
        log = self.broker.replica_manager.partition("t", partition).log
        async with asyncio.timeout(60):
            while log.last_stable_offset != offset:
                await asyncio.sleep(0.001)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with BrokerNode(num_partitions=2, logging_level="error") as broker, RawConnection(broker.address) as wire:
        made = World(broker, wire)
        await made.begin()
        yield made
        made.released.set()


@pytest.mark.parametrize("version", [3, 9, 11])
async def test_an_older_clients_batch_does_not_join_a_decided_transaction(world: World, version: int) -> None:
    assert await world.end() is E.NONE
    assert await world.produce({0: 1}, version) == {0: E.INVALID_TXN_STATE}
    world.released.set()
    await world.stable(0, 2)
    assert world.end_offset(0) == 2, "the batch and its marker"


async def test_a_batch_under_the_epoch_that_the_decision_ended_is_fenced(world: World) -> None:
    assert await world.end(5) is E.NONE
    assert await world.produce({0: 1}, 12) == {0: E.INVALID_PRODUCER_EPOCH}


async def test_a_newer_clients_batch_waits_and_begins_the_next_transaction(world: World) -> None:
    assert await world.end() is E.NONE
    waiting = asyncio.ensure_future(world.produce({0: 1, 1: 0}, 12))
    async with asyncio.timeout(60):
        while not world.broker.transaction_coordinator.waits.parked:
            await asyncio.sleep(0)
    assert world.end_offset(0) == 1
    world.released.set()
    assert await waiting == {0: E.NONE, 1: E.NONE}
    assert world.end_offset(0) == 3, "a batch, its marker, the next one"
    assert await world.end() is E.NONE
    await world.stable(0, 4)
    await world.stable(1, 2)


@pytest.mark.parametrize("version", [2, 4])
async def test_an_older_clients_offsets_do_not_join_a_decided_transaction(world: World, version: int) -> None:
    answer = await world.wire.call(AddOffsetsToTxnRequest(ID, *world.producer, "g"), 3)
    assert answer.error_code == 0
    offsets = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 5)])]
    request = TxnOffsetCommitRequest(ID, "g", *world.producer, topics=offsets)
    assert await world.end() is E.NONE
    (row,) = (await world.wire.call(request, version)).topics
    assert [p.error_code for p in row.partitions] == [E.INVALID_TXN_STATE]


async def test_the_decision_counts_from_its_append_on(world: World) -> None:
    """Whoever could still join between the decision and its flush would be part of what was decided without it."""
    coordinator = world.broker.transaction_coordinator
    where = ("t", 0)
    assert coordinator.registration.verify(ID, *world.producer, where) is E.NONE
    world.wire.send(EndTxnRequest(ID, *world.producer, True), 3)
    entry = coordinator.state.get(ID)
    assert entry is not None
    async with asyncio.timeout(60):
        while entry.pending is None and not entry.metadata.state.is_prepare:
            await asyncio.sleep(0)
    assert entry.pending is not None, "appended and not yet on disk"
    assert coordinator.registration.verify(ID, *world.producer, where) is E.CONCURRENT_TRANSACTIONS
    assert coordinator.registration.verify_all(ID, *world.producer, [where]).code_of(where) is E.CONCURRENT_TRANSACTIONS
