"""The threads of the simulation: the same order for the same seed, and everything that real threads may do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TypeVar

import pytest
from oncelog.broker.system.ports import Lane
from support.faulty_filesystem import FaultyFileSystem
from support.simulation.threads import Schedule, SimulatedThreads
from support.simulation.world import SimulationLoop

T = TypeVar("T")

SLOW = Schedule(lambda: 1.0, pauses=1.0)


def simulated(test: Callable[[], Awaitable[T]]) -> T:
    async def run() -> T:
        return await test()

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        return runner.run(run())


def disk_and_threads(schedule: Schedule, seed: int = 0) -> tuple[FaultyFileSystem, SimulatedThreads]:
    fs, threads = FaultyFileSystem(), SimulatedThreads(Random(seed), schedule)
    fs.before = threads.operation
    return fs, threads


def writer(fs: FaultyFileSystem, name: str, journal: list[str]) -> Callable[[], str]:
    """A job that writes to a file and syncs it, and says in `journal` how far it is."""

    def job() -> str:
        file = fs.open(f"/{name}", create=True)
        journal.append(f"{name} opened")
        file.write_at([b"content"], 0)
        journal.append(f"{name} written")
        file.fdatasync()
        journal.append(f"{name} synced")
        file.close()
        return name

    return job


async def _overlapping(seed: int, schedule: Schedule) -> list[str]:
    fs, threads = disk_and_threads(schedule, seed)
    journal: list[str] = []
    lanes = (Lane.FLUSH, Lane.COMPACTION, Lane.DECOMPRESSION, Lane.DECOMPRESSION)
    runs = [threads.run(lane, writer(fs, f"{lane.value}{n}", journal)) for n, lane in enumerate(lanes)]
    assert await asyncio.gather(*runs) == ["flush0", "compaction1", "decompression2", "decompression3"]
    return journal


def test_a_seed_gives_the_same_order_again_and_others_give_others() -> None:
    orders = set()
    for seed in range(20):
        schedule = Schedule(lambda: 0.01, pieces=0.7, pauses=0.5, delay_s=0.03)
        first, second = (simulated(partial(_overlapping, seed, schedule)) for _ in range(2))
        assert first == second
        orders.add(tuple(first))
    assert len(orders) > 5


def test_jobs_of_two_lanes_overtake_each_other_between_two_operations() -> None:
    journal = simulated(lambda: _overlapping(0, SLOW))
    assert journal.index("compaction1 opened") < journal.index("flush0 synced")
    assert journal.index("flush0 opened") < journal.index("compaction1 synced")


def test_a_sync_takes_its_time_and_the_loop_runs_on() -> None:
    async def test() -> None:
        fs, threads = disk_and_threads(SLOW)
        journal: list[str] = []
        run = threads.run(Lane.FLUSH, writer(fs, "a", journal))
        await asyncio.sleep(0.5)
        assert journal == ["a opened", "a written"]
        await run
        assert journal[-1] == "a synced"

    simulated(test)


def test_a_process_ends_between_two_operations_of_a_job() -> None:
    async def test() -> None:
        fs, threads = disk_and_threads(SLOW)
        journal: list[str] = []
        cleaned: list[str] = []

        def job() -> None:
            try:
                writer(fs, "a", journal)()
            finally:
                cleaned.append("in memory")
                fs.unlink("/a")

        run = threads.run(Lane.COMPACTION, job)
        behind = threads.run(Lane.COMPACTION, writer(fs, "b", journal))
        await asyncio.sleep(0.5)
        threads.end()
        await asyncio.sleep(10)
        assert journal == ["a opened", "a written"]
        assert cleaned == ["in memory"]
        assert fs.exists("/a"), "nothing happens to the disk after the end"
        assert not run.done()
        assert not behind.done()

    simulated(test)


def test_the_loop_waits_for_a_lock_while_the_job_that_has_it_goes_on() -> None:
    async def test() -> None:
        fs, threads = disk_and_threads(SLOW)
        lock = threads.lock()
        journal: list[str] = []

        def job() -> None:
            with lock:
                writer(fs, "a", journal)()

        run = threads.run(Lane.FLUSH, job)
        await asyncio.sleep(0.5)
        assert "a synced" not in journal
        with lock:
            assert journal[-1] == "a synced"
        await run

    simulated(test)


def test_a_job_waits_for_a_lock_that_another_job_has() -> None:
    async def test() -> None:
        fs, threads = disk_and_threads(SLOW)
        lock = threads.lock()
        journal: list[str] = []

        def locked(name: str) -> Callable[[], None]:
            def job() -> None:
                with lock:
                    writer(fs, name, journal)()

            return job

        await asyncio.gather(threads.run(Lane.FLUSH, locked("a")), threads.run(Lane.COMPACTION, locked("b")))
        assert [entry[0] for entry in journal] in (["a"] * 3 + ["b"] * 3, ["b"] * 3 + ["a"] * 3)

    simulated(test)


def test_a_job_that_raises_fails_its_future_and_the_lane_goes_on() -> None:
    async def test() -> None:
        fs, threads = disk_and_threads(SLOW)
        fs.fail("fdatasync")
        journal: list[str] = []
        with pytest.raises(OSError, match="Input/output"):
            await threads.run(Lane.FLUSH, writer(fs, "a", journal))
        assert await threads.run(Lane.FLUSH, writer(fs, "b", journal)) == "b"

    simulated(test)
