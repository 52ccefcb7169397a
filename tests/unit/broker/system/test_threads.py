"""The threads in which blocking work runs: order, bounds and ends."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable

import pytest
from oncelog.broker.system.ports import Lane
from oncelog.broker.system.threads import RealThreads


class Held:
    """A job that begins and then waits until it may end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._may_end = threading.Event()

    def __call__(self) -> str:
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self._may_end.wait(20), "nobody lets it end"
        return threading.current_thread().name

    def end(self) -> None:
        self._may_end.set()


def thread_of(job: Held) -> Callable[[], int]:
    """Return a job that does what `job` does, but returns the identifier of its thread."""

    def run() -> int:
        job()
        return threading.get_ident()

    return run


@pytest.fixture
async def threads() -> AsyncIterator[RealThreads]:
    made = RealThreads({Lane.FLUSH: 1, Lane.DECOMPRESSION: 2})
    yield made
    made.close()


async def test_a_job_runs_in_a_thread_that_is_named_after_its_lane(threads: RealThreads) -> None:
    assert await threads.run(Lane.FLUSH, lambda: threading.current_thread().name) == "oncelog-flush"


async def test_the_future_of_a_job_that_raises_has_its_exception(threads: RealThreads) -> None:
    def fail() -> None:
        raise OSError("on purpose")

    with pytest.raises(OSError, match="on purpose"):
        await threads.run(Lane.FLUSH, fail)
    assert await threads.run(Lane.FLUSH, lambda: "the next one") == "the next one"


async def test_a_lane_with_one_thread_runs_its_jobs_one_after_the_other_in_order(threads: RealThreads) -> None:
    first = Held()
    ran: list[int] = []

    def job(number: int) -> Callable[[], None]:
        return lambda: ran.append(number)

    held = threads.run(Lane.FLUSH, first)
    others = [threads.run(Lane.FLUSH, job(number)) for number in range(20)]
    await first.begun.wait()
    assert not ran
    first.end()
    await asyncio.gather(held, *others)
    assert ran == list(range(20))


async def test_a_lane_runs_as_many_jobs_at_a_time_as_it_has_threads(threads: RealThreads) -> None:
    jobs = [Held(), Held(), Held()]
    running = [threads.run(Lane.DECOMPRESSION, job) for job in jobs]
    await jobs[0].begun.wait()
    await jobs[1].begun.wait()
    assert not jobs[2].begun.is_set()
    jobs[1].end()
    await running[1]
    await jobs[2].begun.wait()
    assert not running[0].done(), "the second job has overtaken it"
    jobs[0].end()
    jobs[2].end()
    await asyncio.gather(*running)


async def test_a_job_wakes_only_the_thread_that_became_idle_last() -> None:
    threads = RealThreads({Lane.FLUSH: 4})
    held = [Held() for _ in range(4)]
    running = [threads.run(Lane.FLUSH, thread_of(job)) for job in held]
    for job in held:
        await job.begun.wait()
    for number in (2, 0, 3, 1):
        held[number].end()
        last = await running[number]
    assert [await threads.run(Lane.FLUSH, threading.get_ident) for _ in range(8)] == [last] * 8
    threads.close()


async def test_a_lane_does_not_wait_for_another_one(threads: RealThreads) -> None:
    held = Held()
    waiting = threads.run(Lane.FLUSH, held)
    assert await threads.run(Lane.COMPACTION, lambda: "ended") == "ended"
    assert not waiting.done()
    held.end()
    await waiting


async def test_a_job_whose_future_was_cancelled_runs_all_the_same(threads: RealThreads) -> None:
    held = Held()
    running = threads.run(Lane.FLUSH, held)
    ran: list[str] = []
    waiting = threads.run(Lane.FLUSH, lambda: ran.append("cancelled"))
    running.cancel()
    waiting.cancel()
    held.end()
    await threads.run(Lane.FLUSH, lambda: None)
    assert ran == ["cancelled"]


async def test_closing_lets_the_jobs_end_that_were_given_before(threads: RealThreads) -> None:
    held = Held()
    before = [threads.run(Lane.FLUSH, held), threads.run(Lane.FLUSH, lambda: "behind it")]
    threads.close()
    assert await threads.run(Lane.FLUSH, lambda: "afterwards") == "afterwards", "in another thread"
    held.end()
    assert await asyncio.gather(*before) == ["oncelog-flush", "behind it"]


async def test_threads_that_nobody_needs_any_more_end() -> None:
    threads = RealThreads()
    worker = await threads.run(Lane.SEARCH, threading.current_thread)
    assert worker.is_alive()
    del threads
    gc.collect()
    worker.join(20)
    assert not worker.is_alive()


async def test_a_lane_goes_on_with_fewer_threads_where_the_system_has_no_more(
    threads: RealThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    first = threads.run(Lane.DECOMPRESSION, held)
    await held.begun.wait()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        second = threads.run(Lane.DECOMPRESSION, lambda: "second")
    held.end()
    await first
    assert await second == "second"


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()], ids=repr)
async def test_a_job_waits_until_the_system_has_a_thread(
    threads: RealThreads, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("oncelog.broker.system.threads.RETRY_S", 0.001)
    start = threading.Thread.start
    refused: list[str] = []

    def refuse_twice(thread: threading.Thread) -> None:
        if len(refused) < 2:
            refused.append(thread.name)
            raise error
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_twice)
    assert await threads.run(Lane.FLUSH, lambda: "at last") == "at last"
    assert refused == ["oncelog-flush"] * 2


async def test_a_job_that_raises_what_no_future_takes_fails_all_the_same(threads: RealThreads) -> None:
    def exhausted() -> None:
        raise StopIteration("nothing is left")

    async with asyncio.timeout(60):
        with pytest.raises(RuntimeError, match="a job raised StopIteration"):
            await threads.run(Lane.FLUSH, exhausted)


def test_a_job_that_ends_after_its_loop_was_closed_does_no_harm() -> None:
    threads = RealThreads()
    may_end, ended = threading.Event(), threading.Event()

    def job() -> None:
        assert may_end.wait(20)
        ended.set()

    async def begin() -> asyncio.Future[None]:
        return threads.run(Lane.FLUSH, job)

    future = asyncio.run(begin())
    may_end.set()
    assert ended.wait(20)
    assert not future.done()

    async def again() -> str:
        return await threads.run(Lane.FLUSH, lambda: "another loop")

    assert asyncio.run(again()) == "another loop"
