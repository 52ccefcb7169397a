"""What may still be written to a disk that is nearly full: no records, then no offsets either, but always decisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from oncelog.broker.coordinator.group.coordinator import Commit, Committer
from oncelog.broker.coordinator.transaction.state import TransactionVersion
from oncelog.broker.log import AppendOrigin
from oncelog.broker.log.disk_space import DiskSpace
from oncelog.broker.node import BrokerNode
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.raw_connection import batch

RESERVE = 64 * 1024
TV2 = TransactionVersion.TV_2


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
async def broker(fs: FaultyFileSystem) -> AsyncIterator[BrokerNode]:
    async with BrokerNode(
        "/data",
        fs=fs,
        logging_level="error",
        durability="os",
        log_reserve_bytes=RESERVE,
        log_reserve_decision_bytes=RESERVE // 4,
    ) as broker:
        await broker.metadata.create_topic("t", 1, {})
        yield broker


def fill(broker: BrokerNode, fs: FaultyFileSystem, left: int) -> None:
    fs.capacity = fs.used() + left
    broker.log_manager._disk_space.refresh()


def commit_offset(broker: BrokerNode, group_id: str) -> None:
    broker.group_coordinator.commit_offsets(group_id, Committer(), [Commit(("t", 0), 1, -1, None)])


def refused(broker: BrokerNode, group_id: str) -> KafkaError | None:
    try:
        commit_offset(broker, group_id)
    except KafkaError as error:
        return error
    return None


async def open_transaction(broker: BrokerNode, transactional_id: str) -> tuple[int, int]:
    who = await broker.transaction_coordinator.init_producer_id(transactional_id, 60_000)
    await broker.transaction_coordinator.registration.add_partitions(transactional_id, *who, [("t", 0)], TV2)
    log = broker.replica_manager.partition("t", 0).log
    log.append(batch(b"x", producer_id=who[0], producer_epoch=who[1], base_sequence=0, transactional=True))
    return who


async def all_complete(broker: BrokerNode, transactional_ids: Iterable[str]) -> None:
    """Wait until the markers of these ids' transactions are written, and write their last records."""
    state = broker.transaction_coordinator.state
    for transactional_id in transactional_ids:
        while (entry := state.get(transactional_id)) is None or entry.metadata.state.is_prepare:
            await asyncio.sleep(0)
    state.write_completed()


