"""Transactions whose steps are cancelled or lose their answers: the state afterwards says what may have happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from oncelog.client.backoff import ExponentialBackoff
from oncelog.client.config import ProducerConfig
from oncelog.client.connection import ConnectionOptions
from oncelog.client.errors import AbortableError, CommitUnknownError, NetworkError
from oncelog.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from oncelog.client.producer.accumulator import RecordAccumulator
from oncelog.client.producer.sender import Sender
from oncelog.client.producer.transaction import Transaction
from oncelog.client.producer.transaction_state import State
from oncelog.client.producer.transaction_steps import Transactions
from oncelog.client.values import ConsumerGroupMetadata
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from support.virtual_time import VirtualTimeLoop

LOST = NetworkError(ErrorCode.NETWORK_EXCEPTION, "the answer was lost")
TOPIC = "t"


class ScriptedCluster:
    """One node that never answers by itself: requests wait in `asked` for the test to decide what becomes of them."""

    def __init__(self, transaction_version: int) -> None:
        self.asked: list[tuple[Any, asyncio.Future[Any]]] = []
        self.arrived = asyncio.Event()
        self.away = False
        self.metadata = ClusterMetadata()
        self.retry_backoff = ExponentialBackoff(100, 1000, lambda: 0.5)
        self.config = ProducerConfig.of({"transactional.id": "x"})
        self.options = ConnectionOptions(client_id="c")
        self.finalized_features = {"transaction.version": transaction_version}
        self.extension_aware = False
        self.is_closed = False

    def known_coordinator(self, key_type: object, key: str) -> int:
        return 0

    async def coordinator(self, key_type: object, key: str, timeout_s: float) -> int:
        return 0

    def forget_coordinator(self, key_type: object, key: str) -> None:
        pass

    def track(self, topics: object) -> None:
        pass

    def request_refresh(self) -> None:
        pass

    def leader_of(self, partition: tuple[str, int]) -> int:
        return 0

    def open_connection(self, node_id: int, channel: str = "") -> ScriptedCluster | None:
        return None if self.away else self

    async def connection(self, node_id: int, channel: str = "") -> ScriptedCluster:
        if self.away:
            raise LOST
        return self

    def version_of(self, request: type[Any], at_most: int = 32767) -> int:
        return min(at_most, request.spec.stable.high)

    def supports(self, request: type[Any], version: int) -> bool:
        return True

    def send(self, request: Any, version: int, timeout_s: float | None = None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append((request, future))
        self.arrived.set()
        return future

    async def next(self, kind: type[Any]) -> tuple[Any, asyncio.Future[Any]]:
        """Wait for the next request, which has to be of this kind."""
        while not self.asked:
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), 1000)
        request, future = self.asked.pop(0)
        assert isinstance(request, kind)
        return request, future


class World:
    """A transactional producer's parts above a scripted cluster."""

    def __init__(self, version: int) -> None:
        loop = asyncio.get_running_loop()
        self.cluster = ScriptedCluster(version)
        self.tasks: set[asyncio.Task[Any]] = set()
        config = ProducerConfig.of({"transactional.id": "x", "linger.ms": 0, "max.block.ms": 5000})
        cluster: Any = self.cluster
        self.accumulator = RecordAccumulator(config, loop.time, lambda: self.sender.wake())
        self.transactions = Transactions(config, cluster, self.accumulator, self.spawn)
        self.manager = self.transactions.manager
        self.sender = Sender(config, cluster, self.accumulator, self.manager, self.spawn)
        self.transactions.use(self.sender)
        known = TopicMetadata(TOPIC, bytes(16), ErrorCode.NONE, False, (PartitionMetadata(0, 0, 0),))
        self.topic = self.accumulator.use_topic(known)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def begin(self) -> None:
        task = asyncio.create_task(self.transactions.init())
        _, answer = await self.cluster.next(InitProducerIdRequest)
        answer.set_result(InitProducerIdResponse(producer_id=7, producer_epoch=0))
        await task
        self.manager.begin()

    def append(self, *values: bytes) -> None:
        for value in values:
            assert self.accumulator.append(self.topic, 0, 0, None, value, ()) is not None

    async def close(self) -> None:
        self.sender.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def run(test: Callable[[World], Awaitable[None]], version: int) -> None:
    async def main() -> None:
        world = World(version)
        try:
            await world.begin()
            await test(world)
        finally:
            await world.close()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main())


def produced(code: ErrorCode) -> ProduceResponse:
    return ProduceResponse([TopicProduceResponse(TOPIC, partition_responses=[PartitionProduceResponse(0, code, 0)])])


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_commit_stays_unknown_while_the_coordinator_is_away(version: int) -> None:
    async def test(world: World) -> None:
        world.manager.started = True
        task = asyncio.create_task(world.transactions.commit())
        _, answer = await world.cluster.next(EndTxnRequest)
        world.cluster.away = True
        answer.set_exception(LOST)
        with pytest.raises(CommitUnknownError):
            await task
        # Not even the connection can be made: that says nothing of the decision that was sent before.
        with pytest.raises(CommitUnknownError):
            await world.transactions.commit()
        assert world.manager.state is State.COMMIT_UNKNOWN

    run(test, version)


