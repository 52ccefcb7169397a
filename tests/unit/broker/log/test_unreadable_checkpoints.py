"""A start from a disk that cannot read a checkpoint (EIO): nothing acknowledged is cut, nothing deleted comes back.

What can be known without the checkpoint is served. The error is transient (one read) or lasting.
"""

from __future__ import annotations

import errno
import random

import pytest
from oncelog.broker.log import LogConfig, LogManager
from oncelog.broker.log.data_directory import DataDirectoryError
from oncelog.broker.log.repair import repair
from oncelog.protocol.errors import ErrorCode
from support.faulty_filesystem import FaultyFileSystem
from support.journals import failing
from support.logs import at_once, batch, new_manager, values_of

POINTS = "recovery-point-offset-checkpoint"
STARTS = "log-start-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
FLUSHED = "flushed-offset"

LASTING = 1000
TIMES = pytest.mark.parametrize("times", [1, LASTING], ids=["transient", "lasting"])
BOOTS = pytest.mark.parametrize("power_fails", [False, True], ids=["killed", "power failed"])

RECORDS = [f"record {number}" for number in range(5)]


def segment(partition: int) -> str:
    return f"/data/t-{partition}/00000000000000000000.log"


async def filled(fs: FaultyFileSystem, *, power_fails: bool, point: int = 5) -> None:
    """Two partitions with five acknowledged records each, after the end of a broker without a stop.

    `point`: the recovery point in the checkpoint, which is written more rarely than the partitions' own files.
    """
    manager = new_manager(fs)
    await manager.start()
    for partition in range(2):
        log = at_once(manager.create("t", partition, LogConfig()))
        for value in RECORDS:
            log.append(batch(value))
        flush = log.flushed(len(RECORDS))
        if flush is not None:
            await flush
    for name in (POINTS, CLEANED):
        manager.checkpoints.write(name, {("t", partition): point if name == POINTS else 0 for partition in range(2)})
    manager.abandon()
    if power_fails:
        for partition in range(2):  # the operating system has written these files by itself meanwhile
            fs.open(f"/data/t-{partition}/{FLUSHED}").fdatasync()
            fs.sync_directory(f"/data/t-{partition}")
        fs.crash(random.Random(1))
    else:
        fs.kill()


def opened(fs: FaultyFileSystem, *faults: tuple[str, int]) -> LogManager:
    fs.before = None
    for part, times in faults:
        fs.before = failing("read", part, errno.EIO, times=times)
    manager = new_manager(fs)
    manager.open()
    return manager


def content(manager: LogManager, partition: int) -> list[str]:
    log = manager.read_only.get(("t", partition)) or manager.get("t", partition)
    assert log is not None
    return values_of(at_once(log.read(log.log_start_offset, 1 << 20)).records)


def damage(fs: FaultyFileSystem, partition: int) -> bytes:
    """Damage the last record's batch on disk; return the segment's bytes."""
    node = fs._get(segment(partition))
    node.data[-3] ^= 0xFF
    node.disk = bytes(node.data)
    return node.disk


@TIMES
@BOOTS
@pytest.mark.parametrize("name", [POINTS, CLEANED, f"t-0/{FLUSHED}"])
async def test_whole_partition_is_served_without_the_checkpoint(
    fs: FaultyFileSystem, name: str, power_fails: bool, times: int
) -> None:
    await filled(fs, power_fails=power_fails)
    manager = opened(fs, (name, times))
    assert not manager.offline
    assert [content(manager, partition) for partition in range(2)] == [RECORDS] * 2
    log = manager.get("t", 0)
    assert log is not None
    assert log.append(batch("next")).base_offset == 5
    log.flush()
    fs.before = None
    await manager.stop()
    again = opened(fs)
    assert content(again, 0) == [*RECORDS, "next"]
    again.abandon()


@TIMES
@BOOTS
@pytest.mark.parametrize("name", [POINTS, f"t-0/{FLUSHED}"])
async def test_nothing_is_cut_without_the_checkpoint(
    fs: FaultyFileSystem, name: str, power_fails: bool, times: int
) -> None:
    """A damage at the end of a log looks like a torn write, but the records there were acknowledged."""
    await filled(fs, power_fails=power_fails, point=5 if name == POINTS else 2)
    if name == POINTS:
        fs.unlink(f"/data/t-0/{FLUSHED}")
    damaged = damage(fs, 0)
    manager = opened(fs, (name, times))
    assert manager.offline.keys() == {("t", 0)}
    error = manager.offline["t", 0]
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert f"/data/{name} cannot be read" in str(error)
    assert "log repair" in str(error)
    assert content(manager, 0) == RECORDS[:4], "the records in front of the damage can be read"
    assert content(manager, 1) == RECORDS
    fs.before = None
    await manager.stop()
    assert fs.read_file(segment(0)) == damaged
    again = opened(fs)
    assert again.offline.keys() == {("t", 0)}, "the next start knows no more"
    assert fs.read_file(segment(0)) == damaged
    again.abandon()
    fs.kill()
    assert [found.lost_from_offset for found in repair("/data", fs)] == [4]
    repaired = opened(fs)
    assert content(repaired, 0) == RECORDS[:4]
    assert not repaired.offline
    repaired.abandon()


async def test_damage_is_repaired_although_the_flushed_offset_cannot_be_read(fs: FaultyFileSystem) -> None:
    await filled(fs, power_fails=True, point=2)
    damage(fs, 0)
    fs.before = failing("read", f"t-0/{FLUSHED}", errno.EIO, times=LASTING)
    assert [found.lost_from_offset for found in repair("/data", fs)] == [4]
    manager = new_manager(fs)
    manager.open()
    assert content(manager, 0) == RECORDS[:4]
    manager.abandon()


@TIMES
async def test_deleted_records_do_not_come_back_when_their_checkpoint_cannot_be_read(
    fs: FaultyFileSystem, times: int
) -> None:
    await filled(fs, power_fails=False)
    manager = opened(fs)
    await manager.start()
    log = manager.get("t", 0)
    assert log is not None
    log.delete_records_before(3)
    await manager.start_offsets_on_disk()
    await manager.stop()
    with pytest.raises(DataDirectoryError) as caught:
        opened(fs, (STARTS, times))
    assert f"/data/{STARTS} cannot be read" in str(caught.value)
    assert "Check the disk and start the broker again" in str(caught.value)
    manager = opened(fs)
    log = manager.get("t", 0)
    assert log is not None
    assert log.log_start_offset == 3
    manager.abandon()


@pytest.mark.parametrize("name", [POINTS, STARTS, CLEANED])
async def test_checkpoint_that_may_not_be_read_refuses_the_start(fs: FaultyFileSystem, name: str) -> None:
    """A wrong owner of a file is a mistake that is easy to correct, so nothing is guessed."""
    await filled(fs, power_fails=False)
    fs.before = failing("read", name, errno.EACCES, times=LASTING)
    with pytest.raises(DataDirectoryError, match="cannot be read"):
        new_manager(fs).open()
