"""Group commit: one thread that puts on disk what all logs of a data directory have appended, round after round.

Owns: the thread, which logs are dirty, the order of rounds. A round takes every log that is dirty when it begins;
whoever appends meanwhile is part of the next one, so any number of writers share a flush. The thread does nothing but
sync files; all state is changed on the event loop, where `PartitionLog.finish_flush` moves the high watermark and wakes
the writers.

A sync that fails is never tried again: the system may have dropped the pages that it could not write and call them
clean, so a second success would mean nothing. The whole directory is given up instead (`on_failure`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Protocol

from ..ports import File, FileSystem


@dataclass(slots=True)
class FlushTask:
    """What one log wants on disk: open `files`, `paths`, `directories`; this covers it up to `end_offset`."""

    end_offset: int
    files: list[File]
    paths: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)

    def run(self, fs: FileSystem) -> None:
        """Sync everything; raises OSError, and then nothing is known about any of it.

        What has been deleted since the task was made (retention, compaction, DeleteTopics) needs no sync.
        """
        for file in self.files:
            file.fdatasync()
        for path in self.paths:
            with suppress(FileNotFoundError):
                sync_path(fs, path)
        for directory in self.directories:
            with suppress(FileNotFoundError):
                fs.sync_directory(directory)


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


class LogFlusher:
    """See the module. Made, used and stopped on the event loop's thread."""

    def __init__(self, fs: FileSystem, on_failure: Callable[[OSError], None]) -> None:
        self._fs = fs
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[list[Callable[[], Callable[[], None]]] | None] = SimpleQueue()
        self._dirty: dict[Flushable, None] = {}
        self._jobs: list[Callable[[], Callable[[], None]]] = []
        self._waiting: set[asyncio.Future[None]] = set()
        self._scheduled = False
        self._busy = False
        self._failed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._run, name="log-flusher", daemon=True)
        self._thread.start()

    def request(self, log: Flushable) -> None:
        """Flush `log` in the next round."""
        self._dirty[log] = None
        if not self._scheduled:
            self._schedule()

    def submit(self, job: Callable[[], None]) -> asyncio.Future[None]:
        """Run `job` in the flush thread, between rounds; its OSError gives the directory up and fails the future."""
        future: asyncio.Future[None] = self._loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # waiting for it is optional
        if self._failed:
            future.set_exception(OSError("the log directory has failed or is closed"))
            return future
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)

        def run() -> Callable[[], None]:
            try:
                job()
            except OSError as error:
                return lambda error=error: self._fail(error, future)  # type: ignore[misc]
            return lambda: None if future.done() else future.set_result(None)

        self._jobs.append(run)
        if not self._scheduled:
            self._schedule()
        return future

    async def drain(self) -> None:
        """Wait until nothing is dirty and nothing is being flushed (or the directory has failed)."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Flush what is dirty, then end the thread."""
        await self.drain()
        self.abandon()
        await self._loop.run_in_executor(None, self._thread.join)

    def abandon(self) -> None:
        """End the thread after the round in hand, without another."""
        self._give_up()
        self._dirty.clear()
        self._queue.put(None)

    # --- on the loop -------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        self._idle.clear()
        if not self._busy:
            self._scheduled = True
            # The rest of this turn of the loop may append more; it shall be in the same round.
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        work, self._jobs = self._jobs, []
        logs, self._dirty = self._dirty, {}
        if not self._failed:
            for log in logs:
                try:
                    task = log.begin_flush()
                except OSError as error:  # a file that was closed to spare descriptors can't be opened again
                    self._fail(error, None)
                    break
                if task is not None:
                    work.append(self._work(log, task))
        if work and not self._failed:
            self._busy = True
            self._queue.put(work)
        else:
            self._idle.set()

    def _work(self, log: Flushable, task: FlushTask) -> Callable[[], Callable[[], None]]:
        def run() -> Callable[[], None]:
            try:
                task.run(self._fs)
            except OSError as error:
                return lambda error=error: self._fail(error, None)  # type: ignore[misc]
            return lambda: log.finish_flush(task)

        return run

    def _finish(self, outcomes: list[Callable[[], None]]) -> None:
        self._busy = False
        for outcome in outcomes:
            outcome()
        if (self._dirty or self._jobs) and not self._failed:
            # Writers woken just now append in this turn of the loop; the next round begins behind them.
            self._schedule()
        elif not self._scheduled:
            self._idle.set()

    def _fail(self, error: OSError, future: asyncio.Future[None] | None) -> None:
        if future is not None and not future.done():
            future.set_exception(error)
        if not self._failed:
            self._give_up()
            self._on_failure(error)

    def _give_up(self) -> None:
        """Nothing more is done: who waits for a job must not wait for ever."""
        self._failed = True
        self._jobs.clear()
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(OSError("the log directory has failed or is closed"))

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            outcomes: list[Callable[[], None]] = []
            for run in work:
                try:
                    outcomes.append(run())
                except Exception as error:  # a bug: whatever it was, nothing of this round may count as flushed
                    failure = OSError(f"flushing failed: {error!r}")
                    outcomes.append(lambda failure=failure: self._fail(failure, None))  # type: ignore[misc]
            try:
                self._loop.call_soon_threadsafe(self._finish, outcomes)
            except RuntimeError:
                return  # the loop is closed: nobody is left to tell
