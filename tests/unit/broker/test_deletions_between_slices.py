"""Many offsets that are deleted in slices: what another request changes in between is respected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from oncelog.broker.api.handling import Deferred
from oncelog.broker.coordinator.group.coordinator import Commit, Committer
from oncelog.broker.coordinator.group.member import ClientIdentity, OfferedProtocol, OfferedProtocols
from oncelog.broker.coordinator.group.membership import Join
from oncelog.broker.coordinator.group.records import group_key, offset_key
from oncelog.broker.handlers import delete_groups, offset_delete
from oncelog.broker.node import BrokerNode
from oncelog.broker.scheduling.steps import run_at_once
from oncelog.protocol.batch_header import read_batch_header
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest
from oncelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from oncelog.protocol.records import decode_batch
from support.faulty_filesystem import FaultyFileSystem
from support.slices import context_of, run

PARTITIONS = 1_000
HALFWAY = 4
"""The step after which half of the offsets are deleted."""

GONE = (HALFWAY + 1) * offset_delete.AT_ONCE

SUBSCRIPTION = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01t" + b"\xff\xff\xff\xff"


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    async with BrokerNode(durability="os", logging_level="error", group_initial_rebalance_delay_ms=0) as broker:
        await broker.metadata.create_topic("t", PARTITIONS, {})
        await broker.metadata.create_topic("other", 1, {})
        commit(broker, range(PARTITIONS), 7)
        yield broker


def commit(broker: BrokerNode, indexes: Any, offset: int, topic: str = "t") -> list[int]:
    commits = [Commit((topic, index), offset, -1, None) for index in indexes]
    return list(map(int, broker.group_coordinator.commit_offsets("g", Committer(), commits)))


def committed(broker: BrokerNode) -> dict[int, int]:
    fetched = broker.group_coordinator.fetch_offsets("g", [("t", index) for index in range(PARTITIONS)])
    return {f.partition[1]: f.offset.committed_offset for f in fetched if f.offset is not None}


def join(broker: BrokerNode, protocol_type: str = "consumer") -> Any:
    protocols = OfferedProtocols([OfferedProtocol("range", SUBSCRIPTION)])
    client = ClientIdentity("c", "/h")
    return broker.group_coordinator.join(
        Join("g", "", None, client, 10_000, 10_000, protocol_type, protocols, requires_known_member_id=False)
    )


def begun(broker: BrokerNode, indexes: Any = range(PARTITIONS)) -> Any:
    """The steps of an OffsetDelete of the partitions."""
    request = OffsetDeleteRequest(
        "g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(i) for i in indexes])]
    )
    return offset_delete.handle(context_of(broker, request, 0), request)


def codes_of(response: Any) -> list[int]:
    assert response.error_code == 0
    assert [row.partition_index for row in response.topics[0].partitions] == list(range(PARTITIONS))
    return [row.error_code for row in response.topics[0].partitions]


async def test_all_offsets_are_deleted(broker: BrokerNode) -> None:
    assert codes_of(run(begun(broker), lambda count: None)) == [0] * PARTITIONS
    assert committed(broker) == {}


async def test_group_that_is_deleted_in_between_is_not_found_for_the_remaining_partitions(broker: BrokerNode) -> None:
    def delete(count: int) -> None:
        if count == HALFWAY:
            broker.group_coordinator.delete_group("g")

    codes = codes_of(run(begun(broker), delete))
    assert codes == [0] * GONE + [ErrorCode.GROUP_ID_NOT_FOUND] * (PARTITIONS - GONE)
    assert committed(broker) == {}


async def test_group_that_is_deleted_and_made_anew_in_between_loses_the_named_offsets(broker: BrokerNode) -> None:
    def replace(count: int) -> None:
        if count == HALFWAY:
            broker.group_coordinator.delete_group("g")
            commit(broker, [0, PARTITIONS - 1], 9)

    assert codes_of(run(begun(broker), replace)) == [0] * PARTITIONS
    assert committed(broker) == {0: 9}


async def test_offset_that_is_committed_in_between_stays_if_its_deletion_is_done(broker: BrokerNode) -> None:
    def recommit(count: int) -> None:
        if count == HALFWAY:
            assert commit(broker, [0, PARTITIONS - 1], 9) == [0, 0]

    assert codes_of(run(begun(broker), recommit)) == [0] * PARTITIONS
    assert committed(broker) == {0: 9}


async def test_members_that_subscribe_in_between_keep_the_remaining_offsets(broker: BrokerNode) -> None:
    steps = begun(broker)
    for _ in range(HALFWAY + 1):
        next(steps)
    await join(broker)
    codes = codes_of(run(steps, lambda count: None))
    assert codes == [0] * GONE + [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * (PARTITIONS - GONE)
    assert committed(broker) == dict.fromkeys(range(GONE, PARTITIONS), 7)


async def test_members_of_unknown_subscriptions_that_join_in_between_keep_the_remaining_offsets(
    broker: BrokerNode,
) -> None:
    def between(count: int) -> None:
        if count == HALFWAY:
            join(broker, "connect")

    codes = codes_of(run(begun(broker), between))
    assert codes == [0] * GONE + [ErrorCode.NON_EMPTY_GROUP] * (PARTITIONS - GONE)
    assert committed(broker) == dict.fromkeys(range(GONE, PARTITIONS), 7)


async def test_topic_that_is_deleted_in_between_is_unknown_for_the_remaining_partitions(broker: BrokerNode) -> None:
    steps = begun(broker)
    for _ in range(HALFWAY + 1):
        next(steps)
    topic = broker.metadata.topic("t")
    assert topic is not None
    await broker.metadata.delete_topic(topic)
    codes = codes_of(run(steps, lambda count: None))
    assert codes == [0] * GONE + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (PARTITIONS - GONE)


async def test_offset_that_becomes_pending_in_between_is_deleted_with_its_turn(broker: BrokerNode) -> None:
    coordinator = broker.group_coordinator
    commits = [Commit(("t", index), 9, -1, None) for index in (0, PARTITIONS - 1)]

    def between(count: int) -> None:
        if count == HALFWAY:
            coordinator.commit_txn_offsets("g", Committer(), 5, 0, commits)

    assert codes_of(run(begun(broker), between)) == [0] * PARTITIONS
    coordinator.complete_transaction(coordinator.partition_for("g"), 5, 0, True, 1 << 40)
    assert committed(broker) == {0: 9}


async def test_broker_that_stops_in_between_fails_the_whole_request(broker: BrokerNode) -> None:
    steps = begun(broker)
    for _ in range(HALFWAY + 1):
        next(steps)
    await broker.group_coordinator.stop()
    with pytest.raises(KafkaError) as refused:
        run(steps, lambda count: None)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("failing", [0, HALFWAY, PARTITIONS // offset_delete.AT_ONCE - 1])
async def test_deletion_is_answered_when_every_part_of_it_is_durable(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch, failing: int
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


async def test_large_deletion_of_an_unknown_group_is_refused_as_a_whole(broker: BrokerNode) -> None:
    request = OffsetDeleteRequest("no", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)] * PARTITIONS)])
    with pytest.raises(KafkaError) as refused:
        run(offset_delete.handle(context_of(broker, request, 0), request), lambda count: None)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    request = OffsetDeleteRequest("no", [])
    with pytest.raises(KafkaError) as refused:
        run(offset_delete.handle(context_of(broker, request, 0), request), lambda count: None)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


# ---- a whole group


def group_deletion(broker: BrokerNode) -> Any:
    """The steps of a DeleteGroups of the group."""
    request = DeleteGroupsRequest(["g"])
    return delete_groups.handle(context_of(broker, request, 2), request)


def deleted(broker: BrokerNode, between: Any = lambda count: None) -> int:
    (result,) = run(group_deletion(broker), between).results
    assert result.group_id == "g"
    return int(result.error_code)


def batches(broker: BrokerNode) -> list[list[tuple[bytes, bytes | None]]]:
    """The keys and values of the batches in the group's partition."""
    partition = broker.group_coordinator.partition_for("g")
    whole = b"".join(broker.replica_manager.partition("__consumer_offsets", partition).log.windows())
    batches = []
    position = 0
    while position < len(whole):
        header = read_batch_header(whole, position)
        batches.append([(r.key or b"", r.value) for r in decode_batch(whole, position, header)])
        position += header.size
    return batches


