"""The power fails at every single operation on a file while a journal is in use: what was acknowledged is there."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from oncelog.broker.log import LogConfig, LogManager
from oncelog.broker.log.journal_format import decode_file
from support.faulty_filesystem import FaultyFileSystem
from support.inline_threads import InlineThreads, PowerCut, PowerFailure
from support.logs import batch, new_manager, values

JOURNAL_BYTES = 18 << 10
RUBBISH = "rubbish"
SHARES = 4
"""The operations are shared out to so many tests."""


@dataclass
class Incarnation:
    """One life of a partition: the values that were appended, and how many of them were acknowledged."""

    appended: list[str] = field(default_factory=list)
    acknowledged: int = 0


class Work:
    """A manager's work. `incarnations`: of each partition, those that a crash may show."""

    def __init__(self, fs: FaultyFileSystem) -> None:
        self.manager = new_manager(fs, threads=InlineThreads(), journal_bytes=JOURNAL_BYTES)
        self.incarnations: dict[str, list[Incarnation | None]] = {}
        self._count = 0

    def create(self, topic: str, **config: object) -> None:
        self.incarnations.setdefault(topic, []).append(Incarnation())
        self.manager.create(topic, 0, LogConfig(**config))  # type: ignore[arg-type]
        self.incarnations[topic] = self.incarnations[topic][-1:]

    async def delete(self, topic: str) -> None:
        self.incarnations[topic].append(None)
        await self.manager.delete([(topic, 0)])
        self.incarnations[topic] = [None]

    async def write(self, topic: str, size: int = 250) -> None:
        """Append a value, and wait until it is acknowledged."""
        life = self.incarnations[topic][-1]
        assert life is not None
        log = self.manager.get(topic, 0)
        assert log is not None
        self._count += 1
        value = f"{topic} {self._count} ".ljust(size, ".")
        life.appended.append(value)
        flush = log.flushed(log.append(batch(value, key=b"%d" % self._count)).last_offset + 1)
        count = len(life.appended)
        if flush is not None:
            await asyncio.shield(flush)
        life.acknowledged = max(life.acknowledged, count)

    def append_rubbish(self, topic: str) -> None:
        """Append what the next compaction removes, so that all behind it has another position afterwards."""
        log = self.manager.get(topic, 0)
        assert log is not None
        log.append(batch(RUBBISH, key=b"rubbish"))

    async def round(self, *topics: str) -> None:
        await asyncio.gather(*(self.write(topic) for topic in topics))

    async def run(self) -> None:
        """Rounds, a roll, a large batch, a deletion and a partition made anew, over several files of the journal."""
        await self.manager.start()
        assert self.manager._journal is not None
        self.manager._journal.want()
        for topic in "abc":
            self.create(topic)
        self.create("rolling", segment_bytes=1200)
        self.create("compacted", segment_bytes=1500, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0)
        for number in range(12):
            await self.round("a", "b", "c", "rolling", "compacted")
            if number % 3 == 1:
                await self.write("a")
            if number == 2:
                await self.write("c", 5000)
            if number in (3, 9):
                await self.delete("b")
                self.create("b")
                await self.write("b", 20)
            if number % 3 == 0:
                self.append_rubbish("compacted")
            if number in (4, 8, 10):
                self.manager._clean()
                assert self.manager._cleaning is not None
                await self.manager._cleaning
        await self.round("b", "c")

    def check(self, manager: LogManager) -> None:
        """What was acknowledged is there, in order, and nothing that was not appended."""
        assert manager.offline == {}
        for topic, incarnations in self.incarnations.items():
            log = manager.get(topic, 0)
            found = None if log is None else [value for value in values(log.batches()) if value != RUBBISH]
            assert any(_fits(found, life) for life in incarnations), (topic, found, incarnations)


def _fits(found: list[str] | None, life: Incarnation | None) -> bool:
    if life is None or found is None:
        return found is None and (life is None or life.acknowledged == 0)
    return life.acknowledged <= len(found) and found == life.appended[: len(found)]


async def until_power_fails(fs: FaultyFileSystem, after: int | None) -> tuple[Work, int]:
    """The work, ended by a failure of power; and the number of operations in it."""
    work = Work(fs)
    power = PowerFailure(fs, after)
    await power.end_of(asyncio.ensure_future(work.run()))
    if work.manager._cleaning is not None:
        work.manager._cleaning.cancel()
    fs.before = None
    fs.kill()
    work.manager.abandon()
    return work, power.count


async def test_the_work_uses_the_journal() -> None:
    """Else the tests below would show nothing."""
    fs = FaultyFileSystem()
    removed: set[str] = set()
    voided: set[str] = set()
    replaced: set[str] = set()

    def look(operation: str, path: str) -> None:
        if operation == "unlink" and path.endswith(".journal"):
            removed.add(path)
        if operation == "fdatasync" and path.endswith(".journal"):
            batches = decode_file(bytes(fs._get(path).data)).batches
            voided.update(void.name for batch in batches for void in batch.voids)
        if operation == "rename" and path.endswith(".log.swap"):
            replaced.add(path.split("/")[2])

    work = Work(fs)
    fs.before = look
    await work.run()
    assert len(removed) > 1
    assert voided == {"b-0", "compacted-0"}
    assert replaced == {"compacted-0"}
    await work.manager.stop()
    assert not [name for name in fs.list("/data") if name.endswith(".journal")]


@pytest.mark.parametrize("share", range(SHARES))
async def test_nothing_acknowledged_is_lost_whenever_the_power_fails(share: int) -> None:
    _, operations = await until_power_fails(FaultyFileSystem(), None)
    assert operations > 500
    for after in range(share, operations, SHARES):
        fs = FaultyFileSystem()
        work, _ = await until_power_fails(fs, after)
        rng = random.Random(after)
        fs.crash(rng)
        # The power fails again and again during the start.
        for until in (rng.randint(0, 60), rng.randint(0, 200)):
            PowerFailure(fs, until)
            starting = new_manager(fs)
            try:
                starting.open()
            except PowerCut:
                fs.crash(rng)
            else:
                fs.before = None
                starting.abandon()
        fs.before = None
        manager = new_manager(fs)
        manager.open()
        try:
            work.check(manager)
        except AssertionError as error:
            raise AssertionError(f"the power failed at operation {after}") from error
        assert not [name for name in fs.list("/data") if name.endswith(".journal")]
        manager.abandon()


@pytest.mark.parametrize("share", range(SHARES))
async def test_nothing_acknowledged_is_lost_whenever_the_process_is_killed(share: int) -> None:
    _, operations = await until_power_fails(FaultyFileSystem(), None)
    for after in range(share, operations, 5 * SHARES):
        fs = FaultyFileSystem()
        work, _ = await until_power_fails(fs, after)
        manager = new_manager(fs)
        manager.open()
        work.check(manager)
        manager.abandon()
        fs.crash(random.Random(after))  # what was shown after the start stays
        manager = new_manager(fs)
        manager.open()
        work.check(manager)
        manager.abandon()
