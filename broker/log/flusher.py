"""Group commit: puts on disk what the logs of a data directory have appended, several logs at a time.

Owns: which logs are dirty, which are being flushed, which go first, and housekeeping jobs. A log has one flush under
way at most; what is appended meanwhile is part of its next one, so its writers share flushes. Each log is done when its
own files are synced: none waits for another's. Logs that somebody waits for go before those that are flushed for later.

Syncs run in the flush lane of the threads, side by side: a journaling file system puts those that come together into
one commit. Housekeeping (checkpoints, unlinks) has lanes of its own, where a job may take its time. All state is
changed on the event loop, where `PartitionLog.finish_flush` moves the high watermark and wakes the writers.

What a failure means:

* A sync that fails is never tried again: the system may have dropped the pages that it could not write and call them
  clean, so a second success would mean nothing. It concerns the log whose file it was (`Flushable.flush_failed`), or,
  for the directory that holds all logs, everything (`on_failure`). An unexpected error of a flush counts as such a
  failure of the log: what is on disk is not known, so nothing of it may be acknowledged.
* A file that cannot be opened for want of a descriptor was not synced at all: the flush is tried again (`RETRY_S`), and
  its waiters wait. So they do when there is no space: then the log writes the bytes once more (`Flushable.take_back`).
* A housekeeping job (`submit`) that fails is logged once and tried again (`try_again`) until it succeeds, whatever it
  raised. No log is taken offline because a derived file cannot be synced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import structlog

from ..descriptors import NO_SPACE, OUT_OF_DESCRIPTORS
from ..ports import File, FileSystem, Lane, Threads
from .episodes import Episodes
from .shared_directory import RootSyncFailed, SharedDirectory

logger = structlog.get_logger(__name__)

RETRY_S: Final = 0.5
"""Seconds until a flush that lacked a descriptor or space is tried again."""


MOST_AT_ONCE: Final = 64
"""Logs that are given to the threads at a time; a log that somebody waits for has no more than these before it."""

_BEGUN_PER_TURN: Final = 32
"""Flushes that begin in one turn of the event loop."""

_LATER_SHARE: Final = 8
"""One flush in this many is for a log that nobody waits for, so that readers see its records, too."""


@dataclass(slots=True)
class FlushTask:
    """What one log wants on disk: open `files`, derived files at `paths`, the names in its `directory` ("": no need),
    and its own name, which is the change `root_change` of `root` (0: no need).

    It covers the log up to `end_offset`. `note` is called with `end_offset` afterwards.
    """

    end_offset: int
    files: list[File]
    paths: list[str] = field(default_factory=list)
    directory: str = ""
    root: SharedDirectory | None = None
    root_change: int = 0
    note: Callable[[int], None] | None = None

    def run(self, fs: FileSystem) -> None:
        """Sync everything. Raises RootSyncFailed: nothing is known about any log; anything else: about this one.

        What has been deleted since the task was made (retention, compaction, DeleteTopics) needs no sync.
        """
        for file in self.files:
            file.fdatasync()
        for path in self.paths:
            sync_derived(fs, path)
        if self.directory:
            with suppress(FileNotFoundError):
                fs.sync_directory(self.directory)
        if self.root is not None and self.root_change:
            self.root.sync(self.root_change)
        if self.note is not None:
            self.note(self.end_offset)


def sync_derived(fs: FileSystem, path: str) -> None:
    """Put a file that can be made again (an index, a snapshot) on disk, if it is there and the disk takes it.

    One that cannot be synced stays: its checksum tells what is in it. Without the file an index of aborted
    transactions would seem to be empty. Raises OSError for want of a descriptor.
    """
    try:
        sync_path(fs, path)
    except FileNotFoundError:
        return
    except Exception as error:
        if isinstance(error, OSError) and error.errno in OUT_OF_DESCRIPTORS:
            raise
        remedy = "nothing to do: where its checksum does not match it is made again from the log"
        logger.warning("derived file not on disk", file=path, error=repr(error), remedy=remedy)


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
        # Dirty logs: those that somebody waits for, and the others; and those whose flush is under way, with whether
        # another one has to follow (None: no; else whether somebody waits for it).
        self._urgent: dict[Flushable, None] = {}
        self._later: dict[Flushable, None] = {}
        self._flushing: dict[Flushable, bool | None] = {}
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._episodes = Episodes()
        self._undone: dict[str, tuple[Callable[[], None], Lane]] = {}
        self._postponed: dict[Flushable, FlushTask | None] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._begun = 0
        self._since: dict[Flushable, float] = {}  # when the flush began, the longest first
        self._in_trouble = False
        self._scheduled = False
        self._failed = False
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()

    def request(self, log: Flushable, *, urgent: bool = False) -> None:
        """Flush `log` soon; before those that nobody waits for if it is `urgent`."""
        if log in self._flushing:
            self._flushing[log] = urgent or bool(self._flushing[log])
            return
        if urgent:
            self._later.pop(log, None)
            self._urgent[log] = None
        elif log not in self._urgent:
            self._later[log] = None
        if not self._scheduled:
            self._schedule()

    def submit(
        self, job: Callable[[], None], what: str = "housekeeping", lane: Lane = Lane.HOUSEKEEPING
    ) -> asyncio.Future[None]:
        """Run `job` in a lane where jobs run in order; the future fails with OSError if the job raises anything.

        A failed job is kept under its name `what`, in place of one of that name that failed before, for `try_again`;
        so it must bear being run again.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # waiting for it is optional
        if self._failed:
            future.set_exception(OSError("the log directory has failed or is closed"))
            return future
        self._waiting[future] = None
        self._idle.clear()

        def ended(run: asyncio.Future[None]) -> None:
            error = run.exception()
            if not self._failed:
                if error is None:
                    self._job_done(what, future)
                else:
                    self._job_failed(job, what, lane, error, future)
            self._waiting.pop(future, None)
            self._rest()

        self._threads.run(lane, job).add_done_callback(ended)
        return future

    def try_again(self) -> None:
        """Run the jobs that failed."""
        for what, (job, lane) in list(self._undone.items()):
            self.submit(job, what, lane)

    async def drain(self) -> None:
        """Wait until nothing is dirty, being flushed or being run (or the directory has failed)."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Flush what is dirty, and try what failed once more. Nothing is flushed afterwards."""
        self._stopping = True
        self._flush_postponed()
        self.try_again()
        await self.drain()
        self.abandon()

    def abandon(self) -> None:
        """Begin no further flush, and leave those under way to themselves: `drain` does not wait for them."""
        self._give_up()
        self._idle.set()

    @property
    def oldest_flush_s(self) -> float:
        """Seconds that the longest flush is under way or waits for the system (for space, for descriptors); 0: none."""
        return self._loop.time() - next(iter(self._since.values())) if self._since else 0.0

    # --- flushes -----------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        self._idle.clear()
        self._scheduled = True
        # The rest of this turn of the loop may append more; it shall be in the same flush.
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        for _ in range(min(_BEGUN_PER_TURN, MOST_AT_ONCE - len(self._flushing))):
            dirty = self._next_dirty()
            if self._failed or not dirty:
                break
            log = next(iter(dirty))
            del dirty[log]
            self._flush(log)
        if (self._urgent or self._later) and len(self._flushing) < MOST_AT_ONCE and not self._failed:
            self._schedule()
        self._rest()

    def _next_dirty(self) -> dict[Flushable, None]:
        """The logs of which the next one is flushed: those that somebody waits for, and now and then the others."""
        self._begun += 1
        if self._later and self._begun % _LATER_SHARE == 0:
            return self._later
        return self._urgent or self._later

    def _flush(self, log: Flushable) -> None:
        # What was appended since a flush was postponed is not in it: another one follows.
        again = True if log in self._postponed else None
        try:
            task = self._postponed.pop(log, None) or log.begin_flush()
        except Exception as error:  # a file that was closed to spare descriptors cannot be opened again
            self._unflushed(log, None, _as_os_error(error))
            return
        if task is None:
            self._since.pop(log, None)
        else:
            self._flushing[log] = again
            self._since.setdefault(log, self._loop.time())
            run = self._threads.run(Lane.FLUSH, partial(task.run, self._fs))
            run.add_done_callback(partial(self._flushed, log, task))

    def _flushed(self, log: Flushable, task: FlushTask, run: asyncio.Future[None]) -> None:
        again = self._flushing.pop(log, None)
        error = run.exception()
        if not self._failed:
            if error is None:
                self._finish(log, task)
                self._since.pop(log, None)
            elif isinstance(error, RootSyncFailed):
                self._fail(error)
            else:
                self._unflushed(log, task, _as_os_error(error))
        if not self._failed:
            # Writers woken just now append in this turn of the loop; the next flush begins behind them.
            if again is not None:
                self.request(log, urgent=again)
            elif (self._urgent or self._later) and not self._scheduled:
                self._schedule()
            if self._in_trouble and not self._postponed:
                self._in_trouble = False
                logger.info("flushes go on")
        self._rest()

    def _finish(self, log: Flushable, task: FlushTask) -> None:
        try:
            log.finish_flush(task)
        except Exception as error:  # its waiters must not wait for ever, nor be acknowledged
            log.flush_failed(None, _as_os_error(error))

    def _rest(self) -> None:
        """Let `drain` return if nothing is left to do."""
        if not (self._scheduled or self._flushing or self._waiting or self._urgent or self._later):
            self._idle.set()

    def _unflushed(self, log: Flushable, task: FlushTask | None, error: OSError) -> None:
        if self._stopping or error.errno not in (*NO_SPACE, *OUT_OF_DESCRIPTORS):
            self._since.pop(log, None)
            log.flush_failed(task, error)
            return
        self._since.setdefault(log, self._loop.time())
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
            self.request(log, urgent=True)

    # --- housekeeping ------------------------------------------------------------------------------------------------

    def _job_done(self, what: str, future: asyncio.Future[None]) -> None:
        self._undone.pop(what, None)
        self._episodes.succeeded(what)
        if not future.done():
            future.set_result(None)

    def _job_failed(
        self, job: Callable[[], None], what: str, lane: Lane, error: BaseException, future: asyncio.Future[None]
    ) -> None:
        self._episodes.failed(what, error)
        self._undone[what] = job, lane
        if not future.done():
            future.set_exception(error if isinstance(error, OSError) else OSError(f"{what} failed: {error!r}"))

    # --- the end -----------------------------------------------------------------------------------------------------

    def _fail(self, error: OSError) -> None:
        if not self._failed:
            self._give_up()
            self._on_failure(error)

    def _give_up(self) -> None:
        """Nothing more is done: who waits for a job must not wait for ever."""
        self._failed = True
        self._urgent.clear()
        self._later.clear()
        self._undone.clear()
        self._postponed.clear()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(OSError("the log directory has failed or is closed"))
        self._rest()


def _as_os_error(error: BaseException) -> OSError:
    """The failure of a flush; one that is no OSError is a bug or want of memory, and logged with its traceback."""
    if isinstance(error, OSError):
        return error
    logger.error("flush failed unexpectedly", exc_info=error)
    return OSError(f"flushing failed: {error!r}")