def is_there(broker: BrokerNode) -> bool:
    return broker.group_coordinator.group("g") is not None


async def test_group_and_all_of_its_offsets_are_deleted_by_one_batch_with_the_group_last(broker: BrokerNode) -> None:
    broker.group_coordinator.commit_txn_offsets("g", Committer(), 5, 0, [Commit(("other", 0), 9, -1, None)])
    keys = [key for batch in batches(broker) for key, _ in batch]
    assert deleted(broker) == 0
    last = batches(broker)[-1]
    assert [key for key, _ in last[:-1]] == keys
    assert last[-1][0] == group_key("g")
    assert {value for _, value in last} == {None}
    assert len(batches(broker)) == 3


@pytest.mark.parametrize("prepared", [False, True])
async def test_prepared_tombstones_are_those_of_a_group_that_is_deleted_at_once(
    broker: BrokerNode, prepared: bool
) -> None:
    if prepared:
        assert deleted(broker) == 0
    else:
        broker.group_coordinator.delete_group("g")
    (keys, tombstones) = batches(broker)
    assert sorted(key for key, _ in tombstones[:-1]) == sorted(key for key, _ in keys)
    assert tombstones[-1] == (group_key("g"), None)


async def test_offsets_are_all_there_until_the_group_is_deleted(broker: BrokerNode) -> None:
    counts = set[int]()
    assert deleted(broker, lambda count: counts.add(len(committed(broker)))) == 0
    assert counts == {PARTITIONS, 0}
    assert (is_there(broker), committed(broker)) == (False, {})


