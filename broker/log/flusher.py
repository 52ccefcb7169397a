"""Flush the appended batches of all logs of a data directory to disk (group commit), several logs at a time.

This module keeps the sets of dirty logs and of logs being flushed, decides the order of flushes, and runs housekeeping
jobs. A log has at most one flush under way. Batches that are appended meanwhile are part of its next flush, so the
log's writers share flushes. A flush is complete when the log's own files are synced, without waiting for other logs.
Logs with waiting writers are flushed before logs that are flushed in the background.

With a journal (`journal.py`), the flushes of logs with few unsynced bytes are combined into rounds: one sync of the
journal makes a round durable. At most one round is written at a time. Batches that are appended meanwhile form the next
round.

Syncs run in parallel in the flush lane of the threads: a journaling file system combines simultaneous syncs into one
commit. After a lack of disk space, a flush writes its bytes again before it syncs them. This happens in a lane with one
thread. Housekeeping (checkpoints, unlinks) runs in separate lanes, where jobs may take a long time. All state is
changed on the event loop, where `LogFiles.finish_flush` moves the high watermark and wakes the writers.

Failures:

* A failed sync is never repeated: the system may have dropped the pages that it could not write and marked them as
  clean, so that a later success would prove nothing. The failure concerns the log of the file
  (`Flushable.flush_failed`). A failed sync of the directory that holds all logs concerns all logs (`on_failure`). An
  unexpected error of a flush counts as a failure of the log: it is not known which bytes are on disk, so none of them
  may be acknowledged.
* If a round cannot be written to the journal, its logs sync their own files. This is the first attempt to sync these
  files, and the failure of the journal's file does not affect their pages.
* If a file cannot be opened because no file descriptor is free, it was not synced at all. The flush is repeated after
  `RETRY_S` seconds, and its waiters keep waiting. They also keep waiting when the disk is full: the log then writes the
  bytes again (`Flushable.take_back`).
* A housekeeping job (`submit`) that raises any error is logged once and repeated (`try_again`) until it succeeds. No
  log is taken offline because a derived file cannot be synced.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import structlog

from ..system.descriptors import NO_SPACE, OUT_OF_DESCRIPTORS
from ..system.ports import File, FileSystem, Lane, Threads
from .episodes import Episodes
from .journal_format import Extent
from .shared_directory import RootSyncFailed, SharedDirectory

logger = structlog.get_logger(__name__)

RETRY_S: Final = 0.5
"""Seconds until a flush that lacked a file descriptor or disk space is repeated."""


MOST_AT_ONCE: Final = 64
"""Maximum number of flushes that wait or run in the threads at a time, so that an urgent log does not wait for more.

Flushes that write bytes again do not count: MOST_WRITTEN_AGAIN limits them.
"""

MOST_WRITTEN_AGAIN: Final = 16
"""Maximum number of flushes that write bytes again and wait or run in the threads at a time.

