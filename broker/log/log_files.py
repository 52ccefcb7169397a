"""Track which part of one log's files is on disk, and prepare the syncs of the rest.

For the flush under way and the next one, this module keeps the work and the waiters. It also keeps the flushed offset,
the synced offset and the offline state, prepares the syncs after which the log no longer depends on the journal, and
closes files as soon as no sync needs them. `LogFlusher` and `Journal` use only the `LogFiles` of a log. Other modules
write the batches to the segments, and then call `appended`.

Invariants, at every moment:

* With durability "flush" high_watermark <= flushed_offset, so that no reader sees a record that a crash could lose.
* A flush covers everything that was appended before it began. At most one flush is under way. Its files stay open until
  it ends.
* Everything below `flushed_offset` is durable: below `synced_offset` in the partition's own files, the rest in the
  journal (`journal.py`).
* After `fail` nothing is appended or acknowledged any more. Records on disk can be read until the log is closed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Final

import structlog

from ...protocol.errors import KafkaError
from ..scheduling.steps import Steps
from ..system.descriptors import NO_SPACE, OUT_OF_DESCRIPTORS
from ..system.ports import File, FileSystem, Lane, Threads
from .batch_scan import BrokenBatch, scan_batches
from .flush_waiters import FlushWaiters
from .flushed_mark import write_flushed_offset
from .flusher import FlushTask, LogFlusher
from .journal_format import Extent
from .log_offsets import LogOffsets
from .removal import unlink_all
from .results import storage_error
from .segment import LogSegment
from .segments import LogSegments
from .shared_directory import SharedDirectory

if TYPE_CHECKING:
    import asyncio

logger = structlog.get_logger(__name__)

_CLOSED_PER_STEP: Final = 25

_WRITTEN_AGAIN_AT_ONCE: Final = 64 * 1024
"""When batches are written again, they are checked and collected up to about this many bytes, then written together."""

CLOSE: Final = 8
"""The cost of closing the file of a segment, in units of work (`steps.py`)."""


class LogFiles:
    """The files of one log in `directory`. All of their bytes are on disk when the log is loaded.

    `offsets`: the log's offsets; a flush advances the high watermark. `durability`: "os" if batches are visible and
    acknowledged before they are flushed, else "flush". If `flusher` and `threads` are None (in tools and tests), only
    `flush` flushes the log, and all work is done in the caller's thread. `root`: the directory that holds `directory`.
    `on_failure` is called with the error after a failed write or sync has taken the log offline.

    `lock` is held by jobs in threads while they create or remove files by name, and while the directory is renamed.
    `closed`: whether the log is closed, so that the name of its directory may belong to another log. `failure`: the
    error that took the log offline, or None if the log works. `writes_again`: whether the next flush writes its bytes
    again, because their sync has failed for lack of disk space. `settling`: the syncs under way after which the log no
    longer depends on the journal, or None.
    """

    __slots__ = (
        "_close_after_sync",
        "_directory_unsynced",
        "_durability",
        "_durable_in",
        "_flushing",
        "_flushing_segments",
        "_journaled_segments",
        "_offsets",
        "_on_failure",
        "_reached",
        "_root",
        "_root_change",
        "_segments",
        "_settling_segments",
        "_unsynced_paths",
        "_unsynced_segments",
        "_waiters",
        "closed",
        "directory",
        "failure",
        "flushed_offset",
        "flusher",
        "fs",
        "lock",
        "name",
        "settling",
        "synced_offset",
        "writes_again",
    )

    def __init__(
        self,
        name: str,
        directory: str,
        *,
        fs: FileSystem,
        segments: LogSegments,
        offsets: LogOffsets,
        durability: str,
        flusher: LogFlusher | None,
        root: SharedDirectory | None,
        threads: Threads | None,
        on_failure: Callable[[OSError], None] | None,
    ) -> None:
        self.name = name
        self.directory = directory
        self.fs = fs
        self.lock = nullcontext() if threads is None else threads.lock()
        self.flusher = flusher
        self.flushed_offset = offsets.log_end_offset
        self.synced_offset = offsets.log_end_offset
        self.failure: KafkaError | None = None
        self.closed = False
        self._segments = segments
        self._offsets = offsets
        self._durability = durability
        self._on_failure = on_failure
        # The work of the next flush, the flush that is under way, and the waiters of both.
        self._unsynced_segments: list[LogSegment] = []
        self._flushing_segments: list[LogSegment] = []
        self._unsynced_paths: list[str] = []
        self._directory_unsynced = False
        self._root = root
        self._root_change = 0
        self.writes_again = False
        self._flushing: FlushTask | None = None
        self._waiters = FlushWaiters()
        # The segments with bytes that are durable in the journal only, and those that are being synced for that reason.
        # Then the byte of the active segment up to which everything is durable, and the one that the flush under way
        # reaches.
        self._journaled_segments: list[LogSegment] = []
        self._settling_segments: list[LogSegment] = []
        self.settling: FlushTask | None = None
        self._durable_in = self._reached = segments.active, segments.active.size
        self._close_after_sync: list[File] = []

    # --- what needs a sync -------------------------------------------------------------------------------------------

    def appended(self, end_offset: int) -> None:
        """Record that the batches up to `end_offset` have been written to the active segment.

        With durability "os", advance the high watermark at once; otherwise, request a flush.
        """
        active, unsynced = self._segments.active, self._unsynced_segments
        if not unsynced or unsynced[-1] is not active:
            unsynced.append(active)
        offsets = self._offsets
        offsets.log_end_offset = end_offset
        if self._durability == "os":
            offsets.advance(end_offset)
        elif self.flusher is not None:
            self.flusher.request(self)

    def sync_later(self, *paths: str, directory: bool = True) -> None:
        """Let the next flush sync the files at `paths` and, with `directory`, the log's directory itself."""
        self._unsynced_paths.extend(paths)
        self._directory_unsynced |= directory
        if self.flusher is not None and not self.closed:
            self.flusher.request(self)

    def sync_name(self, change: int) -> None:
        """Let the next flush sync the name of the log's directory.

        `change`: the number of the change, from `SharedDirectory.changed`.
        """
        self._root_change = change
        self.sync_later()

    def flush_unsynced(self) -> None:
        """Request a flush of the batches that are not synced in the log's own files, if there are any."""
        if self.flusher is not None and (self._unsynced_segments or self._journaled_segments):
            self.flusher.request(self)

    def set_durability(self, durability: str) -> None:
        """Change the durability from the next append on. With "os" all batches become visible now."""
        before, self._durability = self._durability, durability
        if durability == "os" and before != "os" and self.failure is None:
            self._offsets.advance(self._offsets.log_end_offset)
        elif before == "os" and durability != "os" and self.flusher is not None:
            self.flusher.request(self)

    @property
    def untouched(self) -> bool:
        """Whether nothing has ever been appended to the log, so that there is nothing to save or flush."""
        return self._offsets.log_end_offset == 0 and not (self._unsynced_segments or self._unsynced_paths)

    # --- flushes -----------------------------------------------------------------------------------------------------

    def flushed(self, end_offset: int) -> asyncio.Future[None] | None:
        """Return None if everything below `end_offset` is as durable as `durability` demands, else a future to await.

        All waiters of the same flush share the future, so each must shield it. If the flush fails, the future fails
        with KafkaError KAFKA_STORAGE_ERROR. In that case, the appended batches may or may not survive.
        """
        return None if self._durability == "os" else self.synced(end_offset)

    def synced(self, end_offset: int) -> asyncio.Future[None] | None:
        """Return None if everything below `end_offset` is on disk, else a future to await. Ignores `durability`.

        All waiters of the same flush share the future, so each must shield it. Raises KAFKA_STORAGE_ERROR if the log is
        offline; the future fails with the same error if the flush fails.
        """
        if end_offset <= self.flushed_offset:
            return None
        assert end_offset <= self._offsets.log_end_offset, "the end offset must not be above the log end offset"
        if self.failure is not None:
            raise self.failure.anew()
        if self.flusher is None:
            self.flush()
            return None
        if self._flushing is not None and end_offset <= self._flushing.end_offset:
            return self._waiters.for_current()
        if not self._waiters.is_next_awaited:
            self.flusher.request(self, urgent=True)
        return self._waiters.for_next()

    def flush(self) -> None:
        """Flush the log in the calling thread; raise KAFKA_STORAGE_ERROR if that fails.

        The flusher must not be flushing this log at the same time.
        """
        assert self._flushing is None, "a flush is under way"
        task = self.begin_flush()
        if task is None:
            return
        try:
            for _, step in task.steps(self.fs):
                step()
        except OSError as error:
            self._end_flush()
            raise self.disk_failed(error) from error
        self.finish_flush(task)

    def begin_flush(self) -> FlushTask | None:
        """Begin a flush of everything appended so far; return its task, or None if there is nothing to sync.

        Raises OSError, without a change, if a file cannot be opened or read.
        """
        if self.closed or self.failure is not None or self._flushing is not None:
            return None
        segments = self._unsynced_segments
        if self._journaled_segments:
            segments = list(dict.fromkeys((*self._journaled_segments, *segments)))
        if not (segments or self._unsynced_paths or self._directory_unsynced):
            return None
        extent: Extent | None = None
        rewrite: Callable[[], None] | None = None
        if self.writes_again:
            if self.settling is not None:
                return None  # `end_settling` requests a flush
            rewrite = self._rewriting(segments)
            self.writes_again = False
        else:
            if self.flusher is not None and self.flusher.journal is not None:
                extent = self._extent()
            if extent is None and self.settling is not None:
                return None
        active = self._segments.active
        task = FlushTask(
            self._offsets.log_end_offset,
            [segment.file for segment in segments],
            self._unsynced_paths,
            self.directory if self._directory_unsynced else "",
            self._root,
            self._root_change,
            self._note_flushed,
            extent,
            rewrite=rewrite,
        )
        self._reached = active, active.size
        self._flushing_segments, self._unsynced_segments = segments, []
        self._unsynced_paths, self._directory_unsynced, self._root_change = [], False, 0
        self._flushing = task
        self._waiters.begin()
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
        # Wake the writers before the listeners run. A listener may take the log offline after a failed read, but these
        # records are on disk.
        self._waiters.succeed()
        if self.failure is None and not self.closed:
            self.flushed_offset = max(self.flushed_offset, task.end_offset)
            if not task.is_journaled:
                self.synced_offset = self.flushed_offset
            if self._durability != "os":
                self._offsets.advance(max(self.flushed_offset, self._offsets.high_watermark))

    def _end_flush(self) -> None:
        """Forget the flush that was under way, and close the files that were kept open for it."""
        self._flushing = None
        self._flushing_segments = []
        self._close_waiting_files()

    def _close_waiting_files(self) -> None:
        """Close the files that were kept open for a sync, unless another sync may use them."""
        if self._flushing is None and self.settling is None:
            for file in self._close_after_sync:
                file.close()
            self._close_after_sync.clear()

    def _extent(self) -> Extent | None:
        """Return what the journal needs to make all appended bytes durable; None if files or names need a sync."""
        active, unsynced = self._segments.active, self._unsynced_segments
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
        return Extent(self.name, active.base_offset, position, size, self._offsets.log_end_offset, active.file)

    def _note_flushed(self, end_offset: int) -> None:
        """Write the flushed offset to its file for the next start. Runs in a thread of the flush lane."""
        with self.lock:
            # The directory's name may belong to another partition by now.
            if not self.closed and self.failure is None:
                try:
                    write_flushed_offset(self.fs, self.directory, end_offset)
                except OSError:
                    pass  # the older offset in the file is still correct
                except Exception as error:
                    logger.warning("flushed offset not noted", partition=self.name, exc_info=error)

    def flush_failed(self, task: FlushTask | None, error: OSError) -> None:
        """Take the log offline, because the flush `task` failed or, if `task` is None, the next one could not begin."""
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
        self.writes_again = True

    def put_back(self, task: FlushTask) -> None:
        """End the flush `task`, which has synced nothing; the next flush does its work.

        This is for a flush that the journal has not made durable, if the log's own files cannot be synced now: either
        the log has failed, or another sync of its files (`begin_settling`) is under way or lacked disk space.
        """
        if self._flushing is task:
            self._put_back(task)

    def _put_back(self, task: FlushTask) -> None:
        """Add the work and the waiters of the flush under way to those of the next flush."""
        self._unsynced_segments = list(dict.fromkeys((*self._flushing_segments, *self._unsynced_segments)))
        self._unsynced_paths = [*task.paths, *self._unsynced_paths]
        self._directory_unsynced |= bool(task.directory)
        self._root_change = self._root_change or task.root_change
        self.writes_again |= task.rewrite is not None
        self._end_flush()
        self._waiters.put_back()

    def _rewriting(self, segments: list[LogSegment]) -> Callable[[], None]:
        """Return a job, for any thread, that writes all unsynced batches of `segments` again. Raises OSError.

        The batches are read from the page cache, which may have lost them: the job raises EIO if a batch is missing or
        was changed. Segments that are deleted before the job reads them are left out.
        """
        start, end_offset = max(self.synced_offset, self._segments.first.base_offset), self._offsets.log_end_offset
        kept = [segment for segment in segments if segment.base_offset >= self._segments.first.base_offset]
        bases = [segment.base_offset for segment in kept]
        try:
            positions = [segment.position_of(start) if segment.base_offset < start else 0 for segment in kept]
        except BrokenBatch as error:
            raise _lost(start, error.reason) from error
        files, sizes = [segment.file for segment in kept], [segment.size for segment in kept]

        def rewrite() -> None:
            offset = start
            for file, position, size, following in zip(files, positions, sizes, [*bases[1:], end_offset], strict=True):
                window = bytearray()
                try:
                    for at, header, batch in scan_batches(file, position, size):
                        if header.base_offset != offset:
                            raise _lost(offset, f"found offset {header.base_offset}")
                        window += batch
                        offset = header.next_offset
                        if len(window) >= _WRITTEN_AGAIN_AT_ONCE or at + len(batch) == size:
                            file.write_at([window], at + len(batch) - len(window))
                            window = bytearray()
                except FileNotFoundError:
                    offset = following
                except BrokenBatch as error:
                    raise _lost(offset, error.reason) from error
            if offset != end_offset:
                raise _lost(offset, "the log ends there")

        return rewrite

    # --- the journal -------------------------------------------------------------------------------------------------

    def begin_settling(self) -> FlushTask | None:
        """Begin to sync the files whose last bytes are durable only in the journal; return the task, or None.

        Appends and journaled flushes continue in the meantime. No other sync of the log's files may run at the same
        time, because the system reports a lost write only once. So None is returned while the log's files are being
        synced. None is also returned if there is nothing to sync, or if the log has failed or is closed. The same holds
        if a sync has failed because the disk is full: the next flush then writes the bytes again. Raises OSError.
        """
        if self.closed or self.failure is not None or self.settling is not None or self.writes_again:
            return None
        if self._flushing is not None and not self._flushing.is_journaled:
            return None
        if not self._journaled_segments:
            if self._flushing is None:
                self.synced_offset = self.flushed_offset  # the segments were deleted meanwhile
            return None
        files = [segment.file for segment in self._journaled_segments]
        self.settling = task = FlushTask(self.flushed_offset, files, note=self._note_flushed)
        self._settling_segments, self._journaled_segments = self._journaled_segments, []
        return task

    def end_settling(self, task: FlushTask, error: OSError | None) -> None:
        """End the syncs of `begin_settling`.

        If no file descriptor was free, the syncs can be repeated. If there was no disk space, the next flush writes the
        bytes again. After any other error the log goes offline, because only the journal has its last bytes.
        """
        assert self.settling is task
        self.settling = None
        segments, self._settling_segments = self._settling_segments, []
        self._close_waiting_files()
        if self.closed or self.failure is not None:
            return
        if error is None:
            self.synced_offset = max(self.synced_offset, task.end_offset)
        elif error.errno in NO_SPACE:
            self._unsynced_segments = list(dict.fromkeys((*segments, *self._unsynced_segments)))
            self.writes_again = True
        elif error.errno in OUT_OF_DESCRIPTORS:
            self._journaled_segments = list(dict.fromkeys((*segments, *self._journaled_segments)))
        else:
            self.disk_failed(error)
            return
        # A flush may have had to wait for these syncs.
        if self.flusher is not None and (self._unsynced_segments or self._unsynced_paths or self._directory_unsynced):
            self.flusher.request(self, urgent=self._waiters.is_next_awaited)

    # --- failure -----------------------------------------------------------------------------------------------------

    def fail(self, failure: KafkaError) -> None:
        """Take the log offline: waiting and later writers get `failure`, and nothing is appended any more."""
        if self.failure is None:
            self.failure = failure.anew()
            if self.flusher is not None:
                self.flusher.log_failed(self)
        self._waiters.fail(failure)
        self._offsets.call_listeners()

    def disk_failed(self, error: OSError) -> KafkaError:
        """Take the log offline, because after `error` it is not known what is on disk; return the error for writers."""
        failure = storage_error(
            f"{self.name}: writing to {self.directory} failed: {error}. The partition does not accept writes until the"
            " broker is restarted; check the disk first"
        )
        self.fail(failure)
        if self._on_failure is not None:
            self._on_failure(error)
        return failure

    def readable_end(self, limit: int) -> int:
        """Return the offset up to which readers may see records.

        This is `limit`, but at most the flushed offset if the log is offline. Raises KafkaError if the log is closed.
        """
        if self.failure is None:
            return limit
        if self.closed:
            raise self.failure.anew()
        return min(limit, self.flushed_offset)

    # --- removed segments, and the end -------------------------------------------------------------------------------

    def close_file(self, segment: LogSegment) -> None:
        """Close a segment's file and drop its indexes. If a sync is under way, the file is closed after it."""
        file = segment.take_file()
        segment.drop_indexes()
        for unsynced in self._needing_syncs():
            if segment in unsynced:
                unsynced.remove(segment)
        if file is not None:
            if self._flushing is not None or self.settling is not None:
                self._close_after_sync.append(file)
            else:
                file.close()

    def close_files(self, segments: Iterable[LogSegment]) -> Steps[None]:
        """Close the files of these segments, and drop their indexes."""
        for count, segment in enumerate(segments, 1):
            self.close_file(segment)
            if count % _CLOSED_PER_STEP == 0:
                yield _CLOSED_PER_STEP * CLOSE

    def _needing_syncs(self) -> tuple[list[LogSegment], ...]:
        """Return the lists of segments whose files need a sync or are being synced."""
        return self._unsynced_segments, self._flushing_segments, self._journaled_segments, self._settling_segments

    def unlink_later(self, paths: list[str]) -> None:
        """Unlink renamed files of the directory in a thread, because large files take a long time.

        The directory is synced first. Without a flusher, this runs in the caller's thread and may raise OSError.
        """

        def unlink() -> None:
            with self.lock:
                if self.closed:
                    return  # the directory's name may belong to another partition; the next start removes the files
                self.fs.sync_directory(self.directory)
            unlink_all(self.fs, paths)

        if self.flusher is None:
            unlink()
        else:
            self.flusher.submit(unlink, f"removal of {len(paths)} segments from {paths[0]} on", Lane.REMOVAL)

    def close_in_steps(self, reason: KafkaError) -> Steps[None]:
        """Close the log, so that readers and writers get `reason` from now on; then close its files, in steps."""
        self.closed = True
        segments = dict.fromkeys((*self._segments, *chain.from_iterable(self._needing_syncs())))
        for unsynced in self._needing_syncs():
            unsynced.clear()
        self.failure = reason
        self.fail(reason)
        if self.flusher is not None:
            self.flusher.discarded(self)
        self.fs.close_overwritten(self.directory)
        yield from self.close_files(segments)


def _lost(offset: int, reason: str) -> OSError:
    """Return the error for unsynced records that the page cache has lost, from `offset` on."""
    return OSError(errno.EIO, f"unsynced records are lost from offset {offset} on: {reason}")
