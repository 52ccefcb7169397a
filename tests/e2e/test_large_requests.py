"""Large requests are executed a few at a time, in order, and small ones never wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from oncelog.broker.api.handling import Deferred, HandledApi, RequestContext
from oncelog.broker.log.at_hand import AT_ONCE_BYTES
from oncelog.broker.node import BrokerNode
from oncelog.broker.scheduling.steps import SLICE, Steps
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponsePartition
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.new_objects import new_objects
from support.raw_connection import RawConnection, batch

pytestmark = pytest.mark.oncelog_only(reason="looks into this broker")

MEGABYTE = 1_000_000
PARTITIONS = 10_000
METADATA = MetadataRequest(None)
"""A small request for a large answer."""


@contextlib.asynccontextmanager
async def broker(**settings: Any) -> AsyncIterator[BrokerNode]:
    """A broker with one wide topic."""
    async with BrokerNode(durability="os", logging_level="error", **settings) as running:
        async with RawConnection(running.address) as wire:
            topic = CreatableTopic("wide", PARTITIONS, 1)
            made = await wire.call(CreateTopicsRequest([topic], 10_000), 7)
            assert made.topics[0].error_code == 0
        yield running


class LongRequests:
    """Stands where the handler of DescribeGroups does: each request is large, and waits until it is released."""

    def __init__(self, broker: BrokerNode, deferred: bool = False) -> None:
        self.begun: list[str | None] = []
        self.deferred = deferred
        self.released = asyncio.Event()
        spec = DescribeGroupsRequest.spec
        broker.dispatcher._apis[spec.key] = HandledApi(DescribeGroupsRequest, spec.stable, self.handle)

    def handle(self, context: RequestContext, request: DescribeGroupsRequest) -> Steps[Any]:
        yield SLICE
        self.begun.append(context.client_id)
        context.rows(SLICE + 1)
        return Deferred(self._answer()) if self.deferred else self._answer()

    async def _answer(self) -> DescribeGroupsResponse:
        await self.released.wait()
        return DescribeGroupsResponse()

    async def until_begun(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.begun) < count:
                await asyncio.sleep(0)


async def answered(wire: RawConnection, calls: int = 20) -> None:
    """Have small requests answered, so that the broker has had as many turns."""
    for _ in range(calls):
        await wire.call(ApiVersionsRequest(), 2)


async def test_few_large_answers_are_half_made_at_one_time() -> None:
    peers, slots, rows = 10, 2, 0
    async with broker(max_concurrent_large_requests=slots) as running, contextlib.AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(RawConnection(running.address)) for _ in range(peers)]
        other = await stack.enter_async_context(RawConnection(running.address))
        for wire in wires:
            wire.send(METADATA, 12)
        answers = [asyncio.ensure_future(wire.receive_bytes()) for wire in wires]
        with new_objects() as alive:
            while not all(answer.done() for answer in answers):
                await other.call(ApiVersionsRequest(), 2)
                rows = max(rows, len(alive(MetadataResponsePartition)))
        assert len({len(await answer) for answer in answers}) == 1
    assert SLICE < rows <= slots * PARTITIONS + peers * 2 * SLICE


async def test_a_large_answer_to_a_fetch_is_freed_when_it_is_sent() -> None:
    """It is read in a thread. A cycle of references would keep its megabytes until the next garbage collection."""
    async with BrokerNode(durability="os", logging_level="error") as running, RawConnection(running.address) as wire:
        for _ in range(AT_ONCE_BYTES // MEGABYTE + 1):
            while (await wire.produce("t", batch(bytes(MEGABYTE)))).error_code:
                await wire.create_topic("t")
        topics = [FetchTopic("t", partitions=[FetchPartition(0, -1, 0, partition_max_bytes=8 * MEGABYTE)])]
        gc.disable()
        try:
            with new_objects() as alive:
                for _ in range(3):
                    wire.send(FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=8 * MEGABYTE, topics=topics), 11)
                    assert len(await wire.receive_bytes()) > AT_ONCE_BYTES
                await answered(wire)
                assert not alive(PartitionData)
        finally:
            gc.enable()


async def test_large_requests_are_executed_in_the_order_in_which_they_came() -> None:
    async with broker(max_concurrent_large_requests=1) as running, contextlib.AsyncExitStack() as stack:
        long = LongRequests(running)
        names = [f"c-{number}" for number in range(6)]
        wires = [await stack.enter_async_context(RawConnection(running.address, name)) for name in names]
        other = await stack.enter_async_context(RawConnection(running.address))
        for wire in wires:
            wire.send(DescribeGroupsRequest(["g"]), 5)
            await answered(other)
        assert long.begun == names[:1]
        long.released.set()
        for wire in wires:
            await wire.receive(DescribeGroupsRequest, 5)
        assert long.begun == names


async def test_a_request_whose_connection_closes_gives_up_its_place() -> None:
    async with broker(max_concurrent_large_requests=1) as running, RawConnection(running.address) as other:
        long = LongRequests(running)
        async with (
            RawConnection(running.address, "first") as first,
            RawConnection(running.address, "gone") as gone,
            RawConnection(running.address, "last") as last,
        ):
            for wire in (first, gone, last):
                wire.send(DescribeGroupsRequest(["g"]), 5)
                await answered(other)
            gone.close()
            first.close()
            await long.until_begun(2)
            long.released.set()
            await last.receive(DescribeGroupsRequest, 5)
        assert long.begun == ["first", "last"]


async def test_a_peer_that_does_not_read_its_large_answer_keeps_no_slot() -> None:
    frame = b"".join(encode_request(METADATA, 12, 1, "deaf"))
    async with broker(max_concurrent_large_requests=1, connection_write_buffer_bytes=65536) as running:
        host, _, port = running.address.rpartition(":")
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            await asyncio.get_running_loop().sock_connect(deaf, (host, int(port)))
            await asyncio.get_running_loop().sock_sendall(deaf, frame * 30)
            async with RawConnection(running.address) as wire:
                for _ in range(3):
                    assert any(len(topic.partitions) == PARTITIONS for topic in (await wire.call(METADATA, 12)).topics)


async def test_a_large_request_whose_answer_is_deferred_keeps_no_slot() -> None:
    async with broker(max_concurrent_large_requests=1) as running, RawConnection(running.address, "first") as first:
        long = LongRequests(running, deferred=True)
        first.send(DescribeGroupsRequest(["g"]), 5)
        async with RawConnection(running.address, "second") as second:
            second.send(DescribeGroupsRequest(["g"]), 5)
            await long.until_begun(2)
            long.released.set()
            for wire in (first, second):
                await wire.receive(DescribeGroupsRequest, 5)


async def test_requests_behind_a_large_one_without_an_answer_are_answered() -> None:
    data = [PartitionProduceData(0, batch(b"x"))] * 5000
    quiet = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[TopicProduceData("wide", partition_data=data)])
    async with broker() as running, RawConnection(running.address) as wire:
        wire.send(quiet, 9)
        assert (await wire.call(ApiVersionsRequest(), 2)).error_code == 0


def large_commit(name: str, who: tuple[int, int]) -> TxnOffsetCommitRequest:
    """It is decoded in slices, but leaves room in a connection's buffer, so that a close is noticed."""
    rows = [TxnOffsetCommitRequestPartition(index, 1) for index in range(600)]
    return TxnOffsetCommitRequest(name, "group", *who, topics=[TxnOffsetCommitRequestTopic("wide", rows)])