It is limited so that the syncs of other logs do not wait behind all of them.
"""

_BEGUN_PER_TURN: Final = 32
"""Maximum number of flushes that begin in one turn of the event loop."""

_LOGS_PER_ROUND: Final = 256
"""Maximum number of logs in one round of the journal; their flushes end in one turn of the event loop."""

_LATER_SHARE: Final = 8
"""One in this many flushes is for a log without waiting writers, so that its records become visible to readers, too."""


@dataclass(slots=True)
class FlushTask:
    """One flush of a log up to `end_offset` (exclusive), and the files and directories that it syncs.

    `files`: open files. `paths`: derived files. `directory`: the log's directory, "" if its names need no sync. `root`:
    the directory that holds the log's directory. `root_change`: the number of the change in `root` that must be synced,
    or 0 if there is none. `rewrite`: writes the log's bytes again before they are synced, because the disk was full; it
    may raise OSError. `note`: called with `end_offset` after the syncs. `extent`: the bytes that the journal can make
    durable in place of all these syncs, or None if it cannot. `is_journaled`: whether the journal makes this flush
    durable.
    """

    end_offset: int
    files: list[File]
    paths: list[str] = field(default_factory=list)
    directory: str = ""
    root: SharedDirectory | None = None
    root_change: int = 0
    note: Callable[[int], None] | None = None
    extent: Extent | None = None
    is_journaled: bool = False
    rewrite: Callable[[], None] | None = None

    def steps(self, fs: FileSystem) -> list[tuple[Lane, Callable[[], None]]]:
        """Return the jobs of this flush in their order, each with its lane. They raise the same errors as `run`.

        If bytes must be written again (`rewrite`), the first job syncs the files, because the descriptor pool may have
        kept an error of an earlier sync. In that case this job raises the error, which ends the flush.
        """
        run = Lane.FLUSH, partial(self.run, fs)
        if self.rewrite is None:
            return [run]
        return [(Lane.FLUSH, self.sync_files), (Lane.REWRITE, self.rewrite), run]

    def run(self, fs: FileSystem) -> None:
        """Sync all files and directories of this flush.

        Files that have been deleted since the task was created (by retention, compaction or DeleteTopics) need no sync.
        Raises RootSyncFailed, after which no log can be trusted to be on disk. After any other error, only this log
        cannot be trusted.
        """
        self.sync_files()
        for path in self.paths:
            sync_derived(fs, path)
        if self.directory:
            with suppress(FileNotFoundError):
                fs.sync_directory(self.directory)
        if self.root is not None and self.root_change:
            self.root.sync(self.root_change)
        if self.note is not None:
            self.note(self.end_offset)

    def sync_files(self) -> None:
        """Sync the files of this flush.

        After a lack of disk space, the next flush writes the bytes of all these files again. The descriptor pool may
        have synced one of the files before, and found no space. Writes to this file then fail until fdatasync reports
        the error. So a lack of space is raised only after all files have been synced. Any other error is raised at
        once.

        If a lack of descriptors follows a lack of space, the lack of space is raised. If the lack of descriptors were
        raised, the next flush would not write the bytes again, and they would be lost.
        """
        lack: OSError | None = None
        for file in self.files:
            try:
                file.fdatasync()
            except OSError as error:
                if error.errno in NO_SPACE:
                    lack = lack or error
                elif lack is None or error.errno not in OUT_OF_DESCRIPTORS:
                    raise
        if lack is not None:
            raise lack


def sync_derived(fs: FileSystem, path: str) -> None:
    """Sync a derived file, which can be rebuilt (an index or a snapshot), if it exists. Log a failure as a warning.

    A file that cannot be synced is kept, because its checksum reveals damage, whereas a missing transaction index would
    seem to be empty. Raises OSError if no file descriptor is free.
    """
    try:
        sync_path(fs, path)
    except FileNotFoundError:
        return
    except Exception as error:
        if isinstance(error, OSError) and error.errno in OUT_OF_DESCRIPTORS:
            raise
        remedy = "none needed: if the checksum of the file does not match, it is rebuilt from the log"
        logger.warning("derived file not on disk", file=path, error=repr(error), remedy=remedy)


def sync_path(fs: FileSystem, path: str) -> None:
    """Sync the file at `path`. Raises OSError."""
    file = fs.open(path)
    try:
        file.fdatasync()
    finally:
        file.close()


class Flushable(Protocol):
    """The interface of a log that the flusher uses: its `LogFiles`."""

    @property
    def settling(self) -> FlushTask | None: ...

    @property
    def writes_again(self) -> bool: ...

    @property
    def failure(self) -> Exception | None: ...

    def begin_flush(self) -> FlushTask | None: ...

    def finish_flush(self, task: FlushTask) -> None: ...

    def take_back(self, task: FlushTask) -> None: ...

    def flush_failed(self, task: FlushTask | None, error: OSError) -> None: ...

    def put_back(self, task: FlushTask) -> None: ...


class Rounds(Protocol):
    """The interface of the journal that the flusher uses. It makes the flushes of many logs durable with one sync."""

    round_bytes: int
    """The maximum size in bytes of a round, that is, of the flushes that one sync makes durable."""

    def is_open(self) -> bool:
        """Whether a round can be written now or, while one is being written, directly after it."""

    def log_failed(self, log: Any) -> None:
        """Record that a log has failed, so that the journal does not wait until the log syncs its files."""

    def want(self) -> None:
        """Make the journal ready for rounds if it is not ready yet. Called when rounds would save syncs."""

    def is_writing(self) -> bool: ...

    def has_voids(self) -> bool:
        """Whether there are voids (entries that invalidate earlier entries) that have yet to be written."""

    def cost(self, task: FlushTask) -> int | None:
        """Return the bytes that a flush takes in the journal; None if the log's own files must be synced."""

    def write(self, round: Sequence[tuple[Any, FlushTask]]) -> asyncio.Future[None]:
        """Write a round; the future fails with OSError. Call this only while no other round is being written."""


