"""What clients find when the broker has started, and what they are told when it stops, in simulated time."""

from __future__ import annotations

import asyncio
import errno
import os
from random import Random
from unittest import mock

import pytest
from oncelog.broker.config import BrokerConfig
from oncelog.broker.coordinator.group.member import ClientIdentity, OfferedProtocol, OfferedProtocols
from oncelog.broker.coordinator.group.membership import Join
from oncelog.broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog.broker.coordinator.transaction.producer_ids import ProducerIdManager
from oncelog.broker.node import BrokerNode, BrokerStartError
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.faulty_filesystem import FaultyFileSystem
from support.simulation.broker import Silent, SimulatedBroker, simulated_parts
from support.simulation.world import SETTINGS, SimulationLoop

SESSION_MS = 6_000


async def join(broker: SimulatedBroker) -> str:
    """Make a stable group of one; returns the member id."""
    groups = broker.broker.group_coordinator
    request = Join(
        "group",
        "",
        None,
        ClientIdentity("client", "/here"),
        SESSION_MS,
        SESSION_MS,
        "consumer",
        OfferedProtocols([OfferedProtocol("range", b"")]),
        requires_known_member_id=False,
    )
    joined = await groups.join(request)
    assert joined.error_code == 0
    assignment = SyncGroupRequestAssignment(joined.member_id, b"all")
    sync = SyncGroupRequest("group", joined.generation_id, joined.member_id, assignments=[assignment])
    assert (await groups.sync(sync)).error_code == 0
    return joined.member_id


def test_slow_start_empties_no_group() -> None:
    load = TransactionCoordinator.start

    async def slow(self: TransactionCoordinator) -> None:
        await asyncio.sleep(10 * SESSION_MS / 1000)
        await load(self)

    async def run() -> None:
        log = Silent()
        broker = SimulatedBroker(FaultyFileSystem(), BrokerConfig(SETTINGS), Random(1), log)
        with simulated_parts(log):
            await broker.start()
            member_id = await join(broker)
            await broker.stop()
            with mock.patch.object(TransactionCoordinator, "start", slow):
                await broker.start()
            groups = broker.broker.group_coordinator
            assert groups.heartbeat("group", member_id, None, 1) is ErrorCode.NONE
            await asyncio.sleep(SESSION_MS / 1000 - 0.1)
            assert groups.heartbeat("group", member_id, None, 1) is ErrorCode.NONE
            await asyncio.sleep(SESSION_MS / 1000 + 0.1)
            with pytest.raises(KafkaError) as caught:
                groups.heartbeat("group", member_id, None, 1)
            assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            await broker.stop()

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        runner.run(run())


async def test_request_that_waits_for_producer_ids_is_told_to_ask_again_at_a_stop() -> None:
    never: asyncio.Future[range] = asyncio.get_running_loop().create_future()

    async def allocate() -> range:
        return await never

    ids = ProducerIdManager(allocate)
    waiting = asyncio.ensure_future(ids.next())
    await asyncio.sleep(0)
    await ids.close()
    for request in (waiting, asyncio.ensure_future(ids.next())):
        with pytest.raises(KafkaError) as caught:
            await request
        assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_waiter_that_is_cancelled_leaves_the_block_to_others() -> None:
    block: asyncio.Future[range] = asyncio.get_running_loop().create_future()

    async def allocate() -> range:
        return await block

    ids = ProducerIdManager(allocate)
    gone, waiting = asyncio.ensure_future(ids.next()), asyncio.ensure_future(ids.next())
    await asyncio.sleep(0)
    gone.cancel()
    block.set_result(range(7, 9))
    assert await waiting == 7
    with pytest.raises(asyncio.CancelledError):
        await gone


def test_deletion_on_its_way_to_the_disk_at_a_stop_is_finished() -> None:
    async def run() -> list[str]:
        log = Silent()
        broker = SimulatedBroker(FaultyFileSystem(), BrokerConfig(SETTINGS), Random(1), log)
        with simulated_parts(log):
            await broker.start()
            topic = await broker.broker.metadata.create_topic("topic", 1, {})
            deletion = broker.broker.metadata.delete_topic(topic)
            assert not deletion.done()
            await broker.stop()
            assert deletion.done()
        return log.alarms

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        assert runner.run(run()) == []


class ThinDisk(FaultyFileSystem):
    """A disk on which, while it `is_full`, the sync of a log finds no space, although the write found some."""

    is_full = False

    def check(self, operation: str, path: str) -> None:
        if self.is_full and operation == "fdatasync" and path.endswith(".log"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().check(operation, path)


@pytest.mark.parametrize("change", ["creation", "deletion"])
def test_stop_does_not_wait_for_space_for_a_change_of_the_metadata(change: str) -> None:
    async def run() -> None:
        log, disk = Silent(), ThinDisk()
        broker = SimulatedBroker(disk, BrokerConfig(SETTINGS), Random(1), log)
        with simulated_parts(log):
            await broker.start()
            metadata = broker.broker.metadata
            topic = await metadata.create_topic("topic", 1, {})
            disk.is_full = True
            changed = metadata.delete_topic(topic) if change == "deletion" else metadata.create_topic("other", 1, {})
            await asyncio.sleep(5)
            assert not changed.done()
            async with asyncio.timeout(SESSION_MS / 1000):
                await broker.stop()
            with pytest.raises(KafkaError):
                await changed
            disk.is_full = False
            await broker.start()
            await broker.broker.metadata.settled()
            assert broker.broker.metadata.deleting() == []
            await broker.stop()

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        runner.run(run())


def test_start_does_not_wait_for_space_to_finish_a_deletion() -> None:
    async def run() -> None:
        log, disk = Silent(), ThinDisk()
        broker = SimulatedBroker(disk, BrokerConfig(SETTINGS), Random(1), log)
        with simulated_parts(log):
            await broker.start()
            topic = await broker.broker.metadata.create_topic("topic", 1, {})
            broker.broker.metadata.on_topic_deleted[:] = [_fail]
            await broker.broker.metadata.delete_topic(topic)
            await broker.stop()
            disk.is_full = True
            async with asyncio.timeout(60):
                await broker.start()
            assert broker.broker.metadata.topic("topic") is None
            disk.is_full = False
            await broker.broker.metadata.settled()
            assert broker.broker.metadata.deleting() == []
            await broker.stop()

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        runner.run(run())


def _fail(_: object) -> None:
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "failed on purpose")


@pytest.mark.parametrize("capacity", [2_000, 20_000, 2_000_000])
async def test_first_start_on_a_full_disk_says_that_the_broker_has_to_be_started_again(capacity: int) -> None:
    fs = FaultyFileSystem()
    fs.capacity = capacity
    broker = BrokerNode("/data", fs=fs, logging_level="error")
    with pytest.raises(BrokerStartError, match=r"is full .*The broker has not started. Correct the cause, then"):
        await broker.start()
    fs.capacity = None
    broker = BrokerNode("/data", fs=fs, logging_level="error")
    await broker.start()
    await broker.stop()
