"""Track which part of a log is on disk, and how far readers may see; a base class of `PartitionLog`.

Owns the high watermark, the last stable offset, the flushed offset, the waiters of each flush, and the offline state.
Does not know the appended batches: `PartitionLog` calls `_appended` after each append.

Invariants, at every moment:

* log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset. With durability "flush" also
  high_watermark <= flushed_offset, so that no reader sees a record that a crash could lose.
* A flush covers everything that was appended before it began. At most one flush is under way. Its files stay open until
  it ends.
* Everything below `flushed_offset` is durable: below `synced_offset` in the partition's own files, the rest in the
  journal (`journal.py`).
* After `fail` nothing is appended or acknowledged any more. Records on disk can be read until the log is closed.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from itertools import chain
from typing import Any, Final

import structlog

from ...protocol.errors import ErrorCode, KafkaError
from ..scheduling.steps import Steps, run_at_once
from ..system.descriptors import NO_SPACE, OUT_OF_DESCRIPTORS
from ..system.ports import File, FileSystem, Lane, Threads
from .batch_scan import BrokenBatch
from .flushed_mark import write_flushed_offset
from .flusher import FlushTask, LogFlusher
from .journal_format import Extent
from .log_config import LogConfig
from .producer_state_manager import ProducerStateManager
from .removal import unlink_all
from .results import storage_error
from .segment import LogSegment
from .segments import LogSegments
from .shared_directory import SharedDirectory

logger = structlog.get_logger(__name__)

Listener = Callable[[Any], None]

_CLOSED_PER_STEP: Final = 25

CLOSE: Final = 8
"""The cost of closing the file of a segment, in units of work (`steps.py`)."""


class FlushedLog:
    """The durability and the visibility of a log's records.

    If `flusher` and `threads` are None (in tools and tests), only `flush` flushes the log, and all work is done in the
    caller's thread. `on_disk_failure` is called with the log and the error after a failed write or sync has taken the
    log offline.
    """

    __slots__ = (
        "_close_after_flush",
        "_directory_unsynced",
        "_durable_in",
        "_failure",
        "_flushing",
        "_flushing_segments",
        "_journaled_segments",
        "_listeners",
        "_on_disk_failure",
        "_reached",
        "_root",
        "_root_change",
        "_settling",
        "_settling_segments",
        "_unsynced_paths",
        "_unsynced_segments",
        "_waiting_for_current",
        "_waiting_for_next",
        "_write_again",
        "closed",
        "config",
        "directory",
        "files_lock",
        "flushed_offset",
        "flusher",
        "fs",
        "high_watermark",
        "last_stable_offset",
        "log_end_offset",
        "log_start_offset",
        "name",
        "producers",
        "segments",
        "synced_offset",
    )

    def __init__(
        self,
        name: str,
        directory: str,
        *,
        fs: FileSystem,
        config: LogConfig,
        segments: LogSegments,
        producers: ProducerStateManager,
        log_start_offset: int,
        log_end_offset: int,
        flusher: LogFlusher | None,
        root: SharedDirectory | None,
        threads: Threads | None,
        on_disk_failure: Callable[[Any, OSError], None] | None,
    ) -> None:
        self.files_lock = nullcontext() if threads is None else threads.lock()
        """Held by jobs in threads while they create or remove files by name, and while the directory is renamed."""
        self.name = name
        self.directory = directory
        self.fs = fs
        self.config = config
        self.segments = segments
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.flushed_offset = log_end_offset
        self.synced_offset = log_end_offset
        self.high_watermark = log_end_offset
        self.last_stable_offset = log_end_offset
        self.flusher = flusher
        self.closed = False
        self._on_disk_failure = on_disk_failure
        self._listeners: dict[Listener, None] = {}
        self._failure: KafkaError | None = None
        # The work of the next flush, the flush that is under way, and the futures of the waiters of both.
        self._unsynced_segments: list[LogSegment] = []
        self._flushing_segments: list[LogSegment] = []
        self._unsynced_paths: list[str] = []
        self._directory_unsynced = False
        self._root = root
        self._root_change = 0
        self._write_again = False
        self._flushing: FlushTask | None = None
        # The segments with bytes that are durable in the journal only, and those that are being synced for that reason.
        # Then the byte of the active segment up to which everything is durable, and the one that the flush under way
        # reaches.
        self._journaled_segments: list[LogSegment] = []
        self._settling_segments: list[LogSegment] = []
        self._settling: FlushTask | None = None
        self._durable_in = self._reached = segments.active, segments.active.size
        self._close_after_flush: list[File] = []
        self._waiting_for_current: asyncio.Future[None] | None = None
        self._waiting_for_next: asyncio.Future[None] | None = None
        producers.on_high_watermark(log_end_offset)
        self._update_last_stable_offset()

    # --- visibility --------------------------------------------------------------------------------------------------

    def add_listener(self, listener: Listener) -> None:
        """Call `listener(log)` after each move of the high watermark or last stable offset. It must not append."""
        self._listeners[listener] = None

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling `listener`, if it was added."""
        self._listeners.pop(listener, None)

    def _advance(self, high_watermark: int) -> None:
        """Set the high watermark, update the last stable offset, and call the listeners."""
        self.high_watermark = high_watermark
        if self.producers.has_unstable:
            self.producers.on_high_watermark(high_watermark)
            self._update_last_stable_offset()
        else:
            self.last_stable_offset = max(high_watermark, self.log_start_offset)
        if self._listeners:
            for listener in list(self._listeners):
                listener(self)

    def _update_last_stable_offset(self) -> None:
        """Set the last stable offset: the first unstable offset, but at most the high watermark."""
        stable = self.high_watermark
        if (first := self.producers.first_unstable_offset) is not None:
            stable = min(first, stable)
        self.last_stable_offset = max(stable, self.log_start_offset)

    @property
    def size(self) -> int:
        """The size of all segments without their indexes, in bytes."""
        return sum(segment.size for segment in self.segments)

    # --- durability --------------------------------------------------------------------------------------------------

    def flushed(self, end_offset: int) -> asyncio.Future[None] | None:
        """Return None if everything below `end_offset` is as durable as `durability` demands, else a future for that.

        All waiters of the same flush share the future, so shield it. If the flush fails, the future fails with
        KafkaError KAFKA_STORAGE_ERROR; the appended batches may or may not survive then.
        """
        return None if self.config.durability == "os" else self.synced(end_offset)

    def synced(self, end_offset: int) -> asyncio.Future[None] | None:
        """Return None if everything below `end_offset` is on disk, else a future for it; `durability` has no influence.

        All waiters of the same flush share the future, so shield it. Raises KAFKA_STORAGE_ERROR if the log is offline;
        the future fails with it if the flush fails.
        """
        if end_offset <= self.flushed_offset:
            return None
        assert end_offset <= self.log_end_offset, "the end offset must not be above the log end offset"
        if self._failure is not None:
            raise self._failure
        if self.flusher is None:
            self.flush()
            return None
        if self._flushing is not None and end_offset <= self._flushing.end_offset:
            if self._waiting_for_current is None:
                self._waiting_for_current = _future()
            return self._waiting_for_current
        if self._waiting_for_next is None:
            self._waiting_for_next = _future()
            self.flusher.request(self, urgent=True)
        return self._waiting_for_next

    def flush(self) -> None:
        """Flush the log in the calling thread; raise KAFKA_STORAGE_ERROR if that fails.

        The flusher must not be flushing this log at the same time.
        """
        assert self._flushing is None, "a flush is under way"
        task = self.begin_flush()
        if task is None:
            return
        try:
            task.run(self.fs)
        except OSError as error:
            self._end_flush()
            raise self.disk_failed(error) from error
        self.finish_flush(task)

    def begin_flush(self) -> FlushTask | None:
        """Begin a flush of everything appended so far; return its task, or None if nothing has to be synced.

        Raises OSError, without a change, if a file cannot be opened or written.
        """
        if self.closed or self._failure is not None or self._flushing is not None:
            return None
        segments = self._unsynced_segments
        if self._journaled_segments:
            segments = list(dict.fromkeys((*self._journaled_segments, *segments)))
        if not (segments or self._unsynced_paths or self._directory_unsynced):
            return None
        extent = None
        if self._write_again:
            if self._settling is not None:
                return None  # `end_settling` requests a flush
            self._rewrite(segments)
        else:
            if self.flusher is not None and self.flusher.journal is not None:
                extent = self._extent()
            if extent is None and self._settling is not None:
                return None
        active = self.segments.active
        task = FlushTask(
            self.log_end_offset,
            [segment.file for segment in segments],
            self._unsynced_paths,
            self.directory if self._directory_unsynced else "",
            self._root,
            self._root_change,
            self._note_flushed,
            extent,
        )
        self._reached = active, active.size
        self._flushing_segments, self._unsynced_segments = segments, []
        self._unsynced_paths, self._directory_unsynced, self._root_change = [], False, 0
        self._flushing = task
        self._waiting_for_current, self._waiting_for_next = self._waiting_for_next, None
        return task

    def finish_flush(self, task: FlushTask) -> None:
        """End a successful flush: advance the high watermark and wake the writers that wait for the flush."""
        if self._flushing is not task:
            return  # failed or closed meanwhile
        if task.is_journaled:
            if self._journaled_segments != self._flushing_segments:
                self._journaled_segments = list(dict.fromkeys((*self._journaled_segments, *self._flushing_segments)))
        else:
            self._journaled_segments = []
        self._durable_in = self._reached
        self._end_flush()
        waiting, self._waiting_for_current = self._waiting_for_current, None
        if waiting is not None and not waiting.done():
            # Before the listeners, which may take the log offline after a failed read: these records are on disk.
            waiting.set_result(None)
        if self._failure is None and not self.closed:
            self.flushed_offset = max(self.flushed_offset, task.end_offset)
            if not task.is_journaled:
                self.synced_offset = self.flushed_offset
            if self.config.durability != "os":
                self._advance(max(self.flushed_offset, self.high_watermark))

    def _end_flush(self) -> None:
        """Forget the flush that was under way, and close the files that had to stay open for it."""
        self._flushing = None
        self._flushing_segments = []
        self._close_waiting_files()

    def _close_waiting_files(self) -> None:
        """Close the files that had to stay open for a sync, unless another sync may use them."""
        if self._flushing is None and self._settling is None:
            for file in self._close_after_flush:
                file.close()
            self._close_after_flush.clear()

    def _extent(self) -> Extent | None:
        """Return what the journal needs to make all appended bytes durable; None if files or names need a sync."""
        active, unsynced = self.segments.active, self._unsynced_segments
        segment, position = self._durable_in
        if (
            len(unsynced) != 1
            or unsynced[0] is not active
            or segment is not active
            or self._unsynced_paths
            or self._directory_unsynced
            or self._root_change
        ):
            return None
        size = active.size - position
        return Extent(self.name, active.base_offset, position, size, self.log_end_offset, active.file)

    def _note_flushed(self, end_offset: int) -> None:
        """Write the flushed offset to its file for the next start. Runs in a thread of the flush lane."""
        with self.files_lock:
            # The directory's name may belong to another partition by now.
            if not self.closed and self._failure is None:
                try:
                    write_flushed_offset(self.fs, self.directory, end_offset)
                except OSError:
                    pass  # the older offset in the file is still correct
                except Exception as error:
                    logger.warning("flushed offset not noted", partition=self.name, exc_info=error)

    def flush_failed(self, task: FlushTask | None, error: OSError) -> None:
        """Take the log offline, because the flush `task` failed. None means that the next flush could not begin."""
        if task is None or self._flushing is task:
            self._end_flush()
            if not self.closed:
                self.disk_failed(error)

    def take_back(self, task: FlushTask) -> None:
        """End the flush `task`, which failed because the disk is full, and let the next flush write its bytes again.

        Writing again is necessary because the system may have dropped the bytes.
        """
        if self._flushing is not task:
            return  # failed or closed meanwhile
        self._put_back(task)
        self._write_again = True

    def put_back(self, task: FlushTask) -> None:
        """End the flush `task`, which has synced nothing; the next flush does its work.

        This is for a flush that the journal cannot make durable while the log's files are being synced for the journal.
        """
        if self._flushing is task:
            self._put_back(task)

    def _put_back(self, task: FlushTask) -> None:
        """Add the work and the waiters of the flush under way to those of the next flush."""
        self._unsynced_segments = list(dict.fromkeys((*self._flushing_segments, *self._unsynced_segments)))
        self._unsynced_paths = [*task.paths, *self._unsynced_paths]
        self._directory_unsynced |= bool(task.directory)
        self._root_change = self._root_change or task.root_change
        self._end_flush()
        current, self._waiting_for_current = self._waiting_for_current, None
        if self._waiting_for_next is None:
            self._waiting_for_next = current
        elif current is not None:
            self._waiting_for_next.add_done_callback(lambda done: _copy_outcome(done, current))

    # --- the journal -------------------------------------------------------------------------------------------------

    def begin_settling(self) -> FlushTask | None:
        """Begin to sync the files that have bytes which only the journal has made durable; return the task, or None.

        Appends and journaled flushes continue in the meantime. No other sync of the log's files may run at the same
        time, because the system reports a lost write only once. So None is also returned while the log's files are
        being synced, and after the log has failed. Raises OSError.
        """
        if self.closed or self._failure is not None or self._settling is not None or self._write_again:
            return None
        if self._flushing is not None and not self._flushing.is_journaled:
            return None
        if not self._journaled_segments:
            if self._flushing is None:
                self.synced_offset = self.flushed_offset  # the segments were deleted meanwhile
            return None
        files = [segment.file for segment in self._journaled_segments]
        self._settling = task = FlushTask(self.flushed_offset, files, note=self._note_flushed)
        self._settling_segments, self._journaled_segments = self._journaled_segments, []
        return task

    def end_settling(self, task: FlushTask, error: OSError | None) -> None:
        """End the syncs of `begin_settling`.

        If no file descriptor was free, they can be repeated. If there was no disk space, the next flush writes the
        bytes again. After any other error the log goes offline, because only the journal has its last bytes.
        """
        assert self._settling is task
        self._settling = None
        segments, self._settling_segments = self._settling_segments, []
        self._close_waiting_files()
        if self.closed or self._failure is not None:
            return
        if error is None:
            self.synced_offset = max(self.synced_offset, task.end_offset)
        elif error.errno in NO_SPACE:
            self._unsynced_segments = list(dict.fromkeys((*segments, *self._unsynced_segments)))
            self._write_again = True
        elif error.errno in OUT_OF_DESCRIPTORS:
            self._journaled_segments = list(dict.fromkeys((*segments, *self._journaled_segments)))
        else:
            self.disk_failed(error)
            return
        # A flush that had to wait for these syncs.
        if self.flusher is not None and (self._unsynced_segments or self._unsynced_paths or self._directory_unsynced):
            self.flusher.request(self, urgent=self._waiting_for_next is not None)

    @property
    def is_settling(self) -> bool:
        """Whether the log's files are being synced so that they no longer depend on the journal."""
        return self._settling is not None

    @property
    def writes_again(self) -> bool:
        """Whether the next flush writes its bytes again, because their sync has failed for lack of disk space."""
        return self._write_again

    def _rewrite(self, segments: list[LogSegment]) -> None:
        """Write all unsynced batches of `segments` again; raise OSError if that fails.

        The batches are read from the page cache, which may have lost them: a missing or changed batch raises EIO.
        """
        offset = max(self.synced_offset, self.segments.first.base_offset)
        try:
            for segment in segments:
                if segment.base_offset < self.segments.first.base_offset:
                    continue  # the segment was deleted
                for position, header, batch in segment.batches(segment.position_of(offset)):
                    if header.base_offset != offset:
                        raise BrokenBatch(position, f"found offset {header.base_offset} instead of offset {offset}")
                    segment.file.write_at([bytes(batch)], position)
                    offset = header.next_offset
        except BrokenBatch as error:
            raise OSError(errno.EIO, f"unsynced records are lost from offset {offset} on: {error.reason}") from error
        if offset != self.log_end_offset:
            raise OSError(errno.EIO, f"unsynced records are lost from offset {offset} on")
        self._write_again = False

    def fail(self, failure: KafkaError) -> None:
        """Take the log offline: waiting and later writers get `failure`, and nothing is appended any more."""
        if self._failure is None:
            self._failure = failure
            if self.flusher is not None:
                self.flusher.log_failed(self)
        self._wake_with(failure)
        for listener in list(self._listeners):
            listener(self)

    def _wake_with(self, failure: KafkaError) -> None:
        """Fail the futures of all waiters."""
        for waiting in (self._waiting_for_current, self._waiting_for_next):
            if waiting is not None and not waiting.done():
                waiting.set_exception(failure)
        self._waiting_for_current = self._waiting_for_next = None

    @property
    def failure(self) -> KafkaError | None:
        """The error that took the log offline, None if the log works."""
        return self._failure

    def sync_later(self, *paths: str, directory: bool = True) -> None:
        """Let the next flush sync the files at `paths` and, with `directory`, the names in the log's directory."""
        self._unsynced_paths.extend(paths)
        self._directory_unsynced |= directory
        if self.flusher is not None and not self.closed:
            self.flusher.request(self)

    def unlink_later(self, paths: list[str]) -> None:
        """Unlink renamed files of the directory in a thread, because large files take long.

        The names in the directory are synced before. Without a flusher this runs at once and may raise OSError.
        """

        def unlink() -> None:
            with self.files_lock:
                if self.closed:
                    return  # the directory's name may belong to another partition; the next start removes the files
                self.fs.sync_directory(self.directory)
            unlink_all(self.fs, paths)

        if self.flusher is None:
            unlink()
        else:
            self.flusher.submit(unlink, f"removal of {len(paths)} segments from {paths[0]} on", Lane.REMOVAL)

    def sync_name(self, change: int) -> None:
        """Let the next flush sync the name of the log's directory: change number `change` of the parent directory."""
        self._root_change = change
        self.sync_later()

    def _needing_syncs(self) -> tuple[list[LogSegment], ...]:
        """Return the lists of segments whose files need a sync or are being synced."""
        return self._unsynced_segments, self._flushing_segments, self._journaled_segments, self._settling_segments

    def close_file(self, segment: LogSegment) -> None:
        """Close a segment's file and drop its indexes. If a flush is under way, the file is closed after it."""
        file = segment.take_file()
        segment.drop_indexes()
        for unsynced in self._needing_syncs():
            if segment in unsynced:
                unsynced.remove(segment)
        if file is not None:
            if self._flushing is not None or self._settling is not None:
                self._close_after_flush.append(file)
            else:
                file.close()

    def disk_failed(self, error: OSError) -> KafkaError:
        """Take the log offline when an error makes it unknown what is on disk; return the error for writers."""
        failure = storage_error(
            f"{self.name}: writing to {self.directory} failed: {error}. The partition does not accept writes until the"
            " broker is restarted; check the disk first"
        )
        self.fail(failure)
        if self._on_disk_failure is not None:
            self._on_disk_failure(self, error)
        return failure

    def _readable_end(self, limit: int) -> int:
        """Return the offset up to which readers may see, at most `limit`: if the log is offline, the flushed offset.

        Raises KafkaError if the log is closed.
        """
        if self._failure is None:
            return limit
        if self.closed:
            raise self._failure
        return min(limit, self.flushed_offset)

    def _appended(self, end_offset: int) -> None:
        """Set the log end offset after an append; request a flush, or advance the high watermark at once with "os"."""
        self.log_end_offset = end_offset
        active, unsynced = self.segments.active, self._unsynced_segments
        if not unsynced or unsynced[-1] is not active:
            unsynced.append(active)
        if self.config.durability == "os":
            self._advance(end_offset)
        elif self.flusher is not None:
            self.flusher.request(self)

    def discard(self) -> None:
        """Do the work of `discard_in_steps` without pauses."""
        run_at_once(self.discard_in_steps())

    def discard_in_steps(self) -> Steps[None]:
        """Close the log of a deleted partition at once, then its files in steps. The caller removes the files.

        Waiting writers get UNKNOWN_TOPIC_OR_PARTITION.
        """
        if not self.closed:
            yield from self._close_in_steps(
                KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} was deleted")
            )

    def _close_in_steps(self, reason: KafkaError) -> Steps[None]:
        """Close the log in the first step: readers and writers get `reason` from now on. Then close all files."""
        self.closed = True
        segments = dict.fromkeys((*self.segments, *chain.from_iterable(self._needing_syncs())))
        for unsynced in self._needing_syncs():
            unsynced.clear()
        self._failure = reason
        self.fail(reason)
        if self.flusher is not None:
            self.flusher.discarded(self)
        yield from self._close_all(segments)

    def _close_all(self, segments: Iterable[LogSegment]) -> Steps[None]:
        """Close the files of these segments, and drop their indexes."""
        for count, segment in enumerate(segments, 1):
            self.close_file(segment)
            if count % _CLOSED_PER_STEP == 0:
                yield _CLOSED_PER_STEP * CLOSE


def _copy_outcome(done: asyncio.Future[None], waiting: asyncio.Future[None]) -> None:
    """Complete the future `waiting` with the result or error of the future `done`."""
    if waiting.done() or done.cancelled():
        return
    error = done.exception()
    if error is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(error)


def _future() -> asyncio.Future[None]:
    """Return a new future whose error need not be retrieved."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # callers need not wait for it
    return future
