"""Transactions whose steps are cancelled or lose their answers: the state afterwards says what may have happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from oncelog.client.errors import (
    AbortableError,
    CommitUnknownError,
    ConcurrentProducerCommitError,
    FatalError,
    KafkaError,
    error_for,
)
from oncelog.client.producer.transaction import Transaction
from oncelog.client.producer.transaction_state import State
from oncelog.client.values import ConsumerGroupMetadata
from oncelog.protocol.errors import CONCURRENT_PRODUCER_COMMIT, ErrorCode
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from support.scripted_cluster import LOST, TOPIC, World, in_world, offsets_answered, produced


def run(test: Callable[[World], Awaitable[None]], version: int) -> None:
    async def in_transaction(world: World) -> None:
        await world.begin()
        await test(world)

    in_world(in_transaction, version)


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


def test_partitions_are_added_although_the_task_that_adds_them_is_cancelled_before_it_runs() -> None:
    async def test(world: World) -> None:
        world.append(b"1")
        while not world.tasks:
            await asyncio.sleep(0)
        for task in world.tasks:
            task.cancel()
        request, _ = await world.cluster.next(AddPartitionsToTxnRequest)
        assert [topic.name for topic in request.v3_and_below_topics] == [TOPIC]

    run(test, 1)


@pytest.mark.parametrize("repeated_by", ["the client", "the program"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_that_the_coordinator_refuses_after_a_lost_response_can_be_aborted(
    version: int, repeated_by: str
) -> None:
    async def test(world: World) -> None:
        world.manager.started = True
        transaction = world.manager.current
        committing = asyncio.create_task(world.transactions.commit())
        _, answer = await world.cluster.next(EndTxnRequest)
        if repeated_by == "the program":
            world.cluster.away = True
        answer.set_exception(LOST)
        if repeated_by == "the program":
            with pytest.raises(CommitUnknownError):
                await committing
            world.cluster.away = False
            committing = asyncio.create_task(world.transactions.commit())
        # The broker refuses so only while the transaction is open.
        await world.cluster.answer(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.TRANSACTION_ABORTABLE))
        with pytest.raises(AbortableError):
            await committing
        assert not transaction.may_be_committed
        aborting = asyncio.create_task(world.transactions.abort())
        request = await world.cluster.answer(EndTxnRequest, EndTxnResponse(producer_id=7, producer_epoch=1))
        assert not request.committed
        await aborting
        assert world.manager.state is State.READY

    run(test, version)


EVENTS: dict[str, Callable[[World], object]] = {
    "a request fails": lambda world: world.manager.fail_abortable(ErrorCode.UNKNOWN_MEMBER_ID),
    "a batch fails": lambda world: world.manager.batch_failed(error_for(ErrorCode.INVALID_RECORD, "bad")),
    "a batch is not permitted": lambda world: world.manager.batch_failed(
        error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    ),
    "the producer is fenced": lambda world: world.manager.fail_fatal(ErrorCode.PRODUCER_FENCED),
    "the sender crashes": lambda world: world.manager.crashed(FatalError(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug")),
    "the producer is initialised again": lambda world: world.spawn(world.transactions.init(), "init"),
    "the transaction is aborted": lambda world: world.spawn(world.transactions.abort(), "abort"),
    "the commit is repeated": lambda world: world.spawn(world.transactions.commit(), "commit"),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("step", ["records are in flight", "EndTxn is sent", "EndTxn is sent again"])
@pytest.mark.parametrize("version", [1, 2])
def test_whatever_happens_during_a_commit_its_result_is_that_of_the_coordinator(
    version: int, step: str, event: str
) -> None:
    async def test(world: World) -> None:
        world.manager.registered_now({(TOPIC, 0)})
        world.append(b"1")
        transaction = world.manager.current
        commit = asyncio.create_task(world.transactions.commit())
        _, written = await world.cluster.next(ProduceRequest)
        if step == "records are in flight":
            EVENTS[event](world)
            await asyncio.sleep(0)
        written.set_result(produced())
        if step == "EndTxn is sent again":
            _, answer = await world.cluster.next(EndTxnRequest)
            world.cluster.away = True
            answer.set_exception(LOST)
            with pytest.raises(CommitUnknownError):
                await commit
            world.cluster.away = False
            commit = asyncio.create_task(world.transactions.commit())
        await asyncio.sleep(0.1)
        if world.cluster.asked:
            request, answer = await world.cluster.next(EndTxnRequest)
            assert request.committed
            if step != "records are in flight":
                EVENTS[event](world)
                await asyncio.sleep(0.1)
            answer.set_result(EndTxnResponse(producer_id=7, producer_epoch=1))
            await commit
            assert transaction.is_committed
            with pytest.raises(KafkaError):
                await world.transactions.abort()
        else:
            with pytest.raises(KafkaError):
                await commit
            assert not transaction.is_committed
        failures = [task.exception() for task in world.tasks if task.done() and not task.cancelled()]
        assert all(isinstance(failure, KafkaError | None) for failure in failures)

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
        assert world.manager.state.name == "IN_TRANSACTION"

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


def test_a_transaction_whose_offsets_another_producer_has_taken_over_ends_with_the_producer() -> None:
    async def test(world: World) -> None:
        task = asyncio.create_task(world.transactions.send_offsets({(TOPIC, 0): 5}, ConsumerGroupMetadata("g")))
        request, answer = await world.cluster.next(TxnOffsetCommitRequest)
        answer.set_result(offsets_answered(request, CONCURRENT_PRODUCER_COMMIT))
        with pytest.raises(ConcurrentProducerCommitError):
            await task
        closing = asyncio.create_task(world.transactions.abandon())
        request = await world.cluster.answer(EndTxnRequest, EndTxnResponse(producer_id=7, producer_epoch=1))
        assert not request.committed
        await closing

    run(test, 2)