class EndlessTransactions:
    """Transactions that are decided and never complete, because no marker is written until `released`."""

    def __init__(self, broker: BrokerNode, wire: RawConnection) -> None:
        self.released = asyncio.Event()
        self.wire = wire
        append_markers = broker.replica_manager.append_markers

        async def held(markers: list[Any]) -> Any:
            await self.released.wait()
            return await append_markers(markers)

        broker.replica_manager.append_markers = held  # type: ignore[method-assign]

    async def begin(self, name: str) -> tuple[int, int]:
        made = await self.wire.call(InitProducerIdRequest(name, 60_000), 4)
        who = made.producer_id, made.producer_epoch
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic("wide", [0])],
        )
        await self.wire.call(add, 3)
        assert (await self.wire.call(EndTxnRequest(name, *who, True), 3)).error_code == 0
        return who


async def codes(wire: RawConnection) -> set[int]:
    """The codes of the next answer, which is one to `large_commit`."""
    _, answer = await wire.receive(TxnOffsetCommitRequest, 5)
    return {row.error_code for row in answer.topics[0].partitions}


async def test_a_large_request_that_waits_for_a_transaction_keeps_no_slot() -> None:
    """Any client can have as many such requests as it likes; what is not complete may stay so for long."""
    settings = {"max_concurrent_large_requests": 1, "transaction_pending_wait_max_ms": 100_000}
    async with broker(**settings) as running, RawConnection(running.address) as wire:
        endless = EndlessTransactions(running, wire)
        who = await endless.begin("a")
        async with RawConnection(running.address) as first, RawConnection(running.address) as second:
            first.send(large_commit("a", who), 5)
            await answered(wire)
            async with asyncio.timeout(60):
                await wire.call(METADATA, 12)
            second.send(large_commit("a", who), 5)
            async with asyncio.timeout(60):
                refused = await codes(second)
            assert refused == {ErrorCode.CONCURRENT_TRANSACTIONS}, "as many wait already as there are slots"
            endless.released.set()
            assert await codes(first) == {0}


async def test_a_large_request_that_waits_and_goes_away_gives_up_its_place() -> None:
    settings = {"max_concurrent_large_requests": 1, "transaction_pending_wait_max_ms": 100_000}
    async with broker(**settings) as running, RawConnection(running.address) as wire:
        endless = EndlessTransactions(running, wire)
        who = await endless.begin("a")
        for _ in range(3):
            async with RawConnection(running.address) as gone:
                gone.send(large_commit("a", who), 5)
                await answered(wire)
            async with asyncio.timeout(60):
                assert running._listeners is not None
                while running._listeners.first.connection_count > 1:
                    await asyncio.sleep(0)
        async with RawConnection(running.address) as last:
            last.send(large_commit("a", who), 5)
            await answered(wire)
            endless.released.set()
            assert await codes(last) == {0}
        async with asyncio.timeout(60):
            await wire.call(METADATA, 12)
