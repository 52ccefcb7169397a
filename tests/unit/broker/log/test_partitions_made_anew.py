"""A partition deleted and made anew under the same name: nothing that was known of the old one touches the new one."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest
from oncelog.broker.log import LogConfig, LogManager
from oncelog.broker.log.cleaner import Cleaner, CleaningPlan
from structlog.testing import capture_logs
from support.faulty_filesystem import FaultyFileSystem
from support.journals import failing
from support.logs import batch, new_manager, settle, values

CONFIG = LogConfig()


async def stopped(manager: LogManager, fs: FaultyFileSystem, how: str) -> LogManager:
    """The directory opened again after this manager's end."""
    if how == "clean":
        await manager.stop()
    else:
        manager.abandon()
        fs.kill()
    return new_manager(fs)


async def flushed(manager: LogManager, *records: str) -> None:
    log = manager.get("t", 0)
    assert log is not None
    flush = log.synced(log.append(batch(*records)).last_offset + 1)
    assert flush is not None
    await flush


async def first_life(manager: LogManager) -> None:
    """Ten records, of which five are deleted, and every checkpoint knows it."""
    await manager.start()
    manager.create("t", 0, CONFIG)
    for number in range(10):
        await flushed(manager, str(number))
    log = manager.get("t", 0)
    assert log is not None
    log.delete_records_before(5)
    manager._checkpoint()
    assert manager._flusher is not None
    await manager._flusher.submit(lambda: None)


@pytest.mark.parametrize("how", ["clean", "killed"])
async def test_its_records_survive(how: str) -> None:
    fs = FaultyFileSystem()
    manager = new_manager(fs)
    await first_life(manager)
    await manager.delete([("t", 0)])
    manager.create("t", 0, CONFIG)
    await flushed(manager, "a", "b")
    manager = await stopped(manager, fs, how)
    manager.open()
    log = manager.get("t", 0)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)
    assert values(log.batches()) == ["a", "b"]
    manager.abandon()


@pytest.mark.parametrize("how", ["clean", "killed"])
async def test_its_records_survive_when_a_restart_lies_between(how: str) -> None:
    fs = FaultyFileSystem()
    manager = new_manager(fs)
    await first_life(manager)
    await manager.delete([("t", 0)])
    manager = await stopped(manager, fs, how)
    await manager.start()
    manager.create("t", 0, CONFIG)
    await flushed(manager, "a", "b")
    manager = await stopped(manager, fs, "killed")
    manager.open()
    log = manager.get("t", 0)
    assert log is not None
    assert values(log.batches()) == ["a", "b"]
    manager.abandon()


async def test_a_checkpoint_under_way_does_not_bring_the_old_one_back() -> None:
    fs = FaultyFileSystem()
    manager = new_manager(fs)
    await first_life(manager)
    await flushed(manager, "eleventh")
    manager._checkpoint()  # runs in the flush thread, after what follows
    await manager.delete([("t", 0)])
    manager.create("t", 0, CONFIG)
    await flushed(manager, "a", "b")
    manager = await stopped(manager, fs, "killed")
    manager.open()
    log = manager.get("t", 0)
    assert log is not None
    assert values(log.batches()) == ["a", "b"]
    manager.abandon()


async def test_a_crash_before_the_next_checkpoint_is_written_does_not_take_it_offline() -> None:
    fs = FaultyFileSystem()
    manager = new_manager(fs)
    await first_life(manager)
    await manager.delete([("t", 0)])
    manager._checkpoint()  # without the partition, but the flush thread has not written it yet
    manager.create("t", 0, CONFIG).append(batch("a"))
    manager = await stopped(manager, fs, "killed")
    manager.open()
    assert manager.offline == {}
    log = manager.get("t", 0)
    assert log is not None
    assert values(log.batches()) == ["a"]
    manager.abandon()


async def test_two_crashes_after_a_deletion_do_not_make_it_a_lost_one() -> None:
    """The first interrupts the deletion, which the start behind it finishes; the second comes before a checkpoint."""
    fs = FaultyFileSystem()
    manager = new_manager(fs)
    await first_life(manager)
    fs.rename(f"{manager.path}/t-0", f"{manager.path}/t-0.0123456789abcdef0123456789abcdef-delete")
    fs.sync_directory(manager.path)
    for _ in range(2):
        manager = await stopped(manager, fs, "killed")
        manager.open()
        assert manager.lost == {}
    await manager.start()
    await settle(manager)
    assert not [name for name in fs.list(manager.path) if name.endswith("-delete")]
    manager.abandon()


COMPACTED = LogConfig(cleanup_policy=("compact",), segment_bytes=200)
CLEANER_OFFSETS = "cleaner-offset-checkpoint"


async def compacted(manager: LogManager) -> None:
    """A partition of which the checkpoint contains how far it is compacted."""
    await manager.start()
    log = manager.create("t", 0, COMPACTED)
    for _ in range(10):
        log.append(batch("value", key=b"key"))
    await settle(manager)
    await manager._clean_all()
    assert manager.checkpoints.read(CLEANER_OFFSETS)


async def test_the_event_loop_syncs_nothing_to_make_a_compacted_one_anew() -> None:
    fs = FaultyFileSystem()
    manager = new_manager(fs)
    await compacted(manager)
    await manager.delete([("t", 0)])
    blocking: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation in ("fdatasync", "sync_directory") and threading.current_thread() is threading.main_thread():
            blocking.append(path)

    fs.before = note
    manager.create("t", 0, COMPACTED)
    fs.before = None
    assert blocking == []
    assert manager.checkpoints.read(CLEANER_OFFSETS) == {}
    await manager.stop()


async def test_how_far_the_old_one_was_compacted_is_forgotten_even_if_that_fails_at_first() -> None:
    fs = FaultyFileSystem()
    manager = new_manager(fs)
    await compacted(manager)
    fs.before = failing("write", CLEANER_OFFSETS, errno.ENOSPC, times=1)
    await manager.delete([("t", 0)])
    assert manager.checkpoints.read(CLEANER_OFFSETS)
    manager.create("t", 0, COMPACTED)
    assert manager.checkpoints.read(CLEANER_OFFSETS) == {}
    await manager.stop()


@pytest.mark.parametrize("anew", [False, True])
async def test_its_old_compaction_ends_without_a_complaint(anew: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compaction's thread finds no files at the old partition's paths, or those of the new one."""
    fs = FaultyFileSystem()
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, COMPACTED)
    for number in range(5):
        log.append(batch("x" * 50, key=b"%d" % (number % 2)))
    log.roll()
    log.append(batch("last"))
    await settle(manager)
    loop = asyncio.get_running_loop()
    entered, go = asyncio.Event(), threading.Event()
    map_keys = Cleaner.map_keys

    def held(cleaner: Cleaner, plan: CleaningPlan) -> None:
        loop.call_soon_threadsafe(entered.set)
        assert go.wait(20)
        map_keys(cleaner, plan)

    monkeypatch.setattr(Cleaner, "map_keys", held)
    with capture_logs() as logs:
        compaction = asyncio.create_task(manager._clean_all())
        await entered.wait()
        await manager.delete([("t", 0)])
        if anew:
            manager.create("t", 0, COMPACTED)
            await flushed(manager, "new")
        go.set()
        await compaction
        await settle(manager)
    assert [entry for entry in logs if entry["log_level"] in ("warning", "error")] == []
    if anew:
        new = manager.get("t", 0)
        assert new is not None
        assert (new.failure, values(new.batches())) == (None, ["new"])
    await manager.stop()
