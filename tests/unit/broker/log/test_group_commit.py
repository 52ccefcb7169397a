"""Which syncs wait for which: logs are put on disk side by side, and nobody's answer waits for housekeeping."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from oncelog.broker.log import LogConfig, LogManager
from oncelog.broker.ports import Lane
from oncelog.broker.threads import RealThreads
from support.faulty_filesystem import FaultyFileSystem
from support.logs import batch, new_manager

CONFIG = LogConfig()
LATER = LogConfig(durability="os", unsaved_bytes=0)
ENOUGH_S = 10


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem()


@contextmanager
def held(fs: FaultyFileSystem, operation: str, part: str) -> Iterator[threading.Event]:
    """While this lasts, an operation on a path that contains `part` does not end; the event says that it has begun."""
    begun, go_on = threading.Event(), threading.Event()

    def hold(name: str, path: str) -> None:
        if name == operation and part in path:
            begun.set()
            go_on.wait(ENOUGH_S)

    fs.before = hold
    try:
        yield begun
    finally:
        fs.before = None
        go_on.set()


def until_set(event: threading.Event) -> None:
    """A job that ends when the event is set."""
    assert event.wait(ENOUGH_S)


async def until(event: threading.Event) -> None:
    async with asyncio.timeout(ENOUGH_S):
        while not event.is_set():
            await asyncio.sleep(0)


async def settle(manager: LogManager) -> None:
    assert manager._flusher is not None
    await manager._flusher.drain()


async def test_a_log_is_acknowledged_when_its_own_sync_is_done(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    slow, quick = manager.create("slow", 0, CONFIG), manager.create("quick", 0, CONFIG)
    await settle(manager)
    with held(fs, "fdatasync", "slow-0") as begun:
        slow.append(batch("a"))
        slow_flush = slow.flushed(1)
        quick.append(batch("b"))
        quick_flush = quick.flushed(1)
        assert slow_flush is not None
        assert quick_flush is not None
        await until(begun)
        async with asyncio.timeout(ENOUGH_S):
            await quick_flush
        assert quick.high_watermark == 1
        assert not slow_flush.done()
        assert slow.high_watermark == 0
    await slow_flush
    await manager.stop()


async def test_a_flush_does_not_wait_for_housekeeping(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, CONFIG)
    await settle(manager)
    assert manager._flusher is not None
    go_on = threading.Event()
    job = manager._flusher.submit(lambda: until_set(go_on))
    log.append(batch("a"))
    async with asyncio.timeout(ENOUGH_S):
        await asyncio.shield(log.flushed(1) or asyncio.sleep(0))
    assert not job.done()
    go_on.set()
    await manager.stop()


async def test_partitions_that_are_made_together_share_the_syncs_of_the_data_directory(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    await settle(manager)
    syncs: list[str] = []
    fs.before = lambda operation, path: syncs.append(path) if (operation, path) == ("sync_directory", "/data") else None
    for number in range(200):
        manager.create("t", number, CONFIG).append(batch("a"))
    await settle(manager)
    assert 0 < len(syncs) < 10
    manager.abandon()
    assert all(f"t-{number}" in fs._get("/data").names_on_disk for number in range(200))


async def test_a_roll_does_not_sync_the_data_directory(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, LogConfig(segment_bytes=100))
    log.append(batch("a"))
    await settle(manager)
    synced: list[str] = []
    fs.before = lambda operation, path: synced.append(path) if operation == "sync_directory" else None
    log.append(batch("b"))
    log.append(batch("c"))
    await settle(manager)
    assert set(synced) == {"/data/t-0"}
    await manager.stop()


async def test_a_log_that_somebody_waits_for_goes_before_those_that_nobody_waits_for(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs, threads=RealThreads({Lane.FLUSH: 1}))
    await manager.start()
    urgent = manager.create("urgent", 0, CONFIG)
    others = [manager.create("t", number, LATER) for number in range(300)]
    await settle(manager)
    order: list[str] = []
    fs.before = lambda operation, path: order.append(path) if operation == "fdatasync" else None
    for log in others:
        log.append(batch("a"))
        log.sync_later()
    urgent.append(batch("b"))
    flush = urgent.flushed(1)
    assert flush is not None
    async with asyncio.timeout(ENOUGH_S):
        await flush
    await settle(manager)
    assert len(order) == 301
    assert order.index("/data/urgent-0/00000000000000000000.log") < 150
    await manager.stop()


async def test_a_stop_puts_logs_on_disk_side_by_side(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    for number in range(8):
        manager.create("t", number, LATER).append(batch("a"))
    await settle(manager)
    together = threading.Barrier(8, timeout=ENOUGH_S)

    def meet(operation: str, path: str) -> None:
        if operation == "fdatasync" and path.endswith(".log"):
            together.wait()

    fs.before = meet
    await manager.stop()
    assert not together.broken
    fs.before = None
    manager = new_manager(fs)
    manager.open()
    assert manager.clean_start
    assert all(log.unsaved_bytes == 0 for log in manager.logs()), "none was scanned"
    manager.abandon()


@pytest.mark.parametrize("operation", ["write", "fdatasync"])
async def test_a_log_that_cannot_be_closed_makes_the_stop_unclean_for_itself_alone(
    fs: FaultyFileSystem, operation: str
) -> None:
    manager = new_manager(fs)
    await manager.start()
    for number in range(3):
        manager.create("t", number, LATER).append(batch("a"))
    await settle(manager)
    for log in manager.logs():
        log.append(batch("b"))

    def refuse(name: str, path: str) -> None:
        if name == operation and path.startswith("/data/t-1/") and not path.endswith("flushed-offset"):
            raise OSError(errno.EIO, "failed on purpose")

    fs.before = refuse
    await manager.stop()
    fs.before = None
    manager = new_manager(fs)
    assert manager.directory.clean_shutdown() == {"t-1"}
    manager.open()
    assert manager.clean_start
    assert sorted(log.log_end_offset for log in manager.logs()) == [2, 2, 2]
    manager.abandon()
