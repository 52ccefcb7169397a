"""Commits of many offsets: what changes while they are prepared is seen wholly, or refuses them as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from oncelog.broker.api.handling import Deferred
from oncelog.broker.coordinator.claim import Claim
from oncelog.broker.coordinator.group.coordinator import Commit, Committer
from oncelog.broker.coordinator.group.member import ClientIdentity, OfferedProtocol, OfferedProtocols
from oncelog.broker.coordinator.group.membership import Join
from oncelog.broker.coordinator.transaction.state import TransactionVersion
from oncelog.broker.handlers import offset_commit, txn_offset_commit
from oncelog.broker.metadata import Topic
from oncelog.broker.node import BrokerNode
from oncelog.broker.scheduling.steps import run_at_once, run_in_slices
from oncelog.protocol.batch_header import read_batch_header
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from oncelog.protocol.records import decode_batch
from support.raw_connection import RawConnection
from support.slices import context_of, run

PARTITIONS = 2_000
STEPS = 25
"""Steps after which the commits are partly prepared."""

TURNS = 30
"""Turns of the event loop after which they are."""

TV2 = TransactionVersion.TV_2


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    async with BrokerNode(durability="os", logging_level="error", group_initial_rebalance_delay_ms=0) as broker:
        await broker.metadata.create_topic("t", PARTITIONS, {})
        yield broker


def commit_request(**fields: Any) -> OffsetCommitRequest:
    rows = [OffsetCommitRequestPartition(index, 7) for index in range(PARTITIONS)]
    return OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=rows)], **fields)


def topic_of(broker: BrokerNode) -> Topic:
    topic = broker.metadata.topic("t")
    assert topic is not None
    return topic


JOIN = Join(
    "g",
    "",
    None,
    ClientIdentity("c", "/h"),
    10_000,
    10_000,
    "consumer",
    OfferedProtocols([OfferedProtocol("range", b"")]),
    requires_known_member_id=False,
)


def committed(broker: BrokerNode) -> list[Any]:
    return [item.offset for item in broker.group_coordinator.fetch_offsets("g", [("t", i) for i in range(PARTITIONS)])]


async def test_offsets_of_a_topic_that_is_deleted_in_between_are_not_committed_to_its_successor(
    broker: BrokerNode,
) -> None:
    request = commit_request()
    steps = offset_commit.handle(context_of(broker, request, 8), request)
    for _ in range(STEPS):
        next(steps)
    await broker.metadata.delete_topic(topic_of(broker))
    await broker.metadata.create_topic("t", PARTITIONS - 1, {})
    response = run(steps, lambda count: None)
    codes = [partition.error_code for partition in response.topics[0].partitions]
    assert codes == [0] * (PARTITIONS - 1) + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    offsets = committed(broker)
    assert {offset.topic_id for offset in offsets[:-1]} == {topic_of(broker).topic_id}
    assert offsets[-1] is None


async def test_member_that_joins_in_between_refuses_a_commit_from_outside_of_the_group_as_a_whole(
    broker: BrokerNode,
) -> None:
    request = commit_request()
    steps = offset_commit.handle(context_of(broker, request, 8), request)

    def join(count: int) -> None:
        if count == STEPS:
            broker.group_coordinator.join(JOIN)

    with pytest.raises(KafkaError) as refused:
        run(steps, join)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(broker) == [None] * PARTITIONS


async def test_commits_in_between_are_overwritten_by_the_larger_one_that_is_appended_later(broker: BrokerNode) -> None:
    request = commit_request()
    steps = offset_commit.handle(context_of(broker, request, 8), request)

    def commit(count: int) -> None:
        commits = [Commit(("t", index), count, -1, None) for index in range(0, PARTITIONS, 100)]
        if all(offset is None or offset.committed_offset != 7 for offset in committed(broker)):
            broker.group_coordinator.commit_offsets("g", Committer(), commits)

    run(steps, commit)
    assert {offset.committed_offset for offset in committed(broker)} == {7}


async def test_topic_that_changes_again_and_again_ends_a_large_commit_with_an_error_to_retry(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.group_coordinator, "is_current", lambda prepared: False)
    request = commit_request()
    with pytest.raises(KafkaError) as refused:
        run(offset_commit.handle(context_of(broker, request, 8), request), lambda count: None)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert committed(broker) == [None] * PARTITIONS


async def test_commit_larger_than_a_batch_is_refused_as_a_whole(broker: BrokerNode) -> None:
    rows = [OffsetCommitRequestPartition(index, 7, committed_metadata="m" * 2_000) for index in range(PARTITIONS)]
    request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=rows)])
    with pytest.raises(KafkaError, match=r"max\.message\.bytes") as refused:
        run(offset_commit.handle(context_of(broker, request, 8), request), lambda count: None)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert committed(broker) == [None] * PARTITIONS


def txn_request(who: tuple[int, int]) -> TxnOffsetCommitRequest:
    rows = [TxnOffsetCommitRequestPartition(index, 7) for index in range(PARTITIONS)]
    return TxnOffsetCommitRequest("tx", "g", *who, topics=[TxnOffsetCommitRequestTopic("t", rows)])


async def opened(broker: BrokerNode) -> tuple[int, int]:
    """A transaction of "tx" with the partition of the group's offsets."""
    who = await broker.transaction_coordinator.init_producer_id("tx", 60_000)
    home = ("__consumer_offsets", broker.group_coordinator.partition_for("g"))
    await broker.transaction_coordinator.registration.add_partitions("tx", *who, [home], TV2)
    return who


