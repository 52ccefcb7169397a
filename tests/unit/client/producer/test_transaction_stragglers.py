"""What is left over of a failed or ended transaction: it keeps nobody busy, and gets into no other transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from oncelog.client.config import ProducerConfig
from oncelog.client.errors import AuthorizationError, IllegalStateError, UnknownTopicError, error_for
from oncelog.client.metadata import TopicMetadata
from oncelog.client.producer.placement import RecordPlacement
from oncelog.client.producer.transaction import Transaction
from oncelog.client.producer.transaction_state import State
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.produce import ProduceRequest
from support.scripted_cluster import TOPIC, World, in_world, known_topic, produced


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.PRODUCER_FENCED, State.FATAL_ERROR),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, State.ABORTABLE_ERROR),
    ],
)
def test_a_partition_that_could_not_be_added_is_not_tried_without_end(code: ErrorCode, state: State) -> None:
    async def test(world: World) -> None:
        await world.begin()
        tasks: list[str] = []
        spawn = world.spawn

        def counted(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
            tasks.append(name)
            return spawn(work, name)

        world.transactions._spawn = counted
        world.append(b"1")
        result = AddPartitionsToTxnTopicResult(TOPIC, [AddPartitionsToTxnPartitionResult(0, code)])
        await world.cluster.answer(
            AddPartitionsToTxnRequest, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[result])
        )
        for _ in range(200):
            await asyncio.sleep(0)
        assert world.manager.state is state
        assert tasks == ["add partitions to the transaction"]

    in_world(test, 1)


class Records:
    """What a producer does with records, above the parts of a World."""

    def __init__(self, world: World) -> None:
        cluster: Any = world.cluster
        config: ProducerConfig = world.transactions._config
        self.placement = RecordPlacement(config, cluster, world.accumulator, lambda: None)
        self.placement.open = True
        self.placement.transactions = world.transactions

    def send(self, topic: str, value: Any = None, **more: Any) -> Any:
        return self.placement.append(topic, value, None, 0, None, ())

    async def enqueue(self, topic: str, value: Any = None, **more: Any) -> Any:
        delivery = self.send(topic, value)
        return delivery or await self.placement.append_waiting(topic, value, None, 0, None, ())


def test_a_record_that_waited_for_its_topic_does_not_get_into_the_next_transaction() -> None:
    async def test(world: World) -> None:
        await world.init()
        records = Records(world)
        learned: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def topic(name: str, timeout_s: float) -> TopicMetadata:
            await learned
            return known_topic(name, 1)

        world.cluster.topic = topic  # type: ignore[method-assign]
        await world.transactions.begin()
        straggler = asyncio.create_task(records.enqueue("new", b"1"))
        await asyncio.sleep(1)
        await world.transactions.abort()
        await world.transactions.begin()
        learned.set_result(None)
        with pytest.raises(IllegalStateError, match="has ended"):
            await straggler
        assert not world.accumulator.incomplete
        await records.placement.close()

    in_world(test, 2)


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
@pytest.mark.parametrize("answered", [False, True])
def test_a_record_whose_topic_cannot_be_looked_up_leaves_a_commit_alone(code: ErrorCode, answered: bool) -> None:
    async def test(world: World) -> None:
        await world.init()
        records: Any = Records(world)
        learned: asyncio.Future[TopicMetadata] = asyncio.get_running_loop().create_future()

        async def topic(name: str, timeout_s: float) -> TopicMetadata:
            return await learned

        world.cluster.topic = topic  # type: ignore[method-assign]

        async def block() -> asyncio.Task[Any]:
            async with Transaction(records, world.transactions) as transaction:
                world.append(b"1")
                waiting = asyncio.create_task(transaction.enqueue("secret", b"2"))
                await asyncio.sleep(0)
            return waiting

        blocked = asyncio.create_task(block())
        await world.cluster.answer(ProduceRequest, produced())
        _, ended = await world.cluster.next(EndTxnRequest)
        if answered:
            ended.set_result(EndTxnResponse(producer_id=7, producer_epoch=1))
            await blocked
        assert not learned.done()
        learned.set_exception(error_for(code, "not permitted"))
        await asyncio.sleep(1)
        if not answered:
            ended.set_result(EndTxnResponse(producer_id=7, producer_epoch=1))
        straggler = await blocked
        with pytest.raises(AuthorizationError):
            await straggler
        assert world.manager.state is State.READY
        with pytest.raises(IllegalStateError):
            await world.transactions.abort()
        await records.placement.close()

    in_world(test, 2)


def test_a_block_that_is_over_takes_nothing_for_the_next_one() -> None:
    async def test(world: World) -> None:
        await world.init()
        records: Any = Records(world)
        first = Transaction(records, world.transactions)
        async with first:
            pass
        async with Transaction(records, world.transactions):
            for late in (
                lambda: first.enqueue(TOPIC, b"late"),
                lambda: first.send_offsets({(TOPIC, 0): 1}),
                lambda: first.abort(),
            ):
                with pytest.raises(IllegalStateError, match="has ended"):
                    await late()
            with pytest.raises(IllegalStateError, match="has ended"):
                first.send(TOPIC, b"late")
            assert world.manager.state is State.IN_TRANSACTION
            # Nor does leaving the first block once more end the second one.
            await first.__aexit__(None, None, None)
            assert world.manager.state is State.IN_TRANSACTION

    in_world(test, 2)


@pytest.mark.parametrize("how", ["send", "enqueue"])
def test_a_missing_topic_of_an_aborted_transaction_does_not_shorten_the_look_up_of_the_next_one(how: str) -> None:
    async def topic(name: str, timeout_s: float) -> TopicMetadata:
        await asyncio.sleep(timeout_s)
        raise UnknownTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "missing")

    async def test(world: World) -> None:
        cluster: Any = world.cluster
        cluster.topic = topic
        config = ProducerConfig.of({"max.block.ms": 5000, "transactional.id": "x"})
        placement = RecordPlacement(config, cluster, world.accumulator, lambda: None)
        placement.open, placement.transactions = True, world.transactions
        await world.begin()
        placement.hold("missing", b"1", None, None, None, ())
        await asyncio.sleep(4)
        await world.transactions.abort()
        world.manager.begin()
        begun = asyncio.get_running_loop().time()
        record = ("missing", b"2", None, None, None, ())
        waiting = placement.hold(*record) if how == "send" else placement.append_waiting(*record)
        with pytest.raises(UnknownTopicError):
            await waiting
        assert asyncio.get_running_loop().time() - begun == pytest.approx(5)
        await placement.close()

    in_world(test, 2)