async def test_markers_of_an_internal_topic_may_use_the_whole_reserve(broker: BrokerNode, fs: FaultyFileSystem) -> None:
    commit_offset(broker, "g")
    (log,) = [log for log in broker.log_manager.logs() if log.topic == "__consumer_offsets"]
    fill(broker, fs, RESERVE // 8)
    marker, end = control_batch(True, 0, 7, 0, 0), log.log_end_offset
    assert log.append(bytearray(marker), origin=AppendOrigin.COORDINATOR).last_offset == end
    with pytest.raises(KafkaError, match=r"log\.reserve\.decision\.bytes"):
        log.append(bytearray(batch(b"x")), origin=AppendOrigin.COORDINATOR)


def test_a_refusal_names_the_bytes_that_are_really_kept(fs: FaultyFileSystem) -> None:
    fs.make_directory("/data")
    fs.capacity = fs.used()
    with pytest.raises(KafkaError, match=r"full except for 500 bytes, which log\.reserve\.decision\.bytes keeps for"):
        DiskSpace(fs, "/data", reserve_bytes=1000, decision_bytes=900).require_internally(1)


async def test_offset_commits_leave_room_for_decisions_and_markers(broker: BrokerNode, fs: FaultyFileSystem) -> None:
    who = await open_transaction(broker, "id")
    fill(broker, fs, RESERVE)
    refusals = [error for number in range(10_000) if (error := refused(broker, f"group-{number}")) is not None]
    assert 100 < len(refusals) < 10_000
    assert {error.code for error in refusals} == {ErrorCode.NOT_COORDINATOR}, "a retriable code"
    assert "log.reserve.decision.bytes" in str(refusals[0])
    with pytest.raises(KafkaError):
        await broker.transaction_coordinator.init_producer_id("another", 60_000)
    await broker.transaction_coordinator.end_txn("id", *who, True, TV2)
    log = broker.replica_manager.partition("t", 0).log
    while log.last_stable_offset < log.log_end_offset:
        await asyncio.sleep(0)
    assert log.log_end_offset == 2


@pytest.mark.parametrize("session", [0, 600])
async def test_aborts_without_a_transaction_leave_room_for_decisions(
    broker: BrokerNode, fs: FaultyFileSystem, session: int
) -> None:
    transactions = broker.transaction_coordinator
    who = await open_transaction(broker, "id")
    other = await transactions.init_producer_id("other", 60_000)
    if session:
        partitions = [("other", index) for index in range(session)]
        await broker.metadata.create_topic("other", session, {})
        await transactions.registration.add_partitions("other", *other, partitions, TV2, session=True)
        other = await transactions.end_txn("other", *other, True, TV2, written=frozenset(), keeps_session=True)

    async def abort_nothing(times: int) -> None:
        nonlocal other
        for _ in range(times):
            other = await transactions.end_txn("other", *other, False, TV2)

    fill(broker, fs, RESERVE)
    with pytest.raises(KafkaError) as caught:
        await abort_nothing(10_000)
    assert caught.value.code is ErrorCode.NOT_COORDINATOR, "a retriable code"
    assert "log.reserve.decision.bytes" in str(caught.value)
    broker.log_manager._disk_space.refresh()
    assert fs.capacity is not None
    assert fs.capacity - fs.used() > RESERVE // 8
    await transactions.end_txn("id", *who, True, TV2)
    fs.capacity = None
    broker.log_manager._disk_space.refresh()
    await abort_nothing(1)


@pytest.mark.parametrize("commits", [False, True])
async def test_simultaneous_aborts_without_a_transaction_leave_room_for_decisions(
    broker: BrokerNode, fs: FaultyFileSystem, commits: bool
) -> None:
    """Each passed the check before the second record of any of them was written."""
    transactions = broker.transaction_coordinator
    who = await open_transaction(broker, "id")
    partitions = [("other", index) for index in range(600)]
    await broker.metadata.create_topic("other", len(partitions), {})
    others: dict[str, tuple[int, int]] = {}
    for number in range(20):
        name = f"other-{number}"
        other = await transactions.init_producer_id(name, 60_000)
        await transactions.registration.add_partitions(name, *other, partitions, TV2, session=True)
        others[name] = await transactions.end_txn(name, *other, True, TV2, written=frozenset(), keeps_session=True)
    await all_complete(broker, others)
    fill(broker, fs, RESERVE)
    ends = [transactions.end_txn(name, *other, False, TV2) for name, other in others.items()]
    codes = [
        error.code for error in await asyncio.gather(*ends, return_exceptions=True) if isinstance(error, KafkaError)
    ]
    assert 0 < len(codes) < len(others)
    assert set(codes) == {ErrorCode.NOT_COORDINATOR}, "a retriable code"
    if commits:  # they must not take the space of the records that follow
        refusals = [error for number in range(1000) if (error := refused(broker, f"group-{number}")) is not None]
        assert refusals
    await all_complete(broker, others)
    assert fs.capacity is not None
    assert fs.capacity - fs.used() > RESERVE // 5
    await transactions.end_txn("id", *who, True, TV2)
    fs.capacity = None
    broker.log_manager._disk_space.refresh()
    for name in others:
        await transactions.end_txn(name, *await transactions.init_producer_id(name, 60_000), False, TV2)
    await all_complete(broker, others)
    assert broker.log_manager._disk_space._kept == 0


async def test_space_is_freed_while_offsets_are_refused(broker: BrokerNode, fs: FaultyFileSystem) -> None:
    commit_offset(broker, "group")
    fill(broker, fs, RESERVE // 4)
    with pytest.raises(KafkaError):
        commit_offset(broker, "group")
    broker.group_coordinator.delete_group("group")
    topic = broker.metadata.topic("t")
    assert topic is not None
    await broker.metadata.delete_topic(topic)
    with pytest.raises(KafkaError):
        await broker.metadata.create_topic("u", 1, {})


def test_decisions_have_half_of_the_reserve_at_most(fs: FaultyFileSystem) -> None:
    assert DiskSpace(fs, "/", 1000, 2000).decision_bytes == 500
    assert DiskSpace(fs, "/", 1000, 200).decision_bytes == 200
    assert DiskSpace(fs, "/", 0, 200).decision_bytes == 0