async def executed(broker: BrokerNode, request: TxnOffsetCommitRequest, between: Any) -> list[int]:
    """Execute a TxnOffsetCommit v3, with `between` while it is prepared; returns its distinct error codes."""
    handling = txn_offset_commit.handle(context_of(broker, request, 3), request)
    task = asyncio.get_running_loop().create_task(handling)  # type: ignore[arg-type]
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert not task.done()
    assert not broker.group_coordinator.may_have_offsets("g")
    await between()
    answer: Any = await run_in_slices(cast(Any, await task))
    if isinstance(answer, Deferred):
        assert answer.finish is not None
        assert answer.awaitable is not None
        answer = answer.finish(await answer.awaitable)
    return sorted({row.error_code for topic in answer.topics for row in topic.partitions})


async def nothing() -> None:
    """No other request comes in between."""


async def test_many_offsets_of_a_transaction_become_valid_with_its_commit(broker: BrokerNode) -> None:
    who = await opened(broker)
    assert await executed(broker, txn_request(who), nothing) == [0]
    assert committed(broker) == [None] * PARTITIONS
    await broker.transaction_coordinator.end_txn("tx", *who, True, TV2)
    while None in committed(broker):
        await asyncio.sleep(0)
    assert {offset.committed_offset for offset in committed(broker)} == {7}


async def test_offsets_of_a_transaction_that_ends_in_between_are_refused_as_a_whole(broker: BrokerNode) -> None:
    who = await opened(broker)

    async def end() -> None:
        await broker.transaction_coordinator.end_txn("tx", *who, True, TransactionVersion.TV_0)

    with pytest.raises(KafkaError) as refused:
        await executed(broker, txn_request(who), end)
    assert refused.value.code is ErrorCode.TRANSACTION_ABORTABLE
    assert not broker.group_coordinator.may_have_offsets("g")


async def test_many_offsets_of_a_transaction_are_given_up_with_the_connection_of_the_producer(
    broker: BrokerNode,
) -> None:
    who = await opened(broker)
    request = txn_request(who)
    del request.topics[0].partitions[800:]  # so that the request leaves room in the buffer, and the end is noticed
    executed: list[Any] = []
    execute = broker.dispatcher.execute

    def noted(exchange: Any) -> Any:
        executed.append(exchange)
        return execute(exchange)

    broker.dispatcher.execute = noted  # type: ignore[method-assign]
    async with asyncio.timeout(60), RawConnection(broker.address) as wire:
        wire.send(request, 3)
        while not executed:
            await asyncio.sleep(0)
    await executed[0].context.connection.closed
    for _ in range(20 * TURNS):
        await asyncio.sleep(0)
    assert not broker.group_coordinator.may_have_offsets("g")
    await broker.transaction_coordinator.end_txn("tx", *who, True, TV2)
    assert committed(broker) == [None] * PARTITIONS


async def test_partition_that_another_producer_claims_in_between_fences_the_whole_commit(broker: BrokerNode) -> None:
    who = await opened(broker)

    async def claim() -> None:
        broker.group_coordinator.change_claims("g", {("t", 0): Claim(99, "another", 1)})

    with pytest.raises(KafkaError) as refused:
        await executed(broker, txn_request(who), claim)
    assert refused.value.code is ErrorCode.PRODUCER_FENCED
    assert not broker.group_coordinator.may_have_offsets("g")


async def test_claim_made_in_between_is_stored_with_the_offsets(broker: BrokerNode) -> None:
    who = await opened(broker)

    async def claim() -> None:
        broker.group_coordinator.change_claims("g", {("t", 0): Claim(-1, "tx", 1)})

    assert await executed(broker, txn_request(who), claim) == [0]
    await broker.transaction_coordinator.end_txn("tx", *who, True, TV2)
    while None in committed(broker):
        await asyncio.sleep(0)
    assert committed(broker)[0].claim[:3] == (who[0], "tx", 1)


def stored(broker: BrokerNode, group_id: str) -> tuple[Any, ...]:
    """The only batch of the group's partition: what its header says, and its records without the group id."""
    partition = broker.group_coordinator.partition_for(group_id)
    (batch,) = broker.replica_manager.partition("__consumer_offsets", partition).log.windows()
    header = read_batch_header(batch)
    records = [
        (record.offset, record.timestamp, record.key.replace(group_id.encode(), b""), record.value)
        for record in decode_batch(batch, 0, header)
        if record.key is not None
    ]
    return header.attributes, header.producer_id, header.producer_epoch, header.base_sequence, records


@pytest.mark.parametrize("producer_id", [-1, 5])
async def test_prepared_commits_are_stored_as_others_are(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch, producer_id: int
) -> None:
    now_ms = broker.clock.now_ms()
    monkeypatch.setattr(type(broker.clock), "now_ms", lambda clock: now_ms)
    coordinator = broker.group_coordinator
    commits = [Commit(("t", index), index * 1_000, 3, "m" * (index % 300)) for index in range(500)]
    prepared = run_at_once(coordinator.prepare_commit("ours", commits, owner=("tx", producer_id)))
    if producer_id < 0:
        coordinator.commit_prepared(prepared, Committer())
        coordinator.commit_offsets("next", Committer(), commits)
    else:
        coordinator.commit_txn_prepared(prepared, Committer(), producer_id, 2, "tx")
        coordinator.commit_txn_offsets("next", Committer(), producer_id, 2, commits, "tx")
    assert len(stored(broker, "ours")[-1]) == 500
    assert stored(broker, "ours") == stored(broker, "next")
