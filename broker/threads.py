"""The real `Threads`: for each lane a bounded number of threads, started when they are needed.

The threads are daemons: a disk that never answers does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from .ports import Lane

T = TypeVar("T")

DEFAULT_SIZES: Final[Mapping[Lane, int]] = {
    Lane.FLUSH: 16,
    Lane.HOUSEKEEPING: 1,  # in order
    Lane.REMOVAL: 1,  # in order
    Lane.COMPACTION: 1,  # one log at a time
    Lane.DECOMPRESSION: 4,
    Lane.READ: 4,
    Lane.SEARCH: 2,
}
"""Threads of each lane, at most."""

RETRY_S: Final = 0.5
"""Seconds until a lane without a thread tries again to start one."""

_Job: TypeAlias = Callable[[], Any]
_Queue: TypeAlias = "SimpleQueue[tuple[_Job, asyncio.Future[Any], _Lane] | None]"


class RealThreads:
    """Threads of this process. `sizes`: threads of a lane where it is not the number of `DEFAULT_SIZES`."""

    def __init__(self, sizes: Mapping[Lane, int] | None = None) -> None:
        self._lanes = {lane: _Lane(lane, size) for lane, size in {**DEFAULT_SIZES, **(sizes or {})}.items()}
        weakref.finalize(self, _close, list(self._lanes.values())).atexit = False

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        return self._lanes[lane].run(job)

    def lock(self) -> threading.Lock:
        return threading.Lock()

    def close(self) -> None:
        """As the port says; a job that is given later starts new threads."""
        _close(self._lanes.values())


class _Lane:
    """Used on the event loop's thread, but for `_work`."""

    def __init__(self, lane: Lane, size: int) -> None:
        assert size > 0, (lane, size)
        self._name = lane.value
        self._size = size
        self._jobs: _Queue = SimpleQueue()
        self._threads = 0
        self._unfinished = 0

    def run(self, job: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._unfinished += 1
        self._jobs.put((job, future, self))
        self._start_thread(loop)
        return future

    def _start_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start another thread if all are busy and the lane may have one more."""
        if self._threads >= min(self._unfinished, self._size):
            return
        try:
            thread = threading.Thread(target=_work, args=(self._jobs,), name=f"oncelog-{self._name}", daemon=True)
            thread.start()
        except (RuntimeError, MemoryError):  # the system has no thread left: those that there are do the work
            if not self._threads:
                loop.call_later(RETRY_S, self._start_thread, loop)
        else:
            self._threads += 1

    def close(self) -> None:
        for _ in range(self._threads):
            self._jobs.put(None)
        # What is given from now on is for other threads: these may take long to end.
        self._jobs, self._threads, self._unfinished = SimpleQueue(), 0, 0

    def settle(self, jobs: _Queue, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        """Pass the outcome of a job on."""
        if jobs is self._jobs:
            self._unfinished -= 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):  # which no future takes; a generator makes the same of it (PEP 479)
            future.set_exception(RuntimeError(f"a job raised {error!r}"))
        else:
            future.set_exception(error)


def _work(jobs: _Queue) -> None:
    """What a thread does."""
    while (item := jobs.get()) is not None:
        job, future, lane = item
        result: Any = None
        failure: BaseException | None = None
        try:
            result = job()
        except BaseException as error:  # the one who waits for the job gets it
            failure = error
        with suppress(RuntimeError):  # that loop is closed: nobody waits for the job any more
            future.get_loop().call_soon_threadsafe(lane.settle, jobs, future, result, failure)
        del item, job, future, lane, result, failure  # keep nothing alive while there is nothing to do


def _close(lanes: Any) -> None:
    for lane in lanes:
        lane.close()
