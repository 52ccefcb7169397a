"""A sync that fails where a log does not wait for it, in the pool of descriptors for instance, is not forgotten."""

from __future__ import annotations

import asyncio
import errno

import pytest
from oncelog.broker.log import LogConfig
from oncelog.broker.log.removed import keep
from oncelog.broker.system.pooled_files import PooledFileSystem
from oncelog.protocol.errors import KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.inline_threads import InlineThreads
from support.journals import LosesAll, failing, log_of, reopened, round_of, turns, written
from support.logs import batch, new_manager, values

COMPACT = LogConfig(cleanup_policy=("compact",), segment_bytes=400, min_cleanable_dirty_ratio=0)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_a_compaction_whose_bytes_were_lost_in_a_sync_of_the_pool_replaces_nothing(number: int) -> None:
    """Other files need descriptors while the index of the new segment is synced, so the pool syncs its batches."""
    disk = FaultyFileSystem()
    files = PooledFileSystem(disk, 100)
    manager = new_manager(files, threads=InlineThreads())  # type: ignore[arg-type]
    await manager.start()
    log = manager.create("t", 0, COMPACT)
    for key in range(12):
        flush = log.synced(log.append(batch(f"value {key}", key=b"%d" % key)).last_offset + 1)
        assert flush is not None
        await asyncio.shield(flush)
    before = values(log.batches())
    is_failing = has_failed = False

    def fail(operation: str, path: str) -> None:
        nonlocal is_failing, has_failed
        if operation == "fdatasync" and path.endswith(".index.cleaned") and not (has_failed or is_failing):
            is_failing = True
            while not has_failed and files.pool.sync_oldest():
                pass
            is_failing = False
        if operation == "fdatasync" and path.endswith(".log.cleaned") and is_failing:
            has_failed = True
            raise OSError(number, "failed on purpose", path)

    disk.before = fail
    manager._clean()
    assert manager._cleaning is not None
    await manager._cleaning
    await turns()
    assert has_failed
    disk.before = None
    manager.abandon()
    disk.crash(LosesAll())
    manager = reopened(disk)
    assert values(log_of(manager, "t").batches()) == before
    manager.abandon()


def test_bytes_that_are_cut_off_are_kept_although_the_pool_has_noticed_that_they_were_lost() -> None:
    """The pool syncs the copy after its last write, and the sync fails."""
    disk = FaultyFileSystem()
    files = PooledFileSystem(disk, 100)
    disk.make_directory("/data")
    disk.make_directory("/data/t-0")
    source = disk.open("/data/t-0/log", create=True)
    source.write_at([b"some bytes"], 0)
    source.close()
    copy, left = "/data/removed/torn/log.from-0", [1]

    def fail(operation: str, path: str) -> None:
        if operation == "read" and disk.exists(copy) and disk._get(copy).data:
            while left[0] and files.pool.sync_oldest():
                pass
        if operation == "fdatasync" and path == copy and left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, "failed on purpose", path)

    disk.before = fail
    with pytest.raises(OSError, match="earlier sync failed"):
        keep(files, "/data/t-0/log", 0, "/data/removed/torn")
    assert not left[0]


async def test_a_partition_with_bytes_in_the_journal_only_takes_writes_again_when_there_is_space() -> None:
    """Nothing but the pool syncs its file, and the pool finds no space once."""
    disk = FaultyFileSystem()
    files = PooledFileSystem(disk, 100)
    manager = new_manager(files, threads=InlineThreads(), journal_bytes=1 << 20)  # type: ignore[arg-type]
    await manager.start()
    assert manager._journal is not None
    manager._journal.want()
    for topic in "abc":
        await written(manager.create(topic, 0, LogConfig()), "first")
    await turns()
    await round_of(manager, "a", "b", "c")
    log = log_of(manager, "a")
    assert log.files.synced_offset < log.files.flushed_offset
    disk.before = failing("fdatasync", "/a-0/", errno.ENOSPC)
    while files.pool.sync_oldest():
        pass
    disk.before = None
    with pytest.raises(KafkaError):
        await written(log, "refused")
    await turns()
    await written(log, "accepted")
    await manager.stop()
    manager = reopened(disk)
    assert values(log_of(manager, "a").batches()) == ["first", "value", "accepted"]
    manager.abandon()


async def test_a_stop_waits_for_no_compaction_that_waits_for_space(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs, threads=InlineThreads())
    await manager.start()
    log = manager.create("t", 0, COMPACT)
    for number in range(12):
        await written(log, f"value {number}")
    fs.before = failing("fdatasync", ".log", errno.ENOSPC, times=1_000_000)
    log.append(batch("not acknowledged"))
    await turns()
    manager._clean()
    await turns()
    assert manager._cleaning is not None
    assert not manager._cleaning.done()
    async with asyncio.timeout(60):
        await manager.stop()
