"""Which syncs wait for which: logs are put on disk side by side, and nobody's answer waits for housekeeping."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import pytest
from oncelog.broker.log import LogConfig
from oncelog.broker.log.flusher import MOST_AT_ONCE, FlushTask, LogFlusher
from oncelog.broker.system.ports import Lane, Threads
from oncelog.broker.system.threads import RealThreads
from support.faulty_filesystem import FaultyFileSystem
from support.logs import batch, new_manager, settle

CONFIG = LogConfig()
LATER = LogConfig(durability="os", unsaved_bytes=0)
ENOUGH_S = 10

T = TypeVar("T")


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
        log.files.sync_later()
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
    assert all(log.saved_state.unsaved_bytes == 0 for log in manager.logs()), "none was scanned"
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
    assert manager.directory.clean_shutdown() == frozenset({"t-1"})
    manager.open()
    assert manager.clean_start
    assert sorted(log.log_end_offset for log in manager.logs()) == [2, 2, 2]
    manager.abandon()


async def test_what_is_appended_while_a_flush_waits_for_a_descriptor_is_flushed_too(fs: FaultyFileSystem) -> None:
    """Its writers are answered by the flush behind that one, whether or not more is appended."""
    manager = new_manager(fs)
    await manager.start()
    log = manager.create("t", 0, CONFIG)
    log.append(batch("a"))
    await settle(manager)
    refused = asyncio.Event()
    loop = asyncio.get_running_loop()

    def refuse(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(".index") and not refused.is_set():
            loop.call_soon_threadsafe(refused.set)
            raise OSError(errno.EMFILE, "no descriptor left", path)

    log.roll()  # the indexes of the first segment are opened to be synced
    fs.before = refuse
    log.append(batch("b"))
    first = log.flushed(2)
    assert first is not None
    async with asyncio.timeout(ENOUGH_S):
        await refused.wait()
        await settle(manager)
        assert not first.done()
        log.append(batch("c"))
        second = log.flushed(3)
        assert second is not None
        await first
        await second
    assert log.high_watermark == 3
    await manager.stop()


class _Instantly(Threads):
    """Threads whose jobs are done in the next turn of the event loop."""

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        loop.call_soon(lambda: future.set_result(job()))
        return future

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        pass


class _AlwaysDirty:
    """A log that is dirty again when it has been flushed; `urgent`: and whose writers wait for that."""

    settling = None
    writes_again = False
    failure = None

    def __init__(self, flusher: LogFlusher, *, urgent: bool) -> None:
        self.flushes = 0
        self._flusher = flusher
        self._urgent = urgent
        flusher.request(self, urgent=urgent)

    def begin_flush(self) -> FlushTask | None:
        return FlushTask(1, [])

    def finish_flush(self, task: FlushTask) -> None:
        self.flushes += 1
        self._flusher.request(self, urgent=self._urgent)

    def take_back(self, task: FlushTask) -> None:
        raise AssertionError("nothing fails")

    def put_back(self, task: FlushTask) -> None:
        raise AssertionError("there is no journal")

    def flush_failed(self, task: FlushTask | None, error: OSError) -> None:
        raise AssertionError("nothing fails") from error


async def test_logs_that_nobody_waits_for_have_their_share_of_a_busy_disk(fs: FaultyFileSystem) -> None:
    """Else records written with acks=1 would never be shown while more logs are waited for than fit at once."""
    flusher = LogFlusher(fs, _Instantly(), lambda error: None)
    busy = [_AlwaysDirty(flusher, urgent=True) for _ in range(3 * MOST_AT_ONCE)]
    quiet = [_AlwaysDirty(flusher, urgent=False) for _ in range(2)]
    async with asyncio.timeout(ENOUGH_S):
        while sum(log.flushes for log in busy) < 2_000:
            await asyncio.sleep(0)
    assert min(log.flushes for log in quiet) > 10
    assert sum(log.flushes for log in quiet) < sum(log.flushes for log in busy) / 5, (
        "those that are waited for come first"
    )
    flusher.abandon()


class _WithoutRewrites(_Instantly):
    """Threads of which the one that writes bytes again never ends a job."""

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().create_future() if lane is Lane.REWRITE else super().run(lane, job)


class _WritesAgain(_AlwaysDirty):
    """A log each of whose flushes writes bytes again."""

    writes_again = True

    is_flushing = False

    def begin_flush(self) -> FlushTask | None:
        if self.is_flushing:
            return None
        self.is_flushing, self.writes_again = True, False
        return FlushTask(1, [], rewrite=lambda: None)

    def finish_flush(self, task: FlushTask) -> None:
        self.is_flushing, self.writes_again = False, True
        super().finish_flush(task)


async def test_logs_that_write_again_hold_up_no_other_log(fs: FaultyFileSystem) -> None:
    """Bytes are written again by one thread, so the flushes of many logs take long after the disk was full."""
    flusher = LogFlusher(fs, _WithoutRewrites(), lambda error: None)
    slow = [_WritesAgain(flusher, urgent=True) for _ in range(3 * MOST_AT_ONCE)]
    healthy = _AlwaysDirty(flusher, urgent=True)
    async with asyncio.timeout(ENOUGH_S):
        while healthy.flushes < 100:
            await asyncio.sleep(0)
    assert not any(log.flushes for log in slow)
    flusher.abandon()


async def test_the_age_of_a_flush_that_writes_again_is_measured_although_the_log_was_dirty_before(
    fs: FaultyFileSystem,
) -> None:
    flusher = LogFlusher(fs, _WithoutRewrites(), lambda error: None)
    healthy = _AlwaysDirty(flusher, urgent=False)
    log = _WritesAgain(flusher, urgent=True)
    log.writes_again = False
    flusher.request(log, urgent=True)
    log.writes_again = True
    flusher.request(log, urgent=True)
    async with asyncio.timeout(ENOUGH_S):
        while healthy.flushes < 3:
            await asyncio.sleep(0.01)
    assert flusher.oldest_flush_s > 0
    flusher.abandon()


async def test_all_logs_that_write_again_have_their_turn(fs: FaultyFileSystem) -> None:
    flusher = LogFlusher(fs, _Instantly(), lambda error: None)
    logs = [_WritesAgain(flusher, urgent=True) for _ in range(3 * MOST_AT_ONCE)]
    async with asyncio.timeout(ENOUGH_S):
        while min(log.flushes for log in logs) < 3:
            await asyncio.sleep(0)
    flusher.abandon()
