"""Group commit: puts on disk, round after round, what all logs of a data directory have appended.

Owns: which logs are dirty, the order of rounds, housekeeping jobs. A round takes every log that is dirty when it
begins; whoever appends meanwhile is part of the next one, so any number of writers share a flush. A round runs in the
flush lane of the threads, one at a time, and does nothing but sync files and run jobs; all state is changed on the
event loop, where `PartitionLog.finish_flush` moves the high watermark and wakes the writers.

What a failure means:

* A sync that fails is never tried again: the system may have dropped the pages that it could not write and call them
  clean, so a second success would mean nothing. It concerns the log whose file it was (`Flushable.flush_failed`), or,
  for the directory that holds all logs, everything (`on_failure`).
* A file that cannot be opened for want of a descriptor was not synced at all: the flush is tried again (`RETRY_S`), and
  its waiters wait. So they do when there is no space: then the log writes the bytes once more (`Flushable.take_back`).
* A housekeeping job (`submit`) that fails is logged once and tried again (`try_again`) until it succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import structlog

from ..descriptors import NO_SPACE, OUT_OF_DESCRIPTORS
from ..ports import File, FileSystem, Lane, Threads
from .episodes import Episodes

logger = structlog.get_logger(__name__)

_Outcome: TypeAlias = Callable[[], None]
_Work: TypeAlias = Callable[[], _Outcome]

RETRY_S: Final = 0.5
"""Seconds until a flush that lacked a descriptor or space is tried again."""


class RootSyncFailed(OSError):
    """The directory that holds all partitions cannot be synced."""


@dataclass(slots=True)
class FlushTask:
    """What one log wants on disk: open `files`, derived files at `paths`, its `directory`, the `root` above all logs.

    It covers the log up to `end_offset`. Empty strings: nothing to do there. `note` is called with `end_offset`
    afterwards.
    """

    end_offset: int
    files: list[File]
    paths: list[str] = field(default_factory=list)
    directory: str = ""
    root: str = ""
    note: Callable[[int], None] | None = None

    def run(self, fs: FileSystem) -> None:
        """Sync everything. Raises OSError: nothing is known about the log's files; RootSyncFailed: about any log's.

        What has been deleted since the task was made (retention, compaction, DeleteTopics) needs no sync.
        """
        for file in self.files:
            file.fdatasync()
        for path in self.paths:
            sync_derived(fs, path)
        if self.directory:
            with suppress(FileNotFoundError):
                fs.sync_directory(self.directory)
        if self.root:
            try:
                fs.sync_directory(self.root)
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    raise
                raise RootSyncFailed(error.errno, error.strerror, self.root) from error
        if self.note is not None:
            self.note(self.end_offset)


def sync_derived(fs: FileSystem, path: str) -> None:
    """Return when a file that can be made again (an index, a snapshot) is on disk, or else gone.

    Raises OSError when it can be neither, or for want of a descriptor.
    """
    try:
        sync_path(fs, path)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno in OUT_OF_DESCRIPTORS:
            raise
        logger.warning("derived file removed", file=path, error=str(error), remedy="it is made again from the log")
        fs.unlink(path)


def sync_path(fs: FileSystem, path: str) -> None:
    """Return when the file at `path` is on disk."""
    file = fs.open(path)
    try:
        file.fdatasync()
    finally:
        file.close()


class Flushable(Protocol):
    """A log, as the flusher sees it."""

    def begin_flush(self) -> FlushTask | None: ...

    def finish_flush(self, task: FlushTask) -> None: ...

    def take_back(self, task: FlushTask) -> None: ...

    def flush_failed(self, task: FlushTask | None, error: OSError) -> None: ...


class LogFlusher:
    """Flushes logs and runs housekeeping jobs. Made, used and stopped on the event loop's thread.

    `on_failure` is called once, when nothing in the directory can be trusted to be on disk any more.
    """

    def __init__(self, fs: FileSystem, threads: Threads, on_failure: Callable[[OSError], None]) -> None:
        self._fs = fs
        self._threads = threads
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._dirty: dict[Flushable, None] = {}
        self._jobs: list[_Work] = []
        self._waiting: set[asyncio.Future[None]] = set()
        self._episodes = Episodes()
        self._undone: dict[str, Callable[[], None]] = {}
        self._postponed: dict[Flushable, FlushTask | None] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._in_trouble = False
        self._scheduled = False
        self._busy = False
        self._failed = False
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()

    def request(self, log: Flushable) -> None:
        """Flush `log` in the next round."""
        self._dirty[log] = None
        self._schedule()

    def submit(self, job: Callable[[], None], what: str = "housekeeping") -> asyncio.Future[None]:
        """Run `job` in the flush lane, as part of a round; its OSError fails the future.

        A failed job is kept under its name `what`, in place of one of that name that failed before, for `try_again`;
        so it must bear being run again.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # waiting for it is optional
        if self._failed:
            future.set_exception(OSError("the log directory has failed or is closed"))
            return future
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)

        def run() -> _Outcome:
            try:
                job()
            except OSError as error:
                return lambda error=error: self._job_failed(job, what, error, future)  # type: ignore[misc]
            return lambda: self._job_done(what, future)

        self._jobs.append(run)
        self._schedule()
        return future

    def try_again(self) -> None:
        """Run the jobs that failed."""
        for what, job in list(self._undone.items()):
            self.submit(job, what)

    async def drain(self) -> None:
        """Wait until nothing is dirty and nothing is being flushed (or the directory has failed)."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Flush what is dirty, and try what failed once more. Nothing is flushed afterwards."""
        self._stopping = True
        self._flush_postponed()
        self.try_again()
        await self.drain()
        self.abandon()

    def abandon(self) -> None:
        """Begin no further round, and let nobody wait for the one in hand."""
        self._give_up()
        self._dirty.clear()
        self._idle.set()

    # --- on the loop -------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Begin a round once, after this turn of the loop; the end of a round that is under way calls this again."""
        self._idle.clear()
        if not self._busy and not self._scheduled:
            self._scheduled = True
            # The rest of this turn of the loop may append more; it shall be in the same round.
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        work, self._jobs = self._jobs, []
        logs, self._dirty = self._dirty, {}
        if not self._failed:
            for log in logs:
                task = self._postponed.pop(log, None)
                try:
                    task = task or log.begin_flush()
                except OSError as error:  # a file that was closed to spare descriptors cannot be opened again
                    self._unflushed(log, None, error)
                    continue
                if task is not None:
                    work.append(self._work(log, task))
        if work and not self._failed:
            self._busy = True
            self._threads.run(Lane.FLUSH, lambda: _outcomes(work)).add_done_callback(self._finish)
        else:
            self._idle.set()

    def _work(self, log: Flushable, task: FlushTask) -> _Work:
        def run() -> _Outcome:
            try:
                task.run(self._fs)
            except RootSyncFailed as error:
                return lambda error=error: self._fail(error)  # type: ignore[misc]
            except OSError as error:
                return lambda error=error: self._unflushed(log, task, error)  # type: ignore[misc]
            return lambda: log.finish_flush(task)

        return run

    def _unflushed(self, log: Flushable, task: FlushTask | None, error: OSError) -> None:
        if self._stopping or error.errno not in (*NO_SPACE, *OUT_OF_DESCRIPTORS):
            log.flush_failed(task, error)
            return
        if task is not None and error.errno in NO_SPACE:
            log.take_back(task)
            task = None
        if not self._in_trouble:
            self._in_trouble = True
            logger.warning(
                "flush waits for the system",
                error=str(error),
                remedy="free space on the disk, or raise the limit of open files; the broker goes on by itself",
            )
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_S, self._flush_postponed)
        self._postponed[log] = task

    def _flush_postponed(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for log in self._postponed:
            self.request(log)

    def _finish(self, round_: asyncio.Future[list[_Outcome | Exception]]) -> None:
        self._busy = False
        for outcome in round_.result():
            if isinstance(outcome, Exception):  # a bug: whatever it was, nothing of this round may count as flushed
                self._fail(OSError(f"flushing failed: {outcome!r}"))
            else:
                outcome()
        if (self._dirty or self._jobs) and not self._failed:
            # Writers woken just now append in this turn of the loop; the next round begins behind them.
            self._schedule()
        elif not self._scheduled:
            self._idle.set()
        if self._in_trouble and not self._postponed:
            self._in_trouble = False
            logger.info("flushes go on")

    def _job_done(self, what: str, future: asyncio.Future[None]) -> None:
        self._undone.pop(what, None)
        self._episodes.succeeded(what)
        if not future.done():
            future.set_result(None)

    def _job_failed(self, job: Callable[[], None], what: str, error: OSError, future: asyncio.Future[None]) -> None:
        self._episodes.failed(what, error)
        self._undone[what] = job
        if not future.done():
            future.set_exception(error)

    def _fail(self, error: OSError) -> None:
        if not self._failed:
            self._give_up()
            self._on_failure(error)

    def _give_up(self) -> None:
        """Nothing more is done: who waits for a job must not wait for ever."""
        self._failed = True
        self._jobs.clear()
        self._undone.clear()
        self._postponed.clear()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(OSError("the log directory has failed or is closed"))


def _outcomes(work: list[_Work]) -> list[_Outcome | Exception]:
    """Do the work of a round, in a thread; what came of each is for the event loop to act on."""
    outcomes: list[_Outcome | Exception] = []
    for run in work:
        try:
            outcomes.append(run())
        except Exception as error:
            outcomes.append(error)
    return outcomes