class LogFlusher:
    """Flushes logs and runs housekeeping jobs. Created, used and stopped on the event loop's thread.

    `on_failure` is called once, when the sync of the directory that holds all logs has failed. With a `journal`, logs
    with few unsynced bytes are flushed in rounds: while one round is written to the journal, the next one forms.
    """

    def __init__(self, fs: FileSystem, threads: Threads, on_failure: Callable[[OSError], None]) -> None:
        self._fs = fs
        self._threads = threads
        self._on_failure = on_failure
        self.journal: Rounds | None = None
        self._loop = asyncio.get_running_loop()
        # Dirty logs with waiting writers, and dirty logs without.
        self._urgent: dict[Flushable, None] = {}
        self._later: dict[Flushable, None] = {}
        # Dirty logs that must write bytes again, and those that are doing so.
        self._again: dict[Flushable, None] = {}
        self._writing_again: set[Flushable] = set()
        # The logs whose flush is under way, and whether another flush has to follow (None: no; otherwise whether that
        # flush is urgent).
        self._flushing: dict[Flushable, bool | None] = {}
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._episodes = Episodes()
        # How many jobs with each name wait or run, and the failed jobs.
        self._unfinished: Counter[str] = Counter()
        self._undone: dict[str, tuple[Callable[[], None], Lane]] = {}
        self._postponed: dict[Flushable, FlushTask | None] = {}
        self._retry: asyncio.TimerHandle | None = None
        # The logs whose flush is repeated although the flusher stops.
        self._last_tries: set[Flushable] = set()
        self._begun = 0
        self._since: dict[Flushable, float] = {}  # when each log's flush began, the oldest first
        self._in_trouble = False
        self._scheduled = False
        self._failed = False
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()

    def request(self, log: Flushable, *, urgent: bool = False) -> None:
        """Flush `log` soon. An `urgent` log has waiting writers, and is flushed before other logs."""
        if log in self._flushing:
            self._flushing[log] = urgent or bool(self._flushing[log])
            return
        if self._retry is not None and log in self._postponed:
            return  # the timer requests the flush
        if log.writes_again:
            self._urgent.pop(log, None)
            self._later.pop(log, None)
            self._again[log] = None
        elif urgent:
            self._later.pop(log, None)
            self._urgent[log] = None
        elif log not in self._urgent:
            self._later[log] = None
        if not self._scheduled:
            self._schedule()

    def submit(
        self, job: Callable[[], None], what: str = "housekeeping", lane: Lane = Lane.HOUSEKEEPING
    ) -> asyncio.Future[None]:
        """Run `job` in a thread of `lane`, which runs jobs in order; return a future that completes when the job ends.

        The future fails with OSError if the job raises any exception. A failed job is kept under its name `what`, in
        place of an earlier failed job with the same name, and `try_again` runs it again. So jobs must be repeatable.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # callers need not wait for it
        if self._failed:
            future.set_exception(OSError("the log directory has failed or is closed"))
            return future
        self._waiting[future] = None
        self._unfinished[what] += 1
        self._idle.clear()

        def ended(run: asyncio.Future[None]) -> None:
            error = run.exception()
            self._unfinished[what] -= 1
            if not self._unfinished[what]:
                del self._unfinished[what]
            if not self._failed:
                if error is None:
                    self._job_done(what, future)
                else:
                    self._job_failed(job, what, lane, error, future)
            self._waiting.pop(future, None)
            self._rest()

        self._threads.run(lane, job).add_done_callback(ended)
        return future

    def log_failed(self, log: Flushable) -> None:
        """Record that a log has failed."""
        self.discarded(log)
        if self.journal is not None:
            self.journal.log_failed(log)

    def discarded(self, log: Flushable) -> None:
        """Stop measuring how long a failed or closed log has waited for a flush, unless its flush is under way."""
        if log not in self._flushing:
            self._since.pop(log, None)

    def try_again(self) -> None:
        """Run each failed housekeeping job again, unless a job with the same name is waiting or running."""
        for what in [what for what in self._undone if not self.is_unfinished(what)]:
            job, lane = self._undone.pop(what)
            self.submit(job, what, lane)

    def is_unfinished(self, what: str) -> bool:
        """Whether a job with the name `what` waits or runs."""
        return what in self._unfinished

    async def drain(self) -> None:
        """Wait until no log is dirty or being flushed and no job is running, or until the directory has failed."""
        await self._idle.wait()

    def begin_stop(self) -> None:
        """Repeat the postponed flushes once. From now on, a flush that lacks disk space or a descriptor fails."""
        self._stopping = True
        self._flush_postponed()

    async def stop(self) -> None:
        """Flush all dirty logs, run the failed jobs once more, wait for both, and stop the flusher."""
        self.begin_stop()
        self.try_again()
        await self.drain()
        self.abandon()

    def abandon(self) -> None:
        """Begin no further flush. Flushes that are under way continue, but `drain` does not wait for them."""
        self._give_up()
        self._idle.set()

    @property
    def oldest_flush_s(self) -> float:
        """The age of the oldest flush in seconds, including waits for disk space or descriptors; 0 without a flush."""
        return self._loop.time() - next(iter(self._since.values())) if self._since else 0.0

    # --- flushes -----------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Begin flushes at the end of this turn of the event loop."""
        self._idle.clear()
        self._scheduled = True
        # Batches that are appended in the rest of this turn of the event loop become part of the same flush.
        self._loop.call_soon(self._begin)

    def wake(self) -> None:
        """Look for work at the end of this turn of the event loop, because the journal's state has changed."""
        if not (self._scheduled or self._failed):
            self._schedule()

    def _begin(self) -> None:
        """Begin the flushes that are due, as many as the limits allow."""
        self._scheduled = False
        for log in list(self._again):
            if self._failed or len(self._writing_again) >= MOST_WRITTEN_AGAIN:
                break
            del self._again[log]
            self._flush(log)
        if self.journal is not None and self.journal.is_open():
            self._begin_round(self.journal)
            self._rest()
            return
        if self.journal is not None and len(self._urgent) > 1:
            self.journal.want()
        for _ in range(min(_BEGUN_PER_TURN, MOST_AT_ONCE - self._given_to_threads)):
            dirty = self._next_dirty()
            if self._failed or not dirty:
                break
            log = next(iter(dirty))
            del dirty[log]
            self._flush(log)
        if (self._urgent or self._later) and self._given_to_threads < MOST_AT_ONCE and not self._failed:
            self._schedule()
        self._rest()

    @property
    def _given_to_threads(self) -> int:
        """The number of flushes under way, without those that write bytes again."""
        return len(self._flushing) - len(self._writing_again)

    def _next_dirty(self) -> dict[Flushable, None]:
        """Return the set from which the next log is flushed: usually the urgent logs, now and then the others."""
        self._begun += 1
        if self._later and self._begun % _LATER_SHARE == 0:
            return self._later
        return self._urgent or self._later

    def _begin_round(self, journal: Rounds) -> None:
        """If no round is being written, begin one with all dirty logs, as far as the limits allow.

        Logs whose own files must be synced are flushed outside of the round. If only one log is dirty, its own files
        are synced, too. The flush takes one sync in either case. But if the bytes were written to the journal, they
        would have to be synced again in the log's files later.
        """
        if journal.is_writing() or self._failed:
            return
        round: list[tuple[Flushable, FlushTask]] = []
        room = journal.round_bytes
        while (dirty := self._next_dirty()) and len(round) < _LOGS_PER_ROUND:
            if self._given_to_threads - len(round) >= MOST_AT_ONCE:
                break
            log = next(iter(dirty))
            del dirty[log]
            is_postponed = log in self._postponed
            task = self._begin_task(log)
            if task is None:
                continue
            cost = None if is_postponed else journal.cost(task)
            if cost is None or cost > room:
                self._sync(log, task)
            else:
                round.append((log, task))
                room -= cost
        if len(round) == len(self._flushing) == 1 and not journal.has_voids():
            self._sync(*round[0])
        elif round or journal.has_voids():
            for _, task in round:
                task.is_journaled = True
            journal.write(round).add_done_callback(partial(self._round_written, round))

    def _round_written(self, round: list[tuple[Flushable, FlushTask]], run: asyncio.Future[None]) -> None:
        """End the flushes of a round. If the journal has failed, sync the logs' own files instead."""
        if run.exception() is None:
            for log, task in round:
                self._flushed(log, task, None)
        else:
            for log, task in round:
                task.is_journaled = False
                if self._failed:
                    self._flushing.pop(log, None)
                else:
                    self._sync(log, task)
        if (self._urgent or self._later) and not (self._scheduled or self._failed):
            self._schedule()
        self._rest()

    def _flush(self, log: Flushable) -> None:
        """Begin a flush of a log in a thread."""
        task = self._begin_task(log)
        if task is not None:
            self._sync(log, task)

    def _begin_task(self, log: Flushable) -> FlushTask | None:
        """Begin a flush of a log, or resume a postponed one. Return its task, or None if no flush has begun."""
        # A postponed flush does not cover the batches that were appended since, so another flush has to follow.
        again = True if log in self._postponed else None
        try:
            task = self._postponed.pop(log, None) or log.begin_flush()
        except Exception as error:  # for example, a file that was closed to save descriptors cannot be opened again
            self._unflushed(log, None, _as_os_error(error))
            return None
        if task is None:
            self._since.pop(log, None)
        else:
            self._flushing[log] = again
            self._since.setdefault(log, self._loop.time())
        return task

    def _sync(self, log: Flushable, task: FlushTask) -> None:
        """Sync the files of a flush in a thread."""
        if log.failure is not None or log.settling is not None or log.writes_again:
            # After a sync that has failed or lacked space, a second one of the same bytes would prove nothing: the log
            # is offline, or its next flush writes them again. A log whose files are being synced for the journal
            # requests another flush after that.
            self._flushing.pop(log, None)
            log.put_back(task)
            if log.failure is not None:
                self.discarded(log)
            elif log.writes_again:
                self.request(log, urgent=True)
            return
        if task.rewrite is None:
            run = partial(task.run, self._fs)
            self._threads.start(Lane.FLUSH, run, partial(self._flushed, log, task))
            return
        self._writing_again.add(log)
        self._take_steps(log, task, task.steps(self._fs))

    def _take_steps(
        self,
        log: Flushable,
        task: FlushTask,
        steps: list[tuple[Lane, Callable[[], None]]],
        error: BaseException | None = None,
    ) -> None:
        """Run the jobs of a flush, each in its lane, one after the other. End the flush after the first error."""
        if error is None and steps:
            (lane, job), *others = steps
            self._threads.start(lane, job, partial(self._take_steps, log, task, others))
        else:
            self._writing_again.discard(log)
            self._flushed(log, task, error)

    def _flushed(self, log: Flushable, task: FlushTask, error: BaseException | None) -> None:
        """Handle the end of a flush: notify the log, and begin the next flushes."""
        again = self._flushing.pop(log, None)
        if not self._failed:
            if error is None:
                self._finish(log, task)
                self._since.pop(log, None)
            elif isinstance(error, RootSyncFailed):
                self._fail(error)
            else:
                self._unflushed(log, task, _as_os_error(error))
        if not self._failed:
            # Writers that were woken just now append in this turn of the event loop; the next flush includes them.
            if again is not None:
                self.request(log, urgent=again)
            elif (self._urgent or self._later or self._again) and not self._scheduled:
                self._schedule()
            if self._in_trouble and not self._postponed:
                self._in_trouble = False
                logger.info("flushes continue")
        self._rest()

    def _finish(self, log: Flushable, task: FlushTask) -> None:
        """Notify the log that a flush has succeeded; if this raises, the flush counts as failed."""
        try:
            log.finish_flush(task)
        except Exception as error:  # the log's waiters must neither wait forever nor get an acknowledgement
            log.flush_failed(None, _as_os_error(error))

    def _rest(self) -> None:
        """Let `drain` return if no flush or job is left."""
        if not (self._scheduled or self._flushing or self._waiting or self._urgent or self._later or self._again):
            self._idle.set()

    def _unflushed(self, log: Flushable, task: FlushTask | None, error: OSError) -> None:
        """Postpone a flush that lacked disk space or a descriptor; after any other error, fail the log's flush.

        When the flusher stops, a flush that lacked disk space is immediately repeated once: the descriptor pool may
        have noticed the lack some time ago, and there may be enough space now.
        """
        if self._stopping and task is not None and error.errno in NO_SPACE and log not in self._last_tries:
            self._last_tries.add(log)
            log.take_back(task)
            self.request(log, urgent=True)
            return
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
                "flush waits for disk space or a descriptor",
                error=str(error),
                remedy="free space on the disk, or raise the limit of open files; then the broker continues",
            )
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_S, self._flush_postponed)
        self._postponed[log] = task

    def _flush_postponed(self) -> None:
        """Flush the logs whose flush was postponed."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for log in self._postponed:
            self.request(log, urgent=True)

    # --- housekeeping ------------------------------------------------------------------------------------------------

    def _job_done(self, what: str, future: asyncio.Future[None]) -> None:
        """Record that a job has succeeded, and complete its future."""
        self._undone.pop(what, None)
        self._episodes.succeeded(what)
        if not future.done():
            future.set_result(None)

    def _job_failed(
        self, job: Callable[[], None], what: str, lane: Lane, error: BaseException, future: asyncio.Future[None]
    ) -> None:
        """Log that a job has failed, keep it for `try_again`, and fail its future."""
        self._episodes.failed(what, error)
        self._undone[what] = job, lane
        if not future.done():
            future.set_exception(error if isinstance(error, OSError) else OSError(f"{what} failed: {error!r}"))

    # --- the end -----------------------------------------------------------------------------------------------------

    def _fail(self, error: OSError) -> None:
        """Stop all work and call `on_failure`, unless this has been done before."""
        if not self._failed:
            self._give_up()
            self._on_failure(error)

    def _give_up(self) -> None:
        """Stop all work, and fail the futures of all jobs, so that no caller waits forever."""
        self._failed = True
        self._urgent.clear()
        self._later.clear()
        self._again.clear()
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
    """Return the error of a flush as an OSError. Any other error is a bug or a lack of memory; log its traceback."""
    if isinstance(error, OSError):
        return error
    logger.error("flush failed unexpectedly", exc_info=error)
    return OSError(f"the flush failed unexpectedly: {error!r}")
