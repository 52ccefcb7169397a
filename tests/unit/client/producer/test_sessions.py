"""What EndTxn names as written, and transactions that are bound to partitions (transaction extension)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog.client.cluster import MISSING_TOPIC_ATTEMPTS
from oncelog.client.errors import (
    AbortableError,
    CommitUnknownError,
    PartitionNotRegisteredError,
    UnknownPartitionError,
)
from oncelog.client.producer.transaction import Transaction
from oncelog.client.producer.transaction_state import State
from oncelog.client.values import ConsumerGroupMetadata
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal_topics import OFFSETS_TOPIC, partition_for_key
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse, EndTxnTopic
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from oncelog.protocol.records import read_batch_header
from support.scripted_cluster import LOST, OFFSETS_PARTITIONS, TOPIC, World, in_world, offsets_answered, produced

GROUP = ConsumerGroupMetadata("g")
NEXT = EndTxnResponse(producer_id=7, producer_epoch=1)


async def write(world: World, partition: int = 0) -> ProduceRequest:
    world.append(b"x", partition=partition)
    request: ProduceRequest = await world.cluster.answer(ProduceRequest, produced(partition=partition))
    return request


async def end(world: World, commit: bool, response: EndTxnResponse = NEXT) -> EndTxnRequest:
    task = asyncio.create_task(world.transactions.commit() if commit else world.transactions.abort())
    request: EndTxnRequest = await world.cluster.answer(EndTxnRequest, response)
    await task
    return request


async def send_offsets(world: World, code: int = 0) -> None:
    task = asyncio.create_task(world.transactions.send_offsets({("in", 0): 5}, GROUP))
    request, answer = await world.cluster.next(TxnOffsetCommitRequest)
    answer.set_result(offsets_answered(request, code))
    await task


def registered(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name, [AddPartitionsToTxnPartitionResult(index, 0) for index in topic.partitions]
            )
            for topic in request.v3_and_below_topics
        ]
    )


async def begin(world: World, *partitions: tuple[str, int]) -> AddPartitionsToTxnRequest:
    task = asyncio.create_task(world.transactions.begin(partitions))
    request, answer = await world.cluster.next(AddPartitionsToTxnRequest)
    answer.set_result(registered(request))
    await task
    assert isinstance(request, AddPartitionsToTxnRequest)
    return request


@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_that_the_coordinator_does_not_know_is_named(version: int) -> None:
    async def test(world: World) -> None:
        await world.init()
        task = asyncio.create_task(world.transactions.begin([(TOPIC, 0), (TOPIC, 2)]))
        for _ in range(MISSING_TOPIC_ATTEMPTS):
            request, answer = await world.cluster.next(AddPartitionsToTxnRequest)
            response = registered(request)
            row = response.results_by_topic_v3_and_below[0].results_by_partition[1]
            row.partition_error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.set_result(response)
        with pytest.raises(AbortableError, match=f"AddPartitionsToTxn: {TOPIC}-2 does not exist"):
            await task

    in_world(test, version, group_aware=version - 1)


def test_what_the_coordinator_leaves_out_does_not_belong_to_the_transaction() -> None:
    async def partitions(world: World) -> None:
        await world.init()
        task = asyncio.create_task(world.transactions.begin([(TOPIC, 0)]))
        await world.cluster.answer(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse())
        with pytest.raises(AbortableError, match=f"AddPartitionsToTxn: the broker's response does not name {TOPIC}-0"):
            await task

    async def offsets(world: World) -> None:
        await world.begin()
        task = asyncio.create_task(world.transactions.send_offsets({("in", 0): 5}, GROUP))
        await world.cluster.answer(TxnOffsetCommitRequest, TxnOffsetCommitResponse())
        with pytest.raises(AbortableError, match="TxnOffsetCommit: the broker's response does not name in-0"):
            await task

    in_world(partitions, 1)
    in_world(offsets, 2)


def test_end_txn_names_what_was_written_and_each_epoch_begins_at_sequence_0() -> None:
    async def test(world: World) -> None:
        await world.begin()
        for epoch in range(3):
            request = await write(world, 2)
            records = request.topic_data[0].partition_data[0].records
            assert records is not None
            header = read_batch_header(records)
            assert (header.producer_epoch, header.base_sequence) == (epoch, 0)
            if epoch == 1:
                await write(world, 0)
            ended = await end(world, epoch != 2, EndTxnResponse(producer_id=7, producer_epoch=epoch + 1))
            assert ended.topics == [EndTxnTopic(TOPIC, [0, 2] if epoch == 1 else [2])]
            world.manager.begin()
        assert not world.cluster.asked

    in_world(test, 2, group_aware=1)


def test_end_txn_names_the_groups_offsets_partition() -> None:
    async def test(world: World) -> None:
        await world.begin()
        await send_offsets(world)
        request = await end(world, True)
        assert request.topics == [EndTxnTopic(OFFSETS_TOPIC, [partition_for_key("g", OFFSETS_PARTITIONS)])]

    in_world(test, 2, group_aware=1)


def test_nothing_is_named_where_the_offsets_partition_is_not_known() -> None:
    async def test(world: World) -> None:
        await world.begin()
        world.cluster.metadata.topics.clear()  # type: ignore[attr-defined]
        await send_offsets(world)
        assert (await end(world, True)).topics is None

    in_world(test, 2, group_aware=1)


@pytest.mark.parametrize(("version", "group_aware"), [(2, 0), (1, 1)])
def test_stock_brokers_are_told_no_names(version: int, group_aware: int) -> None:
    async def test(world: World) -> None:
        await world.begin()
        world.manager.registered_now({(TOPIC, 0)})
        await write(world)
        assert (await end(world, True)).topics is None

    in_world(test, version, group_aware)


def test_an_abort_with_a_batch_of_unknown_fate_names_nothing() -> None:
    async def test(world: World) -> None:
        await world.begin()
        await write(world, 0)
        world.append(b"2", partition=1)
        _, answer = await world.cluster.next(ProduceRequest)
        task = asyncio.create_task(world.transactions.abort())
        await asyncio.sleep(0)
        answer.set_exception(LOST)
        request = await world.cluster.answer(EndTxnRequest, NEXT)
        await task
        assert request.topics is None
        world.manager.begin()
        await write(world, 0)
        assert (await end(world, True)).topics == [EndTxnTopic(TOPIC, [0])], "the next one is exact again"

    in_world(test, 2, group_aware=1)


def test_an_abort_after_offsets_of_unknown_fate_names_nothing() -> None:
    async def test(world: World) -> None:
        await world.begin()
        await write(world)
        with pytest.raises(AbortableError):
            await send_offsets(world, ErrorCode.ILLEGAL_GENERATION)
        assert (await end(world, False)).topics is None

    in_world(test, 2, group_aware=1)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION])
def test_names_that_are_refused_are_left_out(code: ErrorCode) -> None:
    async def test(world: World) -> None:
        await world.begin()
        await write(world)
        task = asyncio.create_task(world.transactions.commit())
        first = await world.cluster.answer(EndTxnRequest, EndTxnResponse(error_code=code))
        assert first.topics
        second = await world.cluster.answer(EndTxnRequest, NEXT)
        await task
        assert second.topics is None
        assert second.committed

    in_world(test, 2, group_aware=1)


def test_a_lost_answer_is_asked_for_with_the_same_names() -> None:
    async def test(world: World) -> None:
        await world.begin()
        await write(world)
        task = asyncio.create_task(world.transactions.commit())
        request, answer = await world.cluster.next(EndTxnRequest)
        answer.set_exception(LOST)
        again = await world.cluster.answer(EndTxnRequest, NEXT)
        await task
        assert again.topics == request.topics == [EndTxnTopic(TOPIC, [0])]

    in_world(test, 2, group_aware=1)


def test_refused_names_after_a_lost_answer_leave_the_result_open() -> None:
    async def test(world: World) -> None:
        await world.begin()
        await write(world)
        task = asyncio.create_task(world.transactions.commit())
        _, answer = await world.cluster.next(EndTxnRequest)
        answer.set_exception(LOST)
        await world.cluster.answer(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST))
        await world.cluster.answer(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE))
        with pytest.raises(CommitUnknownError):
            await task

    in_world(test, 2, group_aware=1)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_is_gone_at_the_coordinator_is_aborted_and_run_again(version: int) -> None:
    async def test(world: World) -> None:
        await world.begin()
        world.manager.registered_now({(TOPIC, 0)})
        await write(world)
        task = asyncio.create_task(world.transactions.commit())
        await world.cluster.answer(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE))
        with pytest.raises(AbortableError, match=r"transaction\.timeout\.ms"):
            await task
        assert not (await end(world, False)).committed
        world.manager.begin()

    in_world(test, version, group_aware=1)


# -- brokers that change in the middle


def test_a_downgrade_within_a_transaction_leaves_the_names_out() -> None:
    async def test(world: World) -> None:
        await world.begin()
        await write(world)
        world.cluster.features["group.aware.transaction"] = 0
        world.cluster.reconnect()
        assert (await end(world, True)).topics is None

    in_world(test, 2, group_aware=1)


@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 1)])
def test_what_the_broker_offers_is_learned_anew_with_each_connection(before: int, after: int) -> None:
    async def test(world: World) -> None:
        await world.begin()
        await write(world)
        assert bool((await end(world, True)).topics) == bool(before)
        world.cluster.features["group.aware.transaction"] = after
        world.cluster.reconnect()
        await world.transactions.begin()
        await write(world)
        assert bool((await end(world, True)).topics) == bool(after)

    in_world(test, 2, group_aware=before)


def test_produce_of_a_downgraded_broker_aborts_and_the_next_transaction_adds_its_partitions() -> None:
    async def test(world: World) -> None:
        await world.begin()
        await write(world)
        world.cluster.newest_produce = 11
        world.cluster.features["transaction.version"] = 1
        world.cluster.reconnect()
        world.append(b"2")
        await asyncio.sleep(1)
        with pytest.raises(AbortableError, match="was downgraded"):
            await world.transactions.commit()
        await end(world, False, EndTxnResponse())
        await world.transactions.begin()
        assert world.manager.version == 1
        world.append(b"3")
        request, answer = await world.cluster.next(AddPartitionsToTxnRequest)
        answer.set_result(registered(request))
        await world.cluster.answer(ProduceRequest, produced())
        await end(world, True, EndTxnResponse())

    in_world(test, 2)


# -- transactions bound to partitions


def test_partitions_are_registered_in_one_request_and_only_once() -> None:
    async def test(world: World) -> None:
        await world.init()
        request = await begin(world, (TOPIC, 2), ("u", 0), (TOPIC, 0))
        assert request.session
        assert [(one.name, one.partitions) for one in request.v3_and_below_topics] == [(TOPIC, [0, 2]), ("u", [0])]
        await write(world, 2)
        assert (await end(world, True)).topics == [EndTxnTopic(TOPIC, [2])], "markers only where something was written"
        for _ in range(2):
            await world.transactions.begin([(TOPIC, 0), ("u", 0)])
            await write(world, 0)
            await end(world, True)
        assert not world.cluster.asked
        await begin(world, (TOPIC, 1))

    in_world(test, 2, group_aware=1)


def test_nothing_written_to_what_was_registered_names_nothing_but_ends() -> None:
    async def test(world: World) -> None:
        await world.init()
        await begin(world, (TOPIC, 0))
        assert (await end(world, True)).topics == []

    in_world(test, 2, group_aware=1)


@pytest.mark.parametrize("group_aware", [0, 1])
def test_a_send_outside_fails_at_once_and_offsets_may_join(group_aware: int) -> None:
    async def test(world: World) -> None:
        await world.init()
        if group_aware:
            await begin(world, (TOPIC, 1))
        else:
            await world.transactions.begin([(TOPIC, 1)])
            assert not world.cluster.asked
        with pytest.raises(PartitionNotRegisteredError, match=r"topic 'u' is not among .* Name the partition there"):
            world.transactions.check_send("u")
        world.transactions.check_send(TOPIC)
        with pytest.raises(PartitionNotRegisteredError, match=r"t-0 is not among the 1 .* it named \[1\]"):
            world.manager.check_allowed(TOPIC, 0)
        assert world.topic.sticky.partition == 1, "records without a key go where they may"
        await write(world, 1)
        await send_offsets(world)
        await end(world, True)
        await world.transactions.begin()
        world.transactions.check_send("u")
        assert world.topic.available == (0, 1, 2)

    in_world(test, 2, group_aware)


def test_version_1_adds_the_partitions_at_once() -> None:
    async def test(world: World) -> None:
        await world.init()
        request = await begin(world, (TOPIC, 0), (TOPIC, 1))
        assert not request.session
        await write(world, 1)
        await end(world, True, EndTxnResponse())

    in_world(test, 1)


def test_a_partition_that_does_not_exist_is_no_transaction() -> None:
    async def test(world: World) -> None:
        await world.init()
        with pytest.raises(UnknownPartitionError, match="has only partitions 0 to 2, not 3"):
            await world.transactions.begin([(TOPIC, 3)])
        assert world.manager.state is State.READY

    in_world(test, 2, group_aware=1)


@pytest.mark.parametrize("how", ["refused", "lost", "cancelled"])
def test_a_block_that_cannot_register_is_aborted(how: str) -> None:
    async def test(world: World) -> None:
        await world.init()
        producer: Any = None

        async def block() -> None:
            async with Transaction(producer, world.transactions, [(TOPIC, 0)]):
                raise AssertionError("must not get here")

        task = asyncio.create_task(block())
        request, answer = await world.cluster.next(AddPartitionsToTxnRequest)
        if how == "refused":
            refused = registered(request)
            result = refused.results_by_topic_v3_and_below[0].results_by_partition[0]
            result.partition_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answer.set_result(refused)
        elif how == "cancelled":
            task.cancel()
        else:
            world.cluster.away = True
            answer.set_exception(LOST)
            await asyncio.sleep(4.9)
            world.cluster.away = False
            while not isinstance(request, EndTxnRequest):
                request, answer = await world.cluster.next(object)
                if isinstance(request, AddPartitionsToTxnRequest):
                    answer.set_exception(LOST)
            assert not request.committed
            answer.set_result(NEXT)
            with pytest.raises(AbortableError):
                await task
            assert world.manager.state is State.READY
            return
        request = await world.cluster.answer(EndTxnRequest, NEXT)
        assert not request.committed
        with pytest.raises(asyncio.CancelledError if how == "cancelled" else AbortableError):
            await task
        assert world.manager.state is State.READY

    in_world(test, 2, group_aware=1)
