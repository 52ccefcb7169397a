"""A data directory under random work, faults of the disk, kills and losses of power, against a model.

Several partitions are written, rolled, compacted, deleted and created again, with and without a journal, while the
broker's threads run in a random order. What was acknowledged is there after the next start, and nothing is there that
was not appended, although syncs, reads, writes and removals have failed before. A repair before the start would have
removed nothing that the start serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import Awaitable
from dataclasses import dataclass, field
from functools import partial

import pytest
from oncelog.broker.log import LogConfig, LogManager, PartitionLog
from oncelog.broker.log.damage import Damage
from oncelog.broker.log.repair import inspect
from oncelog.protocol.errors import KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.logs import DATA, batch, new_manager, values
from support.simulation.threads import Schedule, SimulatedThreads
from support.simulation.world import SimulationLoop

TOPICS = "abcd"
COMPACTED = "d"
JOURNALS = (0, 8 << 10, 16 << 10, 64 << 10)
tolerated = partial(contextlib.suppress, KafkaError, OSError)
LIVES = 6
SEEDS = 12
"""Number of histories in each of the tests."""

CONFIGS = {
    topic: LogConfig(segment_bytes=2000)
    if topic != COMPACTED
    else LogConfig(segment_bytes=1500, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0)
    for topic in TOPICS
}
KINDS = ("round", "round", "round", "write", "roll", "clean", "delete", "create", "create", "cut", "fault", "wait")
FAULTS = [
    *[("fdatasync", part) for part in (*(f"/{topic}-0/" for topic in TOPICS), ".journal")],
    *[("open", part) for part in ("/a-0/", ".journal")],
    *[("read", part) for part in ("/b-0/", ".journal")],
    ("unlink", ".journal"),
    ("unlink", "/c-0/"),
    ("write", ".journal"),
    ("rename", ".tmp"),
]


@dataclass
class Life:
    """One partition from its creation to its deletion: its values, and how many of them were acknowledged.

    `start`: the log start offset that was asked for.
    """

    appended: list[str] = field(default_factory=list)
    acknowledged: int = 0
    start: int = 0


class Directory:
    """A directory, and what a start may find: the lives of each partition, None if it may be missing."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fs = FaultyFileSystem()
        self.lives: dict[str, list[Life | None]] = {topic: [None] for topic in TOPICS}
        self.manager: LogManager
        self.threads: SimulatedThreads
        self.tasks: set[asyncio.Task[None]] = set()
        self._fault: tuple[str, str, int, int] | None = None
        self._count = 0
        self.damages: list[Damage] = []
        """What a repair would have removed before the last start."""

    async def run(self) -> None:
        for _ in range(LIVES):
            self.open()
            self.check()
            await self.manager.start()
            for _ in range(self.rng.randrange(5, 40)):
                await self.step()
            await self.end()
        self.open()
        self.check()

    # --- the world

    def open(self) -> None:
        rng = self.rng
        schedule = Schedule(lambda: rng.choice((0.0002, 0.001, 0.02)), pieces=0.7, pauses=0.3, delay_s=0.01)
        self.threads = SimulatedThreads(rng, schedule)
        self._fault = None
        self.damages = inspect(DATA, self.fs) if self.fs.exists(DATA) else []
        self.fs.before = self._operation
        self.manager = new_manager(self.fs, threads=self.threads, journal_bytes=rng.choice(JOURNALS))
        self.manager._ids.count = rng.randrange(1 << 60)  # type: ignore[attr-defined]
        self.manager.open()

    def _operation(self, name: str, path: str) -> None:
        self.threads.operation(name, path)
        if self._fault is not None:
            operation, part, number, left = self._fault
            if name == operation and part in path:
                self._fault = (operation, part, number, left - 1) if left > 1 else None
                raise OSError(number, "failed on purpose", path)

    async def end(self) -> None:
        """Stop, kill or unplug the broker."""
        how = self.rng.choice(("stop", "kill", "power", "power"))
        if how == "stop":
            self._fault = None
            await self.manager.stop()
        if self.manager._cleaning is not None:
            self.tasks.add(self.manager._cleaning)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()
        self.fs.before = None
        self.threads.end()
        if how == "power":
            self.fs.crash(self.rng)
        elif how == "kill":
            self.fs.kill()
        self.manager.abandon()

    # --- the work

    async def step(self) -> None:
        rng = self.rng
        topic = rng.choice(TOPICS)
        log = self.log(topic)
        kind = rng.choice(
            ("round", "round", "round", "write", "roll", "clean", "delete", "create", "cut", "fault", "wait")
        )
        if kind == "round":
            for one in TOPICS:
                self.write(one, rng.choice((20, 100, 600)))
        elif kind == "write":
            self.write(topic, rng.choice((20, 600, 5000)))
        elif kind == "roll" and log is not None and log.failure is None:
            with tolerated():
                log.roll()
        elif kind == "clean":
            self.manager._clean()
        elif kind == "delete" and log is not None:
            self.begin(self.delete(topic))
        elif kind == "create" and self.lives[topic] == [None] and not self.manager.holds(topic, 0):
            with tolerated():
                self.create(topic)
        elif kind == "cut" and log is not None and topic != COMPACTED:
            with tolerated():
                self.cut(topic, log)
        elif kind == "fault":
            operation, part = rng.choice(FAULTS)
            self._fault = operation, part, rng.choice((errno.EIO, errno.ENOSPC, errno.EMFILE)), rng.choice((1, 2, 20))
        await asyncio.sleep(rng.choice((0, 0, 0.001, 0.05, 1.5)))

    def log(self, topic: str) -> PartitionLog | None:
        """The open log of a partition, unless it is being created or deleted."""
        return self.manager._logs.get((topic, 0)) if isinstance(self.lives[topic][-1], Life) else None

    def begin(self, work: Awaitable[None]) -> None:
        self.tasks.add(asyncio.ensure_future(self.tolerating(work)))

    async def tolerating(self, work: Awaitable[None]) -> None:
        with tolerated():
            await work

    def write(self, topic: str, size: int) -> None:
        log, life = self.log(topic), self.lives[topic][-1]
        if log is None or life is None:
            return
        self._count += 1
        value = f"{topic} {self._count} ".ljust(size, ".")
        try:
            end = log.append(batch(value, key=b"%d" % self.rng.randrange(3))).last_offset + 1
        except (KafkaError, OSError):
            return
        assert end == len(life.appended) + 1
        life.appended.append(value)

        async def acknowledge() -> None:
            flush = log.synced(end)
            if flush is not None:
                await asyncio.shield(flush)
            life.acknowledged = max(life.acknowledged, end)
            if self.lives[topic][-1] is life:
                self.lives[topic] = [life]

        self.begin(acknowledge())

    def create(self, topic: str) -> None:
        self.lives[topic] = [None, Life()]  # also if a fault ends the creation
        self.manager.create(topic, 0, CONFIGS[topic])

    async def delete(self, topic: str) -> None:
        self.lives[topic] = [*self.lives[topic], None]
        await self.manager.delete([(topic, 0)])
        self.lives[topic] = [None]

    def cut(self, topic: str, log: PartitionLog) -> None:
        life = self.lives[topic][-1]
        assert life is not None
        offset = self.rng.randrange(log.high_watermark + 1)
        life.start = max(life.start, offset)
        log.delete_records_before(offset)

    # --- the check

    def check(self) -> None:
        """After a start: one of the lives of each partition is there. From now on it is the only possible one."""
        assert self.manager.offline == {}
        for damage in self.damages:
            log = self.manager.get(damage.topic, damage.partition)
            assert not damage.below_recovery_point, damage
            assert log is None or log.log_end_offset <= damage.lost_from_offset, damage
        for topic, lives in self.lives.items():
            log = self.manager.get(topic, 0)
            fitting = [life for life in lives if self.fits(topic, log, life)]
            assert fitting, (topic, None if log is None else (log.log_start_offset, values(log.batches())), lives)
            life = fitting[-1]
            if life is not None and log is not None:
                del life.appended[log.log_end_offset :]
                life.acknowledged = log.log_end_offset
                life.start = min(life.start, log.log_start_offset)
                log.update_config(CONFIGS[topic])
            self.lives[topic] = [life]

    def fits(self, topic: str, log: PartitionLog | None, life: Life | None) -> bool:
        if log is None or life is None:
            return log is None and (life is None or not life.acknowledged)
        end = log.log_end_offset
        read = {header.base_offset: values([(header, data)]) for header, data in log.batches()}
        found = {offset: one[0] for offset, one in read.items() if one}  # compaction empties a producer's last batch
        if not life.acknowledged <= end <= len(life.appended) or log.log_start_offset > life.start:
            return False
        if any(life.appended[offset] != value for offset, value in found.items()):
            return False
        return topic == COMPACTED or set(range(log.log_start_offset, end)) <= found.keys()


@pytest.mark.parametrize("share", range(10))
def test_nothing_acknowledged_is_lost_and_nothing_comes_back(share: int) -> None:
    for seed in range(share * SEEDS, (share + 1) * SEEDS):
        with asyncio.Runner(loop_factory=SimulationLoop) as runner:
            try:
                runner.run(Directory(seed).run())
            except Exception as error:
                raise AssertionError(f"seed {seed}") from error
