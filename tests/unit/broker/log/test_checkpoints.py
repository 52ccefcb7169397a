"""Where offsets of all partitions are kept: the contract of both implementations, and logs over either of them."""

from __future__ import annotations

import asyncio

import pytest
from oncelog.broker.log.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, CheckpointFiles, Checkpoints
from oncelog.broker.log.log_config import LogConfig
from oncelog.broker.log.log_manager import LogManager
from support.faulty_filesystem import FaultyFileSystem
from support.logs import DATA, batch, new_manager, values
from support.memory_checkpoints import MemoryCheckpoints


@pytest.fixture
def fs() -> FaultyFileSystem:
    fs = FaultyFileSystem()
    fs.make_directory(DATA)
    return fs


@pytest.fixture(params=["files", "memory"])
def checkpoints(request: pytest.FixtureRequest, fs: FaultyFileSystem) -> Checkpoints:
    return CheckpointFiles(fs, DATA) if request.param == "files" else MemoryCheckpoints()


def test_a_checkpoint_that_was_never_written_is_none(checkpoints: Checkpoints) -> None:
    checkpoints.write(LOG_START_OFFSETS, {})
    assert checkpoints.read(RECOVERY_POINTS) is None
    assert checkpoints.read(LOG_START_OFFSETS) == {}


def test_a_write_replaces_the_whole_checkpoint(checkpoints: Checkpoints) -> None:
    checkpoints.write(RECOVERY_POINTS, {("t", 0): 1, ("a.b-c", 11): 2**40})
    checkpoints.write(RECOVERY_POINTS, {("t", 1): 3})
    assert checkpoints.read(RECOVERY_POINTS) == {("t", 1): 3}


def test_what_was_read_may_be_changed(checkpoints: Checkpoints) -> None:
    checkpoints.write(RECOVERY_POINTS, {("t", 0): 1})
    read = checkpoints.read(RECOVERY_POINTS)
    assert read is not None
    read[("t", 0)] = 2
    assert checkpoints.read(RECOVERY_POINTS) == {("t", 0): 1}


async def first_life(fs: FaultyFileSystem, checkpoints: Checkpoints) -> LogManager:
    """Ten records on disk, of which three are deleted."""
    manager = new_manager(fs, checkpoints=checkpoints)
    await manager.start()
    log = manager.create("t", 0, LogConfig(segment_bytes=100))
    for number in range(10):
        log.append(batch(str(number)))
    flush = log.synced(10)
    assert flush is not None
    await flush
    log.delete_records_before(3)
    await manager.start_offsets_on_disk()
    manager._checkpoint()
    assert manager._flusher is not None
    await manager._flusher.drain()
    return manager


@pytest.mark.parametrize("how", ["clean", "killed"])
async def test_logs_begin_and_end_where_the_checkpoints_say(
    fs: FaultyFileSystem, checkpoints: Checkpoints, how: str
) -> None:
    manager = await first_life(fs, checkpoints)
    if how == "clean":
        await manager.stop()
    else:
        manager.abandon()
        fs.kill()
    assert checkpoints.read(LOG_START_OFFSETS) == {("t", 0): 3}
    assert checkpoints.read(RECOVERY_POINTS) == {("t", 0): 10}
    assert any("checkpoint" in name for name in fs.list(DATA)) == isinstance(checkpoints, CheckpointFiles)
    manager = new_manager(fs, checkpoints=checkpoints)
    manager.open()
    log = manager.get("t", 0)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (3, 10)
    assert values(log.batches()) == ["3", "4", "5", "6", "7", "8", "9"]
    manager.abandon()


async def test_a_partition_that_has_a_recovery_point_and_no_directory_is_lost(
    fs: FaultyFileSystem, checkpoints: Checkpoints
) -> None:
    (await first_life(fs, checkpoints)).abandon()
    fs.kill()
    fs.rename(f"{DATA}/t-0", f"{DATA}/moved")
    manager = new_manager(fs, checkpoints=checkpoints)
    manager.open()
    assert manager.lost == {("t", 0): 10}
    manager.abandon()


async def test_a_deleted_partition_is_in_no_checkpoint(fs: FaultyFileSystem, checkpoints: Checkpoints) -> None:
    manager = await first_life(fs, checkpoints)
    await manager.delete([("t", 0)])
    assert (checkpoints.read(LOG_START_OFFSETS), checkpoints.read(RECOVERY_POINTS)) == ({}, {})
    await manager.stop()


async def test_very_many_logs_are_looked_at_in_slices_for_a_checkpoint(
    fs: FaultyFileSystem, checkpoints: Checkpoints
) -> None:
    manager = new_manager(fs, checkpoints=checkpoints)
    await manager.start()
    logs = [manager.create("t", number, LogConfig()) for number in range(1_200)]
    assert manager._flusher is not None
    for log in logs[:2]:
        log.append(batch("a"))
    await manager._flusher.drain()
    manager._checkpoint()
    assert manager._checkpointing is not None
    assert not manager._checkpointing.done()
    # What has changed since a log was looked at.
    logs[0].append(batch("b"))
    logs[0].flush()
    deletion = asyncio.ensure_future(manager.delete([("t", 1)]))
    turns = 0
    while not manager._checkpointing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 2
    await deletion
    await manager._flusher.drain()
    assert checkpoints.read(RECOVERY_POINTS) == {("t", number): 0 for number in range(2, 1_200)} | {("t", 0): 2}
    manager.abandon()


async def test_the_recovery_point_of_a_forgotten_partition_leaves_the_checkpoint(
    fs: FaultyFileSystem, checkpoints: Checkpoints
) -> None:
    (await first_life(fs, checkpoints)).abandon()
    fs.kill()
    fs.rename(f"{DATA}/t-0", f"{DATA}/moved")
    manager = new_manager(fs, checkpoints=checkpoints)
    await manager.start()
    manager.forget(("t", 0))
    manager._checkpoint()
    assert manager._flusher is not None
    await manager._flusher.drain()
    assert checkpoints.read(RECOVERY_POINTS) == {}
    manager.abandon()
