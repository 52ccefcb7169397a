"""Simulate a broker's threads, which a seed schedules: jobs wait, overtake those of other lanes, and pause.

A job runs as a whole, or operation by operation: before each operation on a file, the event loop may run, a sync takes
time, and the power may fail. Everything happens in simulated time, and a seed always gives the same order. There are no
threads of the system: a job is a greenlet (`carriers.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Final, TypeVar

from oncelog.broker.system.ports import Lane, Threads
from oncelog.broker.system.threads import DEFAULT_SIZES

from .carriers import Carrier

T = TypeVar("T")

SYNCS: Final = frozenset({"fdatasync", "sync_directory"})
"""Operations that take time."""

_PATIENCE: Final = 10_000
"""Attempts to take a lock after which this counts as a deadlock."""

_LOCK_POLL_S: Final = 0.0005
"""Seconds between two attempts of a job to take a lock that another one holds."""


class ProcessEnded(BaseException):
    """Raised in a job whose process has ended, so that the job does nothing more."""


@dataclass(frozen=True)
class Schedule:
    """The rules by which jobs are scheduled.

    `latency` returns the seconds that a sync takes. `pieces` is the share of jobs that run operation by operation, and
    `pauses` the share of their operations, besides syncs, before which the event loop runs. `delay_s` is the longest
    time until a job begins, except for jobs in the lane of flushes.
    """

    latency: Callable[[], float]
    pieces: float = 1.0
    pauses: float = 0.2
    delay_s: float = 0.0


class SimulatedThreads(Threads):
    """The `Threads` of one start of a broker. `note` gets a line for every event."""

    def __init__(self, rng: Random, schedule: Schedule, note: Callable[[str], None] = lambda _: None) -> None:
        self.note = note
        self._rng = rng
        self._schedule = schedule
        self._waiting: dict[Lane, deque[_Job]] = {lane: deque() for lane in Lane}
        self._running: dict[Lane, list[_Job]] = {lane: [] for lane in Lane}
        self._current: _Job | None = None
        self.ended = False

    # --- the port

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[lane].append(_Job(self, lane, job, future))
        self._begin(lane)
        return future

    def lock(self) -> SimulatedLock:
        return SimulatedLock(self)

    def close(self) -> None: ...

    # --- the world

    def operation(self, name: str, path: str) -> None:
        """Announce an operation on a file, which the caller is about to execute."""
        job = self._current
        if job is None:
            return
        if self.ended:
            raise ProcessEnded
        if name in SYNCS:
            job.pause(self._schedule.latency())
        elif self._rng.random() < self._schedule.pauses:
            job.pause(0.0)
        self.note(f"{job.lane.value}: {name} {path}")

    def end(self) -> None:
        """End the process: jobs stop where they are, and waiting jobs never begin."""
        self.ended = True
        for lane in Lane:
            self._waiting[lane].clear()
            running, self._running[lane] = self._running[lane], []
            for job in running:
                self._current = job
                job.end()
                self._current = None

    # --- jobs

    def _begin(self, lane: Lane) -> None:
        schedule, rng = self._schedule, self._rng
        while self._waiting[lane] and len(self._running[lane]) < DEFAULT_SIZES[lane]:
            job = self._waiting[lane].popleft()
            self._running[lane].append(job)
            job.in_pieces = rng.random() < schedule.pieces
            delay = 0.0 if lane is Lane.FLUSH else rng.random() * schedule.delay_s
            job.wake_in(delay if job.in_pieces else delay + schedule.latency())

    def step(self, job: _Job) -> None:
        """Run the next piece of a job. Called by the event loop, while no job runs."""
        self._current = job if job.in_pieces else None
        try:
            job.step()
        finally:
            self._current = None
        if job.has_ended:
            self._running[job.lane].remove(job)
            if not self.ended:
                self.note(f"{job.lane.value}: ended")
                job.settle()
                self._begin(job.lane)

    @property
    def current(self) -> _Job | None:
        """The job that is running in pieces, or None in the event loop."""
        return self._current


class _Job:
    """One job. It continues when its timer fires, and each pause sets the timer again."""

    def __init__(
        self, threads: SimulatedThreads, lane: Lane, call: Callable[[], Any], future: asyncio.Future[Any]
    ) -> None:
        self.lane = lane
        self.in_pieces = False
        self.has_ended = False
        self._threads = threads
        self._call = call
        self._future = future
        self._carrier: Carrier | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pause_s = 0.0
        self._result: Any = None
        self._error: BaseException | None = None

    def wake_in(self, delay_s: float) -> None:
        """Continue after `delay_s` seconds."""
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._threads.step, self)

    def step(self) -> None:
        """Run until the next pause or the end."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.in_pieces:
            self._run()
            return
        if self._carrier is None:
            self._carrier = Carrier(self._run)
        if self._carrier.resume():
            self.wake_in(self._pause_s)
        else:
            self._carrier = None

    def pause(self, seconds: float) -> None:
        """Let others run for this time. Called within the job. Raises ProcessEnded."""
        assert self._carrier is not None
        self._pause_s = seconds
        self._carrier.pause()
        if self._threads.ended:
            raise ProcessEnded

    def end(self) -> None:
        """End the job with its process. Nothing more happens, except that its calls are unwound."""
        if self._timer is not None:
            self._timer.cancel()
        while self._carrier is not None:
            self.step()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        self.has_ended = True

    def settle(self) -> None:
        """Set the result of the job's future. If the power failed within the job, nobody waits for the result."""
        error = self._error
        if self._future.done() or (error is not None and not isinstance(error, Exception)):
            return
        if error is None:
            self._future.set_result(self._result)
        else:
            self._future.set_exception(error)


class SimulatedLock:
    """A lock between jobs and the event loop. While a job holds it, the loop waits and the job continues."""

    def __init__(self, threads: SimulatedThreads) -> None:
        self._threads = threads
        self._is_held = False
        self._owner: _Job | None = None

    def __enter__(self) -> None:
        threads = self._threads
        job = threads.current
        for _ in range(_PATIENCE):
            if not self._is_held or threads.ended:
                self._is_held, self._owner = True, job
                return
            if job is not None:
                job.pause(_LOCK_POLL_S)
            else:
                assert self._owner is not None, "the lock is not reentrant"
                threads.step(self._owner)
        raise AssertionError("a deadlock: nobody releases the lock")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_held, self._owner = False, None
