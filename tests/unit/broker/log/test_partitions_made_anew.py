"""A partition deleted and made anew under the same name: nothing that was known of the old one touches the new one."""

from __future__ import annotations

import pytest
from oncelog.broker.log import LogConfig, LogManager
from support.faulty_filesystem import FaultyFileSystem
from support.logs import batch, new_manager, values

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
    assert not [name for name in fs.list(manager.path) if name.endswith("-delete")]
    manager.abandon()
