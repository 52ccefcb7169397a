"""Write the snapshots of a log's producers in a thread, because a snapshot of very many producers takes a long time.

This module keeps the snapshots that have been begun but not written yet, and limits their total size. It also rebuilds
a missing snapshot.

A snapshot may be written long after it was begun, or never if the broker is killed first. Recovery does not need this
snapshot: it replays the batches from an older snapshot on, or from the first segment on. So a snapshot is never removed
before a newer one is on disk. In one case, however, a snapshot must exist: when segments have been removed, the batches
before the first remaining offset can no longer be replayed. So before the removal, `require` makes sure that there is a
snapshot as of this offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import structlog

from ..system.ports import Threads
from .file_names import TEMPORARY
from .log_files import LogFiles
from .producer_snapshot import CorruptSnapshot, check_snapshot, write_snapshot
from .producer_state import ProducerStateEntry
from .producer_state_manager import ProducerStateManager
from .replay import replay
from .segment import LogSegment
from .small_files import read_derived

logger = structlog.get_logger(__name__)

_MOST_PENDING: Final = 256_000
"""The number of producers in unwritten snapshots above which `is_behind` is true.

Their state takes about 2 MB of memory, and more if the producers continue to write.
"""

_LEAST_COUNTED: Final = 4_000
"""A snapshot of fewer producers counts as this many, so that many small snapshots reach the limit, too."""


class _PendingSnapshot:
    """The state of all producers as of an offset. Any thread may write it to its file, but only once.

    `sync`: whether the content is synced. `replaces`: the offset of an earlier snapshot, which is removed after the
    write.
    """

    def __init__(
        self,
        files: LogFiles,
        producers: ProducerStateManager,
        entries: Sequence[ProducerStateEntry],
        lock: AbstractContextManager[object],
        *,
        sync: bool,
        replaces: int | None,
    ) -> None:
        self.offset = producers.end_offset
        self.cost = max(len(entries), _LEAST_COUNTED)
        self.is_written = False
        self._entries: Sequence[ProducerStateEntry] = entries
        self._files = files
        self._lock = lock
        self._producers = producers
        self._replaces = replaces
        self._sync = sync

    def write(self) -> None:
        """Write the snapshot to its file, unless it is written already or the log is closed. Raises OSError.

        The directory is not synced. `files.lock`, which flushes need, is not held while the content is written.
        """
        files, fs = self._files, self._files.fs
        path = self._producers.snapshot_path(self.offset)
        with self._lock:
            if self.is_written:
                return
            with files.lock:
                if files.closed:
                    return  # the directory's name may belong to another partition by now
                file = fs.open(path + TEMPORARY, create=True)
            try:
                write_snapshot(file, self._entries)
                if self._sync:
                    file.fdatasync()
            finally:
                file.close()
            with files.lock:
                if files.closed:
                    return  # the next start removes the temporary file
                fs.rename(path + TEMPORARY, path)
                self.is_written = True
                if self._replaces is not None:
                    self._producers.remove_snapshot(self._replaces)
            self._entries = ()


class SnapshotWriter:
    """Takes the snapshots of one log's producers. Without a flusher, they are written immediately by the caller.

    All methods except `require` are called on the event loop's thread.
    """

    __slots__ = ("_files", "_new_lock", "_pending", "_producers")

    def __init__(self, files: LogFiles, producers: ProducerStateManager, threads: Threads | None) -> None:
        self._files = files
        self._producers = producers
        self._new_lock: Callable[[], AbstractContextManager[object]] = nullcontext if threads is None else threads.lock
        self._pending: dict[int, _PendingSnapshot] = {}

    def take(self, *, sync: bool, replaces: int | None = None) -> None:
        """Begin to write a snapshot of the current state, unless the newest one is up to date.

        With `sync`, the content is on disk before the file gets its name. After that, the snapshot at offset `replaces`
        is removed. Without a flusher, nothing is synced, and OSError may be raised.
        """
        files, producers = self._files, self._producers
        self._collect()
        if files.flusher is None:
            for snapshot in list(self._pending.values()):
                snapshot.write()
            self._collect()
            producers.take_snapshot()
            if replaces is not None:
                producers.remove_snapshot(replaces)
        elif producers.end_offset not in (producers.snapshot_offset, *self._pending):
            snapshot = _PendingSnapshot(
                files, producers, producers.capture(), self._new_lock(), sync=sync, replaces=replaces
            )
            self._pending[snapshot.offset] = snapshot
            what = f"producer snapshot of {files.name} at {snapshot.offset}"
            files.flusher.submit(snapshot.write, what).add_done_callback(lambda _: self._collect())

    @property
    def are_pending(self) -> bool:
        """Whether a snapshot has been begun but not written yet."""
        self._collect()
        return bool(self._pending)

    @property
    def is_behind(self) -> bool:
        """Whether the unwritten snapshots exceed their limit; if so, no segment is rolled until some are written."""
        return bool(self._pending) and sum(snapshot.cost for snapshot in self._pending.values()) > _MOST_PENDING

    def _collect(self) -> None:
        """Forget the snapshots that are written.

        All snapshots are checked, because a failed write is retried in the background, and later snapshots may be
        written first.
        """
        producers = self._producers
        for snapshot in list(self._pending.values()):
            if snapshot.is_written:
                del self._pending[snapshot.offset]
                producers.snapshot_offset = max(producers.snapshot_offset, snapshot.offset)

    def require(self, offset: int, segments: Sequence[LogSegment]) -> None:
        """Write the snapshot as of `offset`, where the last of `segments` ends, unless its file exists and is intact.

        May run in any thread. A snapshot that was never written, or is damaged, is rebuilt from the batches in
        `segments` and an older snapshot. Does nothing if the log is closed. Raises CorruptLog, OSError.
        """
        files, known = self._files, self._producers
        pending = self._pending.get(offset)
        if pending is not None:
            pending.write()
            return
        if files.closed:
            return
        path = known.snapshot_path(offset)
        content = read_derived(files.fs, path)
        try:
            if content is not None:
                check_snapshot(content)
                return
            reason = "it is missing"
        except CorruptSnapshot as error:
            reason = str(error)
        logger.info("producer snapshot rebuilt", file=path, reason=reason)
        producers = ProducerStateManager(files.fs, files.directory, files.name)
        start = producers.load(segments[0].base_offset, offset, known.snapshot_offsets())
        for _ in replay(segments, producers, start):
            pass
        producers.skip_to(offset)
        with files.lock:
            if not files.closed:
                producers.take_snapshot()