async def test_commits_in_between_are_deleted_with_the_group(broker: BrokerNode) -> None:
    def between(count: int) -> None:
        if count == HALFWAY:
            assert commit(broker, [0, PARTITIONS - 1], 9) == [0, 0]

    assert deleted(broker, between) == 0
    assert (is_there(broker), committed(broker)) == (False, {})


@pytest.mark.parametrize("pending", [False, True])
async def test_offsets_on_further_partitions_in_between_are_deleted_with_the_group(
    broker: BrokerNode, pending: bool
) -> None:
    coordinator = broker.group_coordinator

    def between(count: int) -> None:
        if count == HALFWAY and pending:
            coordinator.commit_txn_offsets("g", Committer(), 5, 0, [Commit(("other", 0), 9, -1, None)])
        elif count == HALFWAY:
            assert commit(broker, [0], 9, "other") == [0]

    assert deleted(broker, between) == 0
    assert len(batches(broker)[-1]) == PARTITIONS + 2
    coordinator.complete_transaction(coordinator.partition_for("g"), 5, 0, True, 1 << 40)
    assert not coordinator.may_have_offsets("g")


async def test_offsets_that_are_deleted_and_committed_anew_in_between_are_deleted_with_the_group(
    broker: BrokerNode,
) -> None:
    def between(count: int) -> None:
        if count == HALFWAY:
            broker.group_coordinator.delete_offsets("g", [("t", index) for index in range(PARTITIONS)])
            commit(broker, [3], 9)
            commit(broker, [0], 9, "other")

    assert deleted(broker, between) == 0
    assert not broker.group_coordinator.may_have_offsets("g")
    assert sorted(key for key, _ in batches(broker)[-1]) == sorted(
        [offset_key("g", ("t", 3)), offset_key("g", ("other", 0)), group_key("g")]
    )


async def test_member_that_joins_in_between_keeps_the_group_with_all_of_its_offsets(broker: BrokerNode) -> None:
    def between(count: int) -> None:
        if count == HALFWAY:
            join(broker)

    assert deleted(broker, between) == ErrorCode.NON_EMPTY_GROUP
    assert len(committed(broker)) == PARTITIONS


async def test_group_that_is_deleted_in_between_is_not_found(broker: BrokerNode) -> None:
    def between(count: int) -> None:
        if count == HALFWAY:
            broker.group_coordinator.delete_group("g")

    assert deleted(broker, between) == ErrorCode.GROUP_ID_NOT_FOUND
    assert len(batches(broker)) == 2


async def test_broker_that_stops_in_between_deletes_nothing_of_a_group(broker: BrokerNode) -> None:
    steps = group_deletion(broker)
    for _ in range(HALFWAY):
        next(steps)
    await broker.group_coordinator.stop()
    (result,) = run(steps, lambda count: None).results
    assert result.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(batches(broker)) == 1


async def test_group_that_gets_offsets_on_further_partitions_again_and_again_stays_with_an_error_to_retry(
    broker: BrokerNode,
) -> None:
    broker.group_coordinator.delete_offsets("g", [("t", index) for index in range(500, PARTITIONS)])
    further = iter(range(500, PARTITIONS))
    assert deleted(broker, lambda count: None if count % 5 else commit(broker, [next(further)], 9)) == (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    assert is_there(broker)
    assert len(committed(broker)) > 500


async def answered(answer: Any) -> Any:
    """The response of a handler, when it is due."""
    if not isinstance(answer, Deferred):
        return answer
    assert answer.awaitable is not None
    response = await answer.awaitable
    return response if answer.finish is None else answer.finish(response)


@pytest.mark.parametrize("seed", range(20))
async def test_kill_during_the_deletion_of_a_group_leaves_all_of_its_offsets_or_none(seed: int) -> None:
    fs = FaultyFileSystem()
    first = BrokerNode("/data", fs=fs, logging_level="error")
    await first.start()
    await first.metadata.create_topic("t", PARTITIONS, {})
    commit(first, range(PARTITIONS), 7)
    flushed = first.group_coordinator.settled("g")
    if flushed is not None:
        await flushed
    answer = run_at_once(group_deletion(first))
    assert not is_there(first)
    fs.crash(Random(seed))
    answer.awaitable.close()
    with suppress(Exception):
        await first.stop()
    async with BrokerNode("/data", fs=fs, logging_level="error") as second:
        assert len(committed(second)) in (0, PARTITIONS)
        assert is_there(second) == bool(committed(second))


async def test_group_of_many_offsets_stays_deleted_after_a_restart(tmp_path: Path) -> None:
    async with BrokerNode(tmp_path, logging_level="error") as first:
        await first.metadata.create_topic("t", PARTITIONS, {})
        commit(first, range(PARTITIONS), 7)
        (result,) = (await answered(run_at_once(group_deletion(first)))).results
        assert result.error_code == 0
    async with BrokerNode(tmp_path, logging_level="error") as second:
        assert not is_there(second)
        assert committed(second) == {}
