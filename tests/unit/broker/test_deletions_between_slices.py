"""Offsets of many partitions that are deleted in slices: what another request changes in between is respected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from oncelog import Broker
from oncelog.broker.coordinator.group.coordinator import Commit, Committer
from oncelog.broker.coordinator.group.member import ClientIdentity, OfferedProtocol
from oncelog.broker.coordinator.group.membership import Join
from oncelog.broker.handlers import offset_delete
from oncelog.broker.handling import Deferred
from oncelog.broker.steps import run_at_once
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from support.slices import context_of, run

PARTITIONS = 1_000
HALFWAY = 4
"""The step after which half of the offsets are deleted."""

GONE = (HALFWAY + 1) * offset_delete.AT_ONCE

SUBSCRIPTION = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01t" + b"\xff\xff\xff\xff"


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(durability="os", logging_level="error", group_initial_rebalance_delay_ms=0) as broker:
        await broker.metadata.create_topic("t", PARTITIONS, {})
        await broker.metadata.create_topic("other", 1, {})
        commit(broker, range(PARTITIONS), 7)
        yield broker


def commit(broker: Broker, indexes: Any, offset: int, topic: str = "t") -> list[int]:
    commits = [Commit((topic, index), offset, -1, None) for index in indexes]
    return list(map(int, broker.group_coordinator.commit_offsets("g", Committer(), commits)))


def committed(broker: Broker) -> dict[int, int]:
    fetched = broker.group_coordinator.fetch_offsets("g", [("t", index) for index in range(PARTITIONS)])
    return {f.partition[1]: f.offset.committed_offset for f in fetched if f.offset is not None}


def join(broker: Broker, protocol_type: str = "consumer") -> Any:
    protocols = [OfferedProtocol("range", SUBSCRIPTION)]
    client = ClientIdentity("c", "/h")
    return broker.group_coordinator.join(
        Join("g", "", None, client, 10_000, 10_000, protocol_type, protocols, requires_known_member_id=False)
    )


def begun(broker: Broker, indexes: Any = range(PARTITIONS)) -> Any:
    """The steps of an OffsetDelete of the partitions."""
    request = OffsetDeleteRequest(
        "g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(i) for i in indexes])]
    )
    return offset_delete.handle(context_of(broker, request, 0), request)


def codes_of(response: Any) -> list[int]:
    assert response.error_code == 0
    assert [row.partition_index for row in response.topics[0].partitions] == list(range(PARTITIONS))
    return [row.error_code for row in response.topics[0].partitions]


async def test_all_offsets_are_deleted(broker: Broker) -> None:
    assert codes_of(run(begun(broker), lambda count: None)) == [0] * PARTITIONS
    assert committed(broker) == {}


async def test_group_that_is_deleted_in_between_is_not_found_for_the_remaining_partitions(broker: Broker) -> None:
    def delete(count: int) -> None:
        if count == HALFWAY:
            broker.group_coordinator.delete_group("g")

    codes = codes_of(run(begun(broker), delete))
    assert codes == [0] * GONE + [ErrorCode.GROUP_ID_NOT_FOUND] * (PARTITIONS - GONE)
    assert committed(broker) == {}


async def test_group_that_is_deleted_and_made_anew_in_between_loses_the_named_offsets(broker: Broker) -> None:
    def replace(count: int) -> None:
        if count == HALFWAY:
            broker.group_coordinator.delete_group("g")
            commit(broker, [0, PARTITIONS - 1], 9)

    assert codes_of(run(begun(broker), replace)) == [0] * PARTITIONS
    assert committed(broker) == {0: 9}


async def test_offset_that_is_committed_in_between_stays_if_its_deletion_is_done(broker: Broker) -> None:
    def recommit(count: int) -> None:
        if count == HALFWAY:
            assert commit(broker, [0, PARTITIONS - 1], 9) == [0, 0]

    assert codes_of(run(begun(broker), recommit)) == [0] * PARTITIONS
    assert committed(broker) == {0: 9}


async def test_members_that_subscribe_in_between_keep_the_remaining_offsets(broker: Broker) -> None:
    steps = begun(broker)
    for _ in range(HALFWAY + 1):
        next(steps)
    await join(broker)
    codes = codes_of(run(steps, lambda count: None))
    assert codes == [0] * GONE + [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * (PARTITIONS - GONE)
    assert committed(broker) == dict.fromkeys(range(GONE, PARTITIONS), 7)


async def test_members_of_unknown_subscriptions_that_join_in_between_keep_the_remaining_offsets(broker: Broker) -> None:
    def between(count: int) -> None:
        if count == HALFWAY:
            join(broker, "connect")

    codes = codes_of(run(begun(broker), between))
    assert codes == [0] * GONE + [ErrorCode.NON_EMPTY_GROUP] * (PARTITIONS - GONE)
    assert committed(broker) == dict.fromkeys(range(GONE, PARTITIONS), 7)


async def test_topic_that_is_deleted_in_between_is_unknown_for_the_remaining_partitions(broker: Broker) -> None:
    steps = begun(broker)
    for _ in range(HALFWAY + 1):
        next(steps)
    topic = broker.metadata.topic("t")
    assert topic is not None
    await broker.metadata.delete_topic(topic)
    codes = codes_of(run(steps, lambda count: None))
    assert codes == [0] * GONE + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (PARTITIONS - GONE)


async def test_offset_that_becomes_pending_in_between_is_deleted_with_its_turn(broker: Broker) -> None:
    coordinator = broker.group_coordinator
    commits = [Commit(("t", index), 9, -1, None) for index in (0, PARTITIONS - 1)]

    def between(count: int) -> None:
        if count == HALFWAY:
            coordinator.commit_txn_offsets("g", Committer(), 5, 0, commits)

    assert codes_of(run(begun(broker), between)) == [0] * PARTITIONS
    coordinator.complete_transaction(coordinator.partition_for("g"), 5, 0, True, 1 << 40)
    assert committed(broker) == {0: 9}


async def test_broker_that_stops_in_between_fails_the_whole_request(broker: Broker) -> None:
    steps = begun(broker)
    for _ in range(HALFWAY + 1):
        next(steps)
    await broker.group_coordinator.stop()
    with pytest.raises(KafkaError) as refused:
        run(steps, lambda count: None)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("failing", [0, HALFWAY, PARTITIONS // offset_delete.AT_ONCE - 1])
async def test_deletion_is_answered_when_every_part_of_it_is_durable(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    flushes: list[asyncio.Future[None]] = []

    def settled(group_id: str) -> asyncio.Future[None]:
        flushes.append(asyncio.get_running_loop().create_future())
        return flushes[-1]

    monkeypatch.setattr(broker.group_coordinator, "settled", settled)
    answer = run_at_once(begun(broker))
    assert isinstance(answer, Deferred)
    assert answer.awaitable is not None
    answered = asyncio.ensure_future(answer.awaitable)
    for number, flush in enumerate(flushes):
        if number != failing:
            flush.set_result(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not answered.done()
    flushes[failing].set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
    with pytest.raises(KafkaError) as failed:
        await answered
    assert failed.value.code is ErrorCode.NOT_COORDINATOR


async def test_large_deletion_of_an_unknown_group_is_refused_as_a_whole(broker: Broker) -> None:
    request = OffsetDeleteRequest("no", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)] * PARTITIONS)])
    with pytest.raises(KafkaError) as refused:
        run(offset_delete.handle(context_of(broker, request, 0), request), lambda count: None)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    request = OffsetDeleteRequest("no", [])
    with pytest.raises(KafkaError) as refused:
        run(offset_delete.handle(context_of(broker, request, 0), request), lambda count: None)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
