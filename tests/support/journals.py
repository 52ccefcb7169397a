"""Managers with a journal, for tests of broker/log: on a file system in memory, with threads on the event loop."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from oncelog.broker.log import LogConfig, LogManager, PartitionLog
from oncelog.broker.log.journal_format import Batch, decode_file

from .faulty_filesystem import FaultyFileSystem
from .inline_threads import InlineThreads
from .logs import batch, new_manager

CONFIG = LogConfig()
SIZE = 16 << 10
TURNS = 200


async def turns(count: int = TURNS) -> None:
    """Let the event loop execute what is due, including the jobs of `InlineThreads`."""
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def journaled(
    fs: FaultyFileSystem, *topics: str, size: int = SIZE, threads: InlineThreads | None = None
) -> AsyncIterator[LogManager]:
    """Run a manager whose journal is ready, with partitions whose names are on disk."""
    manager = new_manager(fs, threads=threads or InlineThreads(), journal_bytes=size)
    await manager.start()
    assert manager._journal is not None
    manager._journal.want()
    for topic in topics:
        await written(manager.create(topic, 0, CONFIG), "first")
    await turns()
    yield manager
    fs.before = None
    await manager.stop()


def log_of(manager: LogManager, topic: str) -> PartitionLog:
    log = manager.get(topic, 0)
    assert log is not None
    return log


async def written(log: PartitionLog, value: str) -> None:
    """Append a value, and wait until it is durable."""
    flush = log.synced(log.append(batch(value)).last_offset + 1)
    if flush is not None:
        await asyncio.shield(flush)


async def round_of(manager: LogManager, *topics: str, value: str = "value") -> None:
    await asyncio.gather(*(written(log_of(manager, topic), value) for topic in topics))


@contextmanager
def syncs(fs: FaultyFileSystem) -> Iterator[Counter[str]]:
    """Count the syncs by the directory of the partition; those of journal files count as "journal"."""
    counted: Counter[str] = Counter()

    def count(operation: str, path: str) -> None:
        if operation in ("fdatasync", "sync_directory"):
            counted["journal" if path.endswith(".journal") else path.split("/")[2] if path != "/data" else path] += 1

    fs.before = count
    yield counted
    fs.before = None


def journal_files(fs: FaultyFileSystem) -> list[str]:
    return sorted(name for name in fs.list("/data") if name.endswith(".journal"))


def batches_in(fs: FaultyFileSystem, name: str) -> tuple[Batch, ...]:
    """Return the batches in a file of the journal."""
    return decode_file(bytes(fs._get(f"/data/{name}").data)).batches


def power_fails(fs: FaultyFileSystem, manager: LogManager) -> None:
    """Let the power fail. Everything that was not synced is lost."""
    manager.abandon()
    fs.before = None
    fs.crash(LosesAll())


def after_power_failed(fs: FaultyFileSystem, manager: LogManager, seed: int = 1) -> LogManager:
    """Let the power fail, and return a manager that opens the directory again."""
    manager.abandon()
    fs.before = None
    fs.crash(random.Random(seed))
    return reopened(fs)


def reopened(fs: FaultyFileSystem) -> LogManager:
    manager = new_manager(fs)
    manager.open()
    return manager


def failing(operation: str, part: str, number: int, *, times: int = 1) -> Callable[[str, str], None]:
    """Return a fault: the operation fails on paths that contain `part`, at the first `times` calls."""
    left = [times]

    def fail(name: str, path: str) -> None:
        if name == operation and part in path and left[0]:
            left[0] -= 1
            raise OSError(number, "failed on purpose", path)

    return fail


def all_of(*faults: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """Return a fault that consists of several faults."""

    def fail(name: str, path: str) -> None:
        for fault in faults:
            fault(name, path)

    return fail


def full_for(part: str) -> Callable[[str, str], None]:
    """Return a fault: there is no space for paths that contain `part`, nor for files that are replaced."""
    return all_of(*(failing("write", one, errno.ENOSPC, times=1000) for one in (part, ".tmp")))


class LosesAll(random.Random):
    """If `FaultyFileSystem.crash` gets this object, everything that was not synced is lost."""

    def choice(self, seq: Any) -> Any:
        return "lost"

    def randint(self, a: int, b: int) -> int:
        return a