def test_a_producer_fenced_after_an_unknown_commit_does_not_know_its_result() -> None:
    async def test(world: World) -> None:
        world.manager.started = True
        task = asyncio.create_task(world.transactions.commit())
        await world.cluster.next(EndTxnRequest)
        await cancelled(task)
        assert world.manager.state is State.COMMIT_UNKNOWN
        task = asyncio.create_task(world.transactions.commit())
        _, answer = await world.cluster.next(EndTxnRequest)
        answer.set_result(EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED))
        with pytest.raises(CommitUnknownError) as caught:
            await task
        assert not caught.value.can_ask_again

    run(test, 2)


def test_a_block_cancelled_while_its_last_records_travel_is_aborted() -> None:
    async def test(world: World) -> None:
        producer: Any = None

        async def block() -> None:
            async with Transaction(producer, world.transactions):
                world.append(b"1")

        world.manager.become(State.COMMITTING_TRANSACTION)
        world.manager.finished()
        task = asyncio.create_task(block())
        _, written = await world.cluster.next(ProduceRequest)
        task.cancel()
        await asyncio.sleep(1)
        written.set_result(produced(ErrorCode.NONE))
        request, answer = await world.cluster.next(EndTxnRequest)
        assert not request.committed
        answer.set_result(EndTxnResponse(producer_id=7, producer_epoch=1))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert world.manager.state is State.READY

    run(test, 2)


def test_an_abort_cancelled_while_it_waits_for_a_new_epoch_goes_on_from_there() -> None:
    async def test(world: World) -> None:
        world.manager.started = world.manager.epoch_bump_needed = True
        task = asyncio.create_task(world.transactions.abort())
        _, answer = await world.cluster.next(EndTxnRequest)
        answer.set_result(EndTxnResponse())
        await world.cluster.next(InitProducerIdRequest)
        await cancelled(task)
        # The epoch may have been raised: another EndTxn of the old one would be fenced.
        task = asyncio.create_task(world.transactions.abort())
        request, answer = await world.cluster.next(InitProducerIdRequest)
        assert (request.producer_id, request.producer_epoch) == (7, 0)
        answer.set_result(InitProducerIdResponse(producer_id=7, producer_epoch=1))
        await task
        assert world.manager.state is State.READY

    run(test, 1)


def test_a_batch_given_up_before_does_not_fail_the_next_transaction() -> None:
    async def test(world: World) -> None:
        world.append(b"1")
        _, late = await world.cluster.next(ProduceRequest)
        await asyncio.sleep(world.cluster.config.delivery_timeout_s + 1)
        assert world.manager.state is State.ABORTABLE_ERROR
        task = asyncio.create_task(world.transactions.abort())
        await asyncio.sleep(1)
        assert not world.cluster.asked, "an abort waits for what is in flight"
        late.set_exception(LOST)
        _, answer = await world.cluster.next(EndTxnRequest)
        answer.set_result(EndTxnResponse(producer_id=7, producer_epoch=1))
        await task
        world.manager.begin()
        await asyncio.sleep(1)
        assert world.manager.state is State.IN_TRANSACTION

    run(test, 2)


def test_an_abort_does_not_wait_for_a_batch_that_was_too_large() -> None:
    async def test(world: World) -> None:
        world.append(b"1", b"2")
        _, refused = await world.cluster.next(ProduceRequest)
        began = asyncio.get_running_loop().time()
        task = asyncio.create_task(world.transactions.abort())
        await asyncio.sleep(0.1)
        refused.set_result(produced(ErrorCode.MESSAGE_TOO_LARGE))
        _, answer = await world.cluster.next(EndTxnRequest)
        assert asyncio.get_running_loop().time() - began < 1
        answer.set_result(EndTxnResponse(producer_id=7, producer_epoch=1))
        await task

    run(test, 2)


def test_offsets_whose_fate_is_unknown_cannot_join_the_next_transaction() -> None:
    async def test(world: World) -> None:
        world.manager.started = True

        async def only_the_offsets(group_id: str) -> None:
            pass

        world.transactions._calls.add_offsets = only_the_offsets  # type: ignore[method-assign]
        task = asyncio.create_task(world.transactions.send_offsets({(TOPIC, 0): 5}, ConsumerGroupMetadata("g")))
        await world.cluster.next(TxnOffsetCommitRequest)
        await cancelled(task)
        task = asyncio.create_task(world.transactions.abort())
        _, answer = await world.cluster.next(EndTxnRequest)
        answer.set_result(EndTxnResponse())
        # With transaction.version 1 the epoch stays: only a new one keeps the late offsets out.
        _, answer = await world.cluster.next(InitProducerIdRequest)
        answer.set_result(InitProducerIdResponse(producer_id=7, producer_epoch=1))
        await task

    run(test, 1)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_commit_waits_for_offsets_that_are_under_way(code: ErrorCode) -> None:
    async def test(world: World) -> None:
        offsets = asyncio.create_task(world.transactions.send_offsets({(TOPIC, 0): 5}, ConsumerGroupMetadata("g")))
        request, answer = await world.cluster.next(TxnOffsetCommitRequest)
        task = asyncio.create_task(world.transactions.commit())
        await asyncio.sleep(1)
        assert not world.cluster.asked, "the transaction was decided without its offsets"
        answer.set_result(offsets_answered(request, code))
        if code:
            with pytest.raises(AbortableError):
                await offsets
            with pytest.raises(AbortableError):
                await task
            return
        await offsets
        _, answer = await world.cluster.next(EndTxnRequest)
        answer.set_result(EndTxnResponse(producer_id=7, producer_epoch=1))
        await task

    run(test, 2)


def offsets_answered(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    from oncelog.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitResponsePartition,
        TxnOffsetCommitResponseTopic,
    )

    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name, [TxnOffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )
