"""Probes of the disk for health checks: what they find, how many there are, and that they affect nothing else."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from oncelog.broker.log import DiskProbe, LogConfig, LogManager
from oncelog.broker.system.ports import RealFileSystem, SystemClock, SystemRandomIds
from oncelog.broker.system.threads import RealThreads
from support.faulty_filesystem import FaultyFileSystem
from support.logs import batch, new_manager

PROBE = "/data/.health-probe"
LONG_MS = 3_600_000


def new_probe(manager: LogManager, *, interval_ms: int = 0, timeout_ms: int = LONG_MS) -> DiskProbe:
    write = manager.directory.probe_health
    return DiskProbe(manager.path, write, RealThreads(), interval_ms=interval_ms, timeout_ms=timeout_ms)


async def checked(probe: DiskProbe) -> str | None:
    async with asyncio.timeout(60):
        return await probe.check()


async def test_a_disk_that_takes_a_write_is_fine_and_keeps_no_file(fs: FaultyFileSystem, manager: LogManager) -> None:
    threads: set[int] = set()
    operations: list[str] = []

    def note(operation: str, path: str) -> None:
        threads.add(threading.get_ident())
        operations.append(operation)

    fs.before = note
    assert await checked(new_probe(manager)) is None
    assert {"write", "fdatasync", "sync_directory"} <= set(operations)
    assert threading.get_ident() not in threads, "never on the event loop"
    assert not [name for name in fs.list("/data") if "probe" in name]


@pytest.mark.parametrize(
    ("operation", "number"),
    [("fdatasync", errno.EIO), ("write", errno.ENOSPC), ("open", errno.EROFS), ("sync_directory", errno.EIO)],
)
async def test_a_disk_that_fails_is_a_problem_until_it_works_again(
    fs: FaultyFileSystem, manager: LogManager, operation: str, number: int
) -> None:
    log = manager.create("t", 0, LogConfig())
    probe = new_probe(manager)
    for _ in range(2):
        fs.fail(operation, number)
        problem = await checked(probe)
        assert problem is not None
        assert "/data does not accept writes" in problem
        assert errno.errorcode[number] in problem or str(number) in problem
    assert await checked(probe) is None
    assert manager.failed is None
    log.append(batch("a"))
    await asyncio.shield(log.flushed(1) or asyncio.sleep(0))


async def test_a_full_disk_is_a_problem(fs: FaultyFileSystem, manager: LogManager) -> None:
    fs.capacity = fs.used()
    probe = new_probe(manager)
    assert "No space left" in (await checked(probe) or "")
    fs.heal()
    assert await checked(probe) is None
    assert not [name for name in fs.list("/data") if "probe" in name]


async def test_want_of_descriptors_says_nothing_about_the_disk(fs: FaultyFileSystem, manager: LogManager) -> None:
    fs.fail("open", errno.EMFILE)
    assert await checked(new_probe(manager)) is None


async def test_an_unexpected_error_is_a_problem(fs: FaultyFileSystem, manager: LogManager) -> None:
    def broken(operation: str, path: str) -> None:
        raise MemoryError

    fs.before = broken
    assert "/data could not be written to: MemoryError" in (await checked(new_probe(manager)) or "")
    fs.before = None


async def test_a_disk_that_hangs_is_a_problem_until_it_answers(fs: FaultyFileSystem, manager: LogManager) -> None:
    begun, go_on = threading.Event(), threading.Event()
    syncs: list[str] = []

    def hang(operation: str, path: str) -> None:
        if operation == "fdatasync" and path.startswith(PROBE):
            syncs.append(path)
            begun.set()
            go_on.wait()

    fs.before = hang
    probe = new_probe(manager, timeout_ms=20)
    try:
        for _ in range(3):
            problem = await checked(probe)
            assert problem is not None
            assert "/data has not finished" in problem
            assert "health.probe.timeout.ms = 20" in problem
        assert probe.check().done(), "nobody waits the whole time again"
        assert len(syncs) == 1, "one probe at a time"
        assert manager.failed is None
    finally:
        go_on.set()
    async with asyncio.timeout(60):
        while await probe.check() is not None:
            await asyncio.sleep(0)


async def test_checks_that_come_together_or_within_the_interval_share_a_probe(
    fs: FaultyFileSystem, manager: LogManager
) -> None:
    syncs: list[str] = []
    fs.before = lambda operation, path: syncs.append(path) if operation == "fdatasync" else None
    probe = new_probe(manager, interval_ms=LONG_MS)
    assert await asyncio.gather(*(checked(probe) for _ in range(10))) == [None] * 10
    assert await checked(probe) is None
    assert len(syncs) == 1
    fs.before = None
    failing = new_probe(manager, interval_ms=LONG_MS)
    fs.fail("fdatasync")
    problems = [await checked(failing) for _ in range(2)]
    assert problems[0] is not None
    assert problems[0] == problems[1]


async def test_a_check_that_nobody_waits_for_any_more_harms_no_other(manager: LogManager) -> None:
    probe = new_probe(manager)
    left, other = probe.check(), probe.check()
    left.cancel()
    async with asyncio.timeout(60):
        assert await other is None


async def test_nothing_is_written_into_another_directory_at_the_place(tmp_path: Path) -> None:
    data = tmp_path / "data"
    manager = LogManager(str(data), fs=RealFileSystem(), clock=SystemClock(), ids=SystemRandomIds())
    await manager.start()
    probe = new_probe(manager)
    assert await checked(probe) is None
    data.rename(tmp_path / "other")
    data.mkdir()
    assert "removed, or replaced" in (await checked(probe) or "")
    assert list(data.iterdir()) == []
    await manager.stop()


async def test_a_probe_that_a_kill_interrupted_hinders_no_start(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    await manager.start()
    manager.create("t", 0, LogConfig())
    fs.fail("unlink")
    assert "does not accept writes" in (await checked(new_probe(manager)) or "")
    assert fs.exists(PROBE)
    manager.abandon()
    fs.kill()
    manager = new_manager(fs)
    await manager.start()
    assert manager.offline == {}
    assert await checked(new_probe(manager)) is None
    assert not fs.exists(PROBE)
    await manager.stop()
