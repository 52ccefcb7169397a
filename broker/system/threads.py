"""Implement `Threads`: each lane has a limited number of threads, which are started when they are needed.

A job wakes only the thread that runs it. If the idle threads of a lane waited for one shared queue, each job would wake
two of them, and the second one would find the queue empty. Small jobs would then take a third more processor time.

The threads are daemons, so that a disk that never responds does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from .ports import Lane, Threads

T = TypeVar("T")

DEFAULT_SIZES: Final[Mapping[Lane, int]] = {
    Lane.FLUSH: 16,
    Lane.REWRITE: 1,  # its jobs share the interpreter with the event loop
    Lane.HOUSEKEEPING: 1,  # one thread keeps the jobs in order
    Lane.REMOVAL: 1,  # one thread keeps the jobs in order
    Lane.DELETION: 1,  # one thread leaves the disk to the other lanes
    Lane.COMPACTION: 1,  # one log is compacted at a time
    Lane.DECOMPRESSION: 4,
    Lane.READ: 4,
    Lane.SEARCH: 2,
    Lane.OUTSIDE: 2,
    Lane.LOGIN: 1,
}
"""The maximum number of threads of each lane."""

RETRY_S: Final = 0.5
"""Seconds after which a lane that could start no thread tries again."""

_Job: TypeAlias = Callable[[], Any]
_Ended: TypeAlias = Callable[[Any, BaseException | None], None]
_Item: TypeAlias = "tuple[_Job, _Ended, _Lane, asyncio.AbstractEventLoop] | None"
"""The input of a thread: a job with its callback, its lane and the event loop, or None to end the thread."""


class RealThreads(Threads):
    """The threads of this process; `sizes` overrides the numbers in `DEFAULT_SIZES`."""

    def __init__(self, sizes: Mapping[Lane, int] | None = None) -> None:
        self._lanes = {lane: _Lane(lane, size) for lane, size in {**DEFAULT_SIZES, **(sizes or {})}.items()}
        weakref.finalize(self, _close, list(self._lanes.values())).atexit = False

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._lanes[lane].start(loop, job, partial(_resolve, future))
        return future

    def start(self, lane: Lane, job: _Job, ended: Callable[[BaseException | None], None]) -> None:
        self._lanes[lane].start(asyncio.get_running_loop(), job, lambda _, error: ended(error))

    def lock(self) -> threading.Lock:
        return threading.Lock()

    def close(self) -> None:
        """End the threads when they have run the jobs given to them. A later job starts new threads."""
        _close(self._lanes.values())


class _Jobs:
    """The jobs that wait for a thread, in order, or the threads that wait for a job; never both at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Item] = deque()
        self._idle: list[SimpleQueue[_Item]] = []

    def put(self, item: _Item) -> None:
        """Give `item` to the thread that became idle last. If none is idle, the first thread to ask gets it."""
        with self._lock:
            if not self._idle:
                self._waiting.append(item)
                return
            inbox = self._idle.pop()
        inbox.put(item)

    def ask(self, inbox: SimpleQueue[_Item]) -> None:
        """Put the next item into `inbox`, the queue of one thread, as soon as there is one."""
        with self._lock:
            if not self._waiting:
                self._idle.append(inbox)
                return
            item = self._waiting.popleft()
        inbox.put(item)


class _Lane:
    """One lane's queue and threads. All methods are called on the event loop's thread."""

    def __init__(self, lane: Lane, size: int) -> None:
        assert size > 0, (lane, size)
        self._name = lane.value
        self._size = size
        self._jobs = _Jobs()
        self._threads = 0
        self._unfinished = 0

    def start(self, loop: asyncio.AbstractEventLoop, job: _Job, ended: _Ended) -> None:
        """Run `job` in a thread, then call `ended` on the event loop with its result and its exception."""
        self._unfinished += 1
        self._jobs.put((job, ended, self, loop))
        self._start_thread(loop)

    def _start_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start another thread if all threads are busy and the lane may have one more."""
        if self._threads >= min(self._unfinished, self._size):
            return
        try:
            thread = threading.Thread(target=_work, args=(self._jobs,), name=f"oncelog-{self._name}", daemon=True)
            thread.start()
        except (RuntimeError, MemoryError):  # the system has no thread left; the existing threads do the work
            if not self._threads:
                loop.call_later(RETRY_S, self._start_thread, loop)
        else:
            self._threads += 1

    def close(self) -> None:
        for _ in range(self._threads):
            self._jobs.put(None)
        # Later jobs use a new queue and new threads, because the existing threads may take a long time to end.
        self._jobs, self._threads, self._unfinished = _Jobs(), 0, 0

    def settle(self, jobs: _Jobs, ended: _Ended, result: Any, error: BaseException | None) -> None:
        """Record the end of a job, and call `ended` with its result and error."""
        if jobs is self._jobs:
            self._unfinished -= 1
        ended(result, error)


def _resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Set the result or the exception of a job's future."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):  # a future refuses it; RuntimeError is raised as in PEP 479
        future.set_exception(RuntimeError(f"a job raised {error!r}"))
    else:
        future.set_exception(error)


def _work(jobs: _Jobs) -> None:
    """Run jobs until None arrives instead of a job; this is the function of each thread."""
    inbox: SimpleQueue[_Item] = SimpleQueue()
    jobs.ask(inbox)
    while (item := inbox.get()) is not None:
        job, ended, lane, loop = item
        result: Any = None
        failure: BaseException | None = None
        try:
            result = job()
        except BaseException as error:  # raised in the task that waits for the job
            failure = error
        jobs.ask(inbox)  # before the event loop learns of the end: its next job can then come here
        with suppress(RuntimeError):  # the job's event loop is closed, so no task waits for the job
            loop.call_soon_threadsafe(lane.settle, jobs, ended, result, failure)
        del item, job, ended, lane, result, failure  # an idle thread must not keep objects alive


def _close(lanes: Any) -> None:
    for lane in lanes:
        lane.close()
