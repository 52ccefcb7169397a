"""`init_transactions`: where it goes, what it falls back to, and what it needs for that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog.client.cluster import KeyType
from oncelog.client.config import ProducerConfig
from oncelog.client.errors import (
    ConcurrentProducerCommitError,
    ConfigError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    ProducerFencedError,
    UnsupportedVersionError,
)
from oncelog.client.producer.transaction import Transaction
from oncelog.client.producer.transaction_state import State
from oncelog.client.values import ConsumerAssignment, ConsumerGroupMetadata, GroupAssignment, TopicPartition
from oncelog.protocol.errors import CONCURRENT_PRODUCER_COMMIT, ErrorCode
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.init_producer_id import AssignedPartitions, InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from support.scripted_cluster import LOST, World, in_world, offsets_answered, produced

MINE = frozenset({TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("b", 0)})
MEMBER = ConsumerAssignment(4, MINE, "group", "member", "instance")
OK = InitProducerIdResponse(producer_id=7, producer_epoch=1)


def init(world: World, *arguments: Any, **keywords: Any) -> asyncio.Task[None]:
    return asyncio.create_task(world.transactions.init(*arguments, **keywords))


def test_the_groups_home_is_told_group_generation_and_partitions() -> None:
    async def test(world: World) -> None:
        task = init(world, MEMBER)
        request = await world.cluster.answer(InitProducerIdRequest, OK)
        await task
        assert (request.transactional_id, request.consumer_group_id, request.consumer_group_generation) == (
            "x",
            "group",
            4,
        )
        assert request.assigned_partitions == [AssignedPartitions("a", [2]), AssignedPartitions("b", [0, 1])]
        assert (KeyType.GROUP_HOME, "group") in world.cluster.looked_up
        assert world.cluster.looked_up[-1] == (KeyType.TRANSACTION, "x"), "everything else goes to the id's own home"
        assert world.manager.group_aware
        assert world.manager.group == ConsumerGroupMetadata("group", 4, "member", "instance")
        assert (world.manager.version, world.manager.extension, world.manager.state) == (2, True, State.READY)

    in_world(test, 2, group_aware=1)


def test_the_broker_assigns_an_id_which_is_kept() -> None:
    async def test(world: World) -> None:
        for answered in ("assigned", None):
            task = init(world, GroupAssignment(3, MINE))
            response = InitProducerIdResponse(producer_id=7, producer_epoch=1, transactional_id=answered)
            request = await world.cluster.answer(InitProducerIdRequest, response)
            await task
            assert request.transactional_id == (None if answered else "assigned")
        assert world.manager.transactional_id == "assigned"
        assert world.manager.group == ConsumerGroupMetadata("group", 3)

    in_world(test, 2, group_aware=1, transactional_id=None, transactional_group_id="group")


@pytest.mark.parametrize("offered", [0, 1])
@pytest.mark.parametrize("mode", [True, False])
def test_without_the_feature_or_without_the_wish_it_falls_back(offered: int, mode: bool) -> None:
    async def test(world: World) -> None:
        task = init(world, MEMBER)
        request = await world.cluster.answer(InitProducerIdRequest, OK)
        await task
        assert world.manager.group_aware == (request.consumer_group_id is not None) == bool(offered and mode)
        world.manager.begin()
        offsets = asyncio.create_task(world.transactions.send_offsets({("a", 2): 5}))
        sent, answer = await world.cluster.next(TxnOffsetCommitRequest)
        answer.set_result(offsets_answered(sent))
        await offsets
        assert (sent.group_id, sent.generation_id, sent.member_id, sent.group_instance_id) == (
            "group",
            4,
            "member",
            "instance",
        )

    in_world(test, 2, group_aware=offered, consumer_group_aware_transaction=mode)


def test_required_and_missing_names_feature_and_broker() -> None:
    async def test(world: World) -> None:
        for assignment in (MEMBER, None):
            with pytest.raises(UnsupportedVersionError, match=r"node:9092 .* group\.aware\.transaction.*=require"):
                await world.transactions.init(assignment)
        assert world.manager.state is State.UNINITIALIZED
        world.cluster.features["group.aware.transaction"] = 1
        world.cluster.reconnect()
        task = init(world, MEMBER)
        await world.cluster.answer(InitProducerIdRequest, OK)
        await task

    in_world(test, 2, consumer_group_aware_transaction="require")


def test_a_fall_back_without_a_member_id_names_what_is_missing_and_the_remedy() -> None:
    async def test(world: World) -> None:
        with pytest.raises(ConfigError, match=r"member id.*subscribes") as caught:
            await world.transactions.init(GroupAssignment(3, MINE), "group")
        assert {caught.value.key, caught.value.other_key} == {
            "consumer.group.aware.transaction",
            "transactional.group.id",
        }
        assert not world.cluster.asked
        assert world.manager.state is State.UNINITIALIZED

    in_world(test, 2)


def test_a_fall_back_without_a_transactional_id_names_what_is_missing_and_the_remedy() -> None:
    async def test(world: World) -> None:
        with pytest.raises(ConfigError, match=r"set transactional\.id") as caught:
            await world.transactions.init(MEMBER)
        assert (caught.value.key, caught.value.other_key) == ("transactional.id", "consumer.group.aware.transaction")

    in_world(test, 2, transactional_id=None, transactional_group_id="group")


def test_offsets_without_a_group_need_a_member_id_in_the_fall_back() -> None:
    async def test(world: World) -> None:
        await world.begin()
        with pytest.raises(ConfigError, match="needs a member id"):
            await world.transactions.send_offsets({("a", 0): 1})
        assert world.manager.state is State.IN_TRANSACTION

    in_world(test, 2, transactional_group_id="group")


def test_claims_of_a_broker_that_was_downgraded_stand_in_for_no_member_id() -> None:
    async def test(world: World) -> None:
        task = init(world, GroupAssignment(3, MINE), group_id="group")
        await world.cluster.answer(InitProducerIdRequest, OK)
        await task
        assert world.manager.group_aware
        world.cluster.features["group.aware.transaction"] = 0
        world.cluster.reconnect()
        await world.transactions.begin()
        assert not world.manager.group_aware
        with pytest.raises(ConfigError, match="KIP-447"):
            await world.transactions.send_offsets({TopicPartition("a", 2): 5})

    in_world(test, 2, group_aware=1)


def test_offsets_need_a_group_from_somewhere() -> None:
    async def test(world: World) -> None:
        await world.begin()
        with pytest.raises(ConfigError, match=r"transactional\.group\.id: .*needs the group"):
            await world.transactions.send_offsets({("a", 0): 1})

    in_world(test, 2)


def test_a_bare_group_id_is_deprecated() -> None:
    async def test(world: World) -> None:
        await world.begin()
        with pytest.warns(DeprecationWarning, match="fences no other producer"):
            await world.transactions.send_offsets({}, "group")

    in_world(test, 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"transactional_group_id": ""}, "is empty"),
        ({"transactional_group_id": "g", "enable_idempotence": False}, "needs enable.idempotence=true"),
        ({"transactional_group_id": "g", "consumer_group_aware_transaction": False}, "without a transactional.id"),
        ({"consumer_group_aware_transaction": "perhaps"}, "is not one of true, false, require"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ProducerConfig.of(settings)


def test_an_assignment_needs_a_group_and_only_one() -> None:
    async def test(world: World) -> None:
        with pytest.raises(ConfigError, match="needs the group"):
            await world.transactions.init(GroupAssignment(3, MINE))
        with pytest.raises(ConfigError, match="is not the group of the assignment"):
            await world.transactions.init(MEMBER, "other")

    in_world(test, 2, group_aware=1)


@pytest.mark.parametrize("where", ["ApiVersions", "FindCoordinator", "InitProducerId"])
def test_a_broker_that_was_downgraded_in_between_is_fallen_back_from(where: str) -> None:
    async def test(world: World) -> None:
        await world.begin()
        world.manager.become(State.COMMITTING_TRANSACTION)
        world.manager.finished()
        world.cluster.features["group.aware.transaction"] = 0
        if where == "ApiVersions":
            world.cluster.reconnect()
        elif where == "FindCoordinator":
            world.cluster.homes_known = False
        task = init(world, MEMBER)
        if where == "InitProducerId":
            refused = InitProducerIdResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            request = await world.cluster.answer(InitProducerIdRequest, refused)
            assert request.consumer_group_id == "group"
        request = await world.cluster.answer(InitProducerIdRequest, OK)
        await task
        assert request.consumer_group_id is None
        assert not world.manager.group_aware
        if where == "InitProducerId":
            assert not world.manager.extension, "the features were learned anew"

    in_world(test, 2, group_aware=1)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (ErrorCode.ILLEGAL_GENERATION, IllegalGenerationError, r"generation 4.*poll\(\)"),
        (ErrorCode.INVALID_REQUEST, KafkaError, r"group\.transaction\.max\.partitions"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaError, "3 partitions"),
        (ErrorCode.INVALID_GROUP_ID, KafkaError, "group 'group'"),
    ],
)
def test_a_refused_assignment_can_be_followed_by_another(code: ErrorCode, kind: type[Exception], words: str) -> None:
    async def test(world: World) -> None:
        task = init(world, MEMBER)
        await world.cluster.answer(InitProducerIdRequest, InitProducerIdResponse(error_code=code))
        with pytest.raises(kind, match=words):
            await task
        with pytest.raises(IllegalStateError, match="call init_transactions"):
            world.manager.begin()
        task = init(world, MEMBER)
        await world.cluster.answer(InitProducerIdRequest, OK)
        await task
        world.manager.begin()

    in_world(test, 2, group_aware=1)


def test_a_block_does_not_initialise_without_the_assignment_that_was_refused() -> None:
    async def test(world: World) -> None:
        task = init(world, MEMBER)
        refused = InitProducerIdResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
        await world.cluster.answer(InitProducerIdRequest, refused)
        with pytest.raises(IllegalGenerationError):
            await task
        records: Any = None
        with pytest.raises(IllegalStateError, match="call init_transactions"):
            await Transaction(records, world.transactions).__aenter__()
        assert not world.cluster.asked

    in_world(test, 2, group_aware=1)


def test_it_waits_for_the_transactions_of_those_it_fences() -> None:
    async def test(world: World) -> None:
        task = init(world, MEMBER)
        again = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        for _ in range(3):
            await world.cluster.answer(InitProducerIdRequest, again)
        _, lost = await world.cluster.next(InitProducerIdRequest)
        lost.set_exception(LOST)
        await world.cluster.answer(InitProducerIdRequest, OK)
        await task

    in_world(test, 2, group_aware=1)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, CONCURRENT_PRODUCER_COMMIT])
def test_a_fenced_producer_can_be_initialised_again(code: ErrorCode) -> None:
    async def test(world: World) -> None:
        await world.begin()
        offsets = asyncio.create_task(world.transactions.send_offsets({("a", 0): 1}, ConsumerGroupMetadata("g")))
        request, answer = await world.cluster.next(TxnOffsetCommitRequest)
        answer.set_result(offsets_answered(request, code))
        fenced = ProducerFencedError if code is ErrorCode.PRODUCER_FENCED else ConcurrentProducerCommitError
        with pytest.raises(fenced):
            await offsets
        with pytest.raises(fenced):
            await world.transactions.commit()
        with pytest.raises(fenced, match=r"init_transactions"):
            await world.transactions.abort()
        task = init(world)
        await world.cluster.answer(InitProducerIdRequest, InitProducerIdResponse(producer_id=7, producer_epoch=9))
        await task
        world.manager.begin()
        world.append(b"1")
        await world.cluster.answer(ProduceRequest, produced())
        commit = asyncio.create_task(world.transactions.commit())
        end = await world.cluster.answer(EndTxnRequest, EndTxnResponse(producer_id=7, producer_epoch=10))
        await commit
        assert end.producer_epoch == 9

    in_world(test, 2)


def test_the_length_of_an_id_that_the_broker_refuses_is_named() -> None:
    async def test(world: World) -> None:
        task = init(world)
        await world.cluster.answer(InitProducerIdRequest, InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST))
        with pytest.raises(KafkaError, match=r"transactional\.id of 1300 bytes.*transactional\.id\.max\.bytes"):
            await task
        assert world.manager.state is State.FATAL_ERROR

    in_world(test, 2, transactional_id="x" * 1300)


def test_another_fatal_error_stays_fatal() -> None:
    async def test(world: World) -> None:
        await world.begin()
        world.manager.fail_fatal(ErrorCode.INVALID_TXN_STATE, "lost")
        with pytest.raises(KafkaError, match="lost"):
            await world.transactions.init()

    in_world(test, 2)


def test_it_waits_for_what_is_in_flight_of_a_failed_transaction() -> None:
    async def test(world: World) -> None:
        await world.begin()
        world.append(b"1")
        _, answer = await world.cluster.next(ProduceRequest)
        world.append(b"2")
        world.manager.fail_abortable(ErrorCode.TRANSACTION_ABORTABLE)
        task = init(world)
        await asyncio.sleep(1)
        assert not world.cluster.asked, "initialised while a batch may still be written"
        answer.set_result(produced(ErrorCode.INVALID_PRODUCER_EPOCH))
        await world.cluster.answer(InitProducerIdRequest, OK)
        await task
        assert world.manager.state is State.READY
        assert not world.accumulator.incomplete

    in_world(test, 2)


def test_an_open_transaction_is_decided_first() -> None:
    async def test(world: World) -> None:
        await world.begin()
        with pytest.raises(IllegalStateError, match="commit or abort it first"):
            await world.transactions.init()

    in_world(test, 2)


def test_two_at_once_are_a_mistake_and_a_cancelled_one_can_be_repeated() -> None:
    async def test(world: World) -> None:
        task = init(world, MEMBER)
        await world.cluster.next(InitProducerIdRequest)
        with pytest.raises(IllegalStateError, match="initializing"):
            await world.transactions.init()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        task = init(world, MEMBER)
        await world.cluster.answer(InitProducerIdRequest, OK)
        await task

    in_world(test, 2, group_aware=1)
