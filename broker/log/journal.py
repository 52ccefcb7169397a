"""Make the flushes of many logs durable with one sync: write their bytes to a journal file, and sync only that file.

This module manages the journal files of a running broker: it decides which one is written and when a file is removed,
and knows which partitions depend on each file. `journal_format.py` defines the bytes, and `journal_redo.py` reads them
at the next start. All methods are called on the event loop's thread.

No file is created until several logs have to be flushed at the same time (`want`), or a void has to be written, that
is, an entry that invalidates earlier entries.

Lifecycle of a file: created and filled with zeros → written, one batch at a time → full → *settled*, that is, every log
with bytes in it has synced its own files → removed. While a file is written, the one before it is settled, a few logs
at a time, so that no flush waits for these syncs. If a log with bytes in it has failed, only the journal has these
bytes. They are copied to a file for this log alone, which stays until the next start or until the partition is deleted.

Rules:

* The name of a partition's directory or of a segment is not used again while the journal has valid entries for it. A
  redo identifies partitions by the names of their directories and segments by their base offsets. So before a
  directory's name may be used again (DeleteTopics), and before other bytes take the place of a segment (compaction), a
  void is written to the journal (`forget`, `forget_below`). If a void is damaged, the redo still does not overwrite
  newer records: it skips entries below the recovery point, and entries whose mark is not that of the segment
  (`segment_mark`).
* No file is kept for the entries of a deleted partition, even if its void is not on disk yet: the void itself may need
  the space of that file.
* Files are removed in the order in which they were written. So a void outlives the entries that it invalidates, and
  missing batches are noticed.
* A file in which a write or a sync has failed is never written again. The bytes of the failed batch are in the page
  cache of the partitions' files, which the failure does not affect, so the flusher syncs these files instead. Batches
  that were acknowledged before are on disk. The next batch goes to a new file, and has the sequence of the failed one.
* Entries of earlier runs are redone before the journal is opened. Files of earlier runs that still exist (`Leftover`)
  have entries of partitions that are offline because the entries could not be redone.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import structlog

from ..system.descriptors import OUT_OF_DESCRIPTORS
from ..system.ports import FileSystem, Lane, RandomIds, Threads
from .episodes import Episodes
from .flusher import FlushTask
from .journal_file import (
    JournalFile,
    UnreadExtent,
    create_journal_file,
    journal_path,
    read_journal_file,
    remove_journal_file,
    write_kept_file,
)
from .journal_format import ENTRY_SIZE, EVERYTHING, FRAME_SIZE, Void
from .journal_redo import Leftover, entries_that_count
from .shared_directory import RootSyncFailed, SharedDirectory

logger = structlog.get_logger(__name__)

MIN_FILE_BYTES: Final = 8 << 10
"""The minimum size of a journal file."""

MAX_ROUND_BYTES: Final = 1 << 20
"""The maximum size in bytes of one batch, which has the flushes of one round.

A round that is larger is divided, or its logs sync their own files.
"""

MAX_LOG_BYTES: Final = 64 << 10
"""A log with at most this many unsynced bytes is flushed to the journal. More bytes are not worth writing twice."""

MOST_LOGS: Final = 512
"""The maximum number of logs with entries in a file; only the file's last round may exceed it. After a crash, the next
start has to sync the files of each of these logs, so more logs would make this start slow. If a further log needs the
file, the next call of `maintain` ends the file.
"""

_ROUNDS_PER_FILE: Final = 4
"""The number of rounds of the maximum size that fit into a file."""

_MOST_FILES: Final = 4
"""When there are this many files, no further one is created. The logs then sync their own files."""

_SETTLED_AT_ONCE: Final = 4
"""The number of logs that sync their files at a time, so that a journal file can be removed."""

_EXAMINED_AT_ONCE: Final = 256
"""The number of logs of a journal file that are examined at a time, to find those whose own files need a sync."""


class JournaledLog(Protocol):
    """The interface of a log that the journal uses: its `LogFiles`."""

    name: str
    synced_offset: int
    closed: bool

    def begin_settling(self) -> FlushTask | None: ...

    def end_settling(self, task: FlushTask, error: OSError | None) -> None: ...


@dataclass(slots=True, eq=False)
class LiveFile:
    """A file whose entries would be redone after a crash.

    `lowest`: the smallest base offset of its entries, by the name of the partition. `ends`: the end offset of the last
    entry of each log that needs the file, because the log's own files are not synced that far. `unsettled`: the same
    logs in the order in which their files are synced, once the file is full. `copies`: the files for the entries of
    failed logs, by the name of the partition. `file` is None for entries that are kept until the next start, or until
    the partition `kept_for` is deleted.
    """

    path: str
    file: JournalFile | None = None
    kept_for: str | None = None
    lowest: dict[str, int] = field(default_factory=dict)
    ends: dict[JournaledLog, int] = field(default_factory=dict)
    unsettled: deque[JournaledLog] = field(default_factory=deque)
    copies: dict[str, str] = field(default_factory=dict)

    def drop_settled(self, log: JournaledLog) -> None:
        """Forget a log if its own files are synced."""
        if log.synced_offset >= self.ends.get(log, EVERYTHING):
            del self.ends[log]


class Journal:
    """The journal of a data directory. Each file has `file_bytes` bytes; if this is 0, nothing is written.

    `number` and `sequence`: the number of the first file and the sequence of the first batch. Both are higher than all
    numbers and sequences used before. `wake` is called when the flusher should look for work, and `on_failure` if the
    directory cannot be synced.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: SharedDirectory,
        directory: str,
        *,
        threads: Threads,
        ids: RandomIds,
        file_bytes: int,
        reserve_bytes: int,
        number: int,
        sequence: int,
        leftovers: Iterable[Leftover],
        wake: Callable[[], None],
        on_failure: Callable[[OSError], None],
    ) -> None:
        self._fs = fs
        self._root = root
        self._directory = directory
        self._threads = threads
        self._ids = ids
        self._file_bytes = max(file_bytes, MIN_FILE_BYTES) if file_bytes else 0
        self._reserve_bytes = reserve_bytes
        self._number = number
        self._sequence = sequence
        self._wake = wake
        self._on_failure = on_failure
        # The oldest first.
        self._files = [
            LiveFile(left.path, kept_for=left.kept_for, lowest=dict.fromkeys(left.names, 0)) for left in leftovers
        ]
        self._current: LiveFile | None = None
        self._standby: LiveFile | None = None
        self._voids: list[tuple[Void, asyncio.Future[None]]] = []
        self._jobs: set[asyncio.Future[Any]] = set()
        self._settling: dict[JournaledLog, float] = {}  # when each log's syncs began, the oldest first
        self._is_writing = False
        self._is_creating = False
        self._removing: LiveFile | None = None
        self._copying: asyncio.Future[None] | None = None
        self._uncopied: set[LiveFile] = set()
        self._failed: list[JournaledLog] = []
        self._is_wanted = False
        self._is_crowded = False
        self._is_overdue = False
        self._is_closed = False
        self._episodes = Episodes()
        self.round_bytes = min(MAX_ROUND_BYTES, self._file_bytes // _ROUNDS_PER_FILE)
        self._log_bytes = min(MAX_LOG_BYTES, self.round_bytes)

    # --- writing -----------------------------------------------------------------------------------------------------

    def is_open(self) -> bool:
        """Whether a round can be written now or, while one is being written, directly after it."""
        return self._current is not None and not self._is_closed

    def want(self) -> None:
        """Begin to create the first files, unless this has already been done.

        The flusher calls this method when several logs must be flushed at the same time.
        """
        if not self._is_wanted:
            self._is_wanted = True
            self._continue()

    def is_writing(self) -> bool:
        """Whether a batch is being written."""
        return self._is_writing

    def has_voids(self) -> bool:
        """Whether there are voids that have yet to be written."""
        return bool(self._voids)

    def cost(self, task: FlushTask) -> int | None:
        """Return the bytes that a flush takes in the journal; None if the log's own files must be synced."""
        extent, live = task.extent, self._current
        if extent is None or extent.size > self._log_bytes:
            return None
        if live is not None and len(live.lowest) >= MOST_LOGS and extent.name not in live.lowest:
            self._is_crowded = True
            return None
        return extent.size + ENTRY_SIZE + len(extent.name)

    def write(self, round: Sequence[tuple[Any, FlushTask]]) -> asyncio.Future[None]:
        """Write the bytes of these flushes, and as many waiting voids as fit, as one batch, and sync the batch.

        If this fails, the future has an OSError. The caller then syncs the logs' own files instead.
        """
        live = self._current
        assert live is not None
        assert live.file is not None
        assert not self._is_writing
        self._is_writing = True
        extents = []
        for _, task in round:
            extent = task.extent
            assert extent is not None
            extents.append(extent)
            live.lowest[extent.name] = min(live.lowest.get(extent.name, EVERYTHING), extent.base_offset)
        voids = self._voids_that_fit()
        job = partial(live.file.append, self._sequence, extents, [void for void, _ in voids])
        run = self._run(job)
        run.add_done_callback(partial(self._written, live, round, voids))
        return run

    def _voids_that_fit(self) -> list[tuple[Void, asyncio.Future[None]]]:
        """Return the voids for the next batch, oldest first, with at most `round_bytes` bytes in total."""
        room, fitting = self.round_bytes, 0
        for void, _ in self._voids:
            room -= ENTRY_SIZE + len(void.name)
            if room < 0:
                break
            fitting += 1
        return self._voids[:fitting]

    def _written(
        self,
        live: LiveFile,
        round: Sequence[tuple[Any, FlushTask]],
        voids: list[tuple[Void, asyncio.Future[None]]],
        run: asyncio.Future[None],
    ) -> None:
        """Handle the end of a write; after a failure, continue in another file."""
        self._is_writing = False
        error = run.exception()
        if error is None:
            self._sequence += 1
            deleted = self._deleted_names()
            for log, task in round:
                if log.name not in deleted:
                    live.ends[log] = task.end_offset
            del self._voids[: len(voids)]
            self._forgotten([void for void, _ in voids])
            for _, done in voids:
                if not done.done():
                    done.set_result(None)
            self._episodes.succeeded("write to the journal")
            assert live.file is not None
            if self._is_overdue or live.file.size - live.file.position < 2 * self.round_bytes + FRAME_SIZE:
                self._end_current()
        elif not isinstance(error, UnreadExtent):
            self._episodes.failed("write to the journal", error)
            self._end_current()
        self._continue()
        if self._voids:
            self._wake()

    def _end_current(self) -> None:
        """Stop writing to the current file."""
        assert self._current is not None
        self._current.unsettled.extend(self._current.ends)
        self._current = None
        self._is_crowded = self._is_overdue = False

    # --- names that are used again -----------------------------------------------------------------------------------

    async def forget(self, names: Sequence[str]) -> None:
        """Invalidate all entries of these deleted partitions, and stop keeping journal files for them.

        If OSError is raised, the entries may still be redone.
        """
        await self._copies_end()
        for live in [live for live in self._files if live.kept_for in names]:
            try:
                await asyncio.shield(self._run(partial(remove_journal_file, self._fs, self._root, live.path)))
            except RootSyncFailed as error:
                self._on_failure(error)
                raise
            if live in self._files:
                self._files.remove(live)
        await self._void(names, EVERYTHING)

    async def forget_below(self, log: JournaledLog, below: int) -> bool:
        """Invalidate the entries for those segments of `log` that have a base offset below `below`; return True.

        The caller has synced the records of these segments that it still needs. If the log is closed, do nothing and
        return False, because another partition may now have its name. If OSError is raised, the entries may still be
        redone.
        """
        await self._copies_end()
        if log.closed:
            return False
        await self._void([log.name], below)
        return True

    async def _copies_end(self) -> None:
        """Wait until no entries of failed logs are being copied."""
        while self._copying is not None:
            await asyncio.wait([self._copying])

    async def _void(self, names: Sequence[str], below: int) -> None:
        """Invalidate these partitions' entries for segments with base offsets below `below`; return when this is done.

        The voids are queued before this method first awaits anything. Raises OSError.
        """
        mentioned = [name for name in names if self.mentions(name, below)]
        if not mentioned:
            return
        if self._is_closed:
            raise OSError(f"the entries of {mentioned[0]} in the journal cannot be invalidated: the journal is closed")
        if not self._file_bytes:
            raise OSError(f"{mentioned[0]} has records in a journal that could not be redone; restart the broker")
        loop = asyncio.get_running_loop()
        voids = [(Void(name, below), loop.create_future()) for name in mentioned]
        self._voids += voids
        self._release(self._deleted_names())
        self._continue()
        self._wake()
        await asyncio.gather(*(done for _, done in voids))

    def _deleted_names(self) -> set[str]:
        """Return the names of the deleted partitions whose voids are not on disk yet."""
        return {void.name for void, _ in self._voids if void.below == EVERYTHING}

    def _release(self, names: Container[str]) -> None:
        """Stop keeping journal files for the logs with these names, because a closed log never syncs its own files."""
        for live in self._files:
            live.ends = {log: end for log, end in live.ends.items() if log.name not in names}

    def mentions(self, name: str, below: int = EVERYTHING) -> bool:
        """Whether a file contains entries for segments of the partition with base offsets below `below`."""
        return any(live.lowest.get(name, below) < below for live in self._files)

    def _forgotten(self, voids: Sequence[Void]) -> None:
        """Record that voids are on disk."""
        for live in self._files:
            for name, below in voids:
                if live.lowest.get(name, EVERYTHING) >= below:
                    continue
                if below == EVERYTHING:
                    del live.lowest[name]
                else:
                    live.lowest[name] = below

    async def settle(self, log: JournaledLog) -> bool:
        """Sync the files of `log`, so that it no longer depends on the journal. Raises OSError.

        Return False if this is not possible now, for example because another sync of the files is under way.
        """
        end = max((live.ends.get(log, 0) for live in self._files), default=0)
        if log.synced_offset < end and (task := log.begin_settling()) is not None:
            await asyncio.shield(self._settle(log, task))
        return log.synced_offset >= end

    @property
    def oldest_settling_s(self) -> float:
        """The age in seconds of the oldest sync that `_settle` has begun; 0 if none is under way."""
        if not self._settling:
            return 0.0
        return asyncio.get_running_loop().time() - next(iter(self._settling.values()))

    # --- files -------------------------------------------------------------------------------------------------------

    def maintain(self) -> None:
        """Retry failed work. End the current file if its limit MOST_LOGS has kept a log out. Called once a second."""
        self._uncopied.clear()
        self._is_overdue = self._is_crowded
        if self._is_overdue and self._current is not None and not self._is_writing:
            self._end_current()
        self._continue()

    def _continue(self) -> None:
        """Switch to a new file, settle and remove old files, and create the next one, if these steps are due."""
        if self._is_closed:
            return
        if self._current is None and self._standby is not None:
            self._current, self._standby = self._standby, None
            self._files.append(self._current)
            self._wake()
        for void, done in list(self._voids):
            if not self._is_writing and not self.mentions(void.name, void.below):
                self._voids.remove((void, done))
                if not done.done():
                    done.set_result(None)
        self._settle_some()
        self._copy_failed()
        self._remove_settled()
        self._create()

    def _settle_some(self) -> None:
        """Begin to sync the files of some logs that have entries in the oldest full journal files."""
        for live in self._files:
            for _ in range(min(len(live.unsettled), _EXAMINED_AT_ONCE)):
                if len(self._settling) >= _SETTLED_AT_ONCE:
                    return
                log = live.unsettled.popleft()
                live.drop_settled(log)
                if log not in live.ends:
                    continue
                live.unsettled.append(log)  # until its own files are synced
                try:
                    task = log.begin_settling()
                except OSError as error:  # no descriptor is free
                    self._episodes.failed("settling the journal", error)
                    return
                if task is not None:
                    self._settle(log, task)

    def _settle(self, log: JournaledLog, task: FlushTask) -> asyncio.Future[None]:
        """Sync the files of a log in a thread; return a future for the end of the sync."""
        self._settling[log] = asyncio.get_running_loop().time()
        run = self._run(partial(task.run, self._fs))
        run.add_done_callback(partial(self._settled, log, task))
        return run

    def _settled(self, log: JournaledLog, task: FlushTask, run: asyncio.Future[None]) -> None:
        """Record that a log has synced its files, or has failed to sync them."""
        del self._settling[log]
        error = run.exception()
        if error is None or isinstance(error, OSError):
            log.end_settling(task, error)
        else:
            logger.error("sync failed unexpectedly", exc_info=error)
            log.end_settling(task, OSError(f"the sync failed unexpectedly: {error!r}"))
        if isinstance(error, OSError) and error.errno in OUT_OF_DESCRIPTORS:
            self._episodes.failed("settling the journal", error)
        elif error is None:
            self._episodes.succeeded("settling the journal")
            self._continue()

    def log_failed(self, log: JournaledLog) -> None:
        """Record that a log has failed, and so never syncs its files again. Copy its entries out of full files."""
        if not self._is_closed:
            self._failed.append(log)
            self._continue()

    def _copy_failed(self) -> None:
        """Begin to copy the entries of failed logs out of a full file, so that it can be removed.

        Only one copy is made at a time. If it fails, it is repeated a second later.
        """
        self._failed = [log for log in self._failed if not log.closed]
        if self._copying is not None or not self._failed:
            return
        for live in self._files:
            failed = [log for log in self._failed if log in live.ends]
            if live is self._current or live.file is None or not failed or live in self._uncopied:
                continue
            copies = {}
            for log in failed:
                copies[log.name] = _Copy(self._kept_path(live, log.name), live.lowest[log.name], live.ends[log])
            job = partial(_copy, self._fs, self._root, live.path, copies, self._ids.uuid())
            self._copying = self._run(job, Lane.REMOVAL)
            self._copying.add_done_callback(partial(self._copied, live, failed))
            return

    def _kept_path(self, live: LiveFile, name: str) -> str:
        """Return the path of the file for a partition's entries in `live`, the same one for each attempt to write it.

        The file belongs to the journal from now on, because a failed attempt may leave it on disk.
        """
        if name not in live.copies:
            path = live.copies[name] = journal_path(self._directory, self._number)
            self._number += 1
            self._files.insert(0, LiveFile(path, kept_for=name, lowest={name: live.lowest[name]}))
        return live.copies[name]

    def _copied(self, live: LiveFile, failed: Sequence[JournaledLog], run: asyncio.Future[None]) -> None:
        """Record that the entries of failed logs are in files of their own."""
        self._copying = None
        error = run.exception()
        if error is None:
            self._episodes.succeeded("copy out of the journal")
            for log in failed:
                live.ends.pop(log, None)
            self._continue()
        elif isinstance(error, RootSyncFailed):
            self._on_failure(error)
        else:
            self._uncopied.add(live)
            self._episodes.failed("copy out of the journal", error)

    def _removable(self) -> LiveFile | None:
        """Return the oldest file if it is not needed any more, else None."""
        for live in self._files:
            if live.file is not None:
                return None if live is self._current or live.ends else live
        return None

    def _remove_settled(self) -> None:
        """Begin to remove a file that is not needed any more, unless one is being removed."""
        live = self._removable()
        if live is None or live.file is None or self._removing is not None:
            return
        self._removing = live
        live.file.close()
        run = self._run(partial(remove_journal_file, self._fs, self._root, live.path), Lane.REMOVAL)
        run.add_done_callback(partial(self._removed, live))

    def _removed(self, live: LiveFile, run: asyncio.Future[None]) -> None:
        """Forget a file that was removed. If the removal has failed, it is repeated later."""
        self._removing = None
        error = run.exception()
        if error is None:
            self._episodes.succeeded("removal of a journal file")
            self._files.remove(live)
            self._continue()
        elif isinstance(error, RootSyncFailed):
            self._on_failure(error)
        else:
            self._episodes.failed("removal of a journal file", error)

    def _create(self) -> None:
        """Begin to create the next file, if one is wanted, and none is ready or being created.

        Two files are enough while one of them can be written. There are at most _MOST_FILES.
        """
        files = sum(live.file is not None for live in self._files)
        if not self._file_bytes or self._standby is not None or self._is_creating:
            return
        if not (self._is_wanted or self._voids):
            return
        if files >= _MOST_FILES:
            if self._current is None and any(log in live.ends for live in self._files for log in self._failed):
                self._fail_voids(OSError("the journal is full of records of partitions that accept no writes"))
            return
        if self._current is not None and files > 1:
            return  # two files are enough, unless an old one cannot be removed
        self._is_creating = True
        job = partial(
            create_journal_file,
            self._fs,
            self._root,
            self._directory,
            self._number,
            self._ids.uuid(),
            self._file_bytes,
            self._reserve_bytes,
        )
        self._number += 1
        self._run(job).add_done_callback(self._created)

    def _created(self, run: asyncio.Future[JournalFile]) -> None:
        """Handle the end of the creation of a file. If it failed, repeat it later; fail voids if no file is in use."""
        self._is_creating = False
        error = run.exception()
        if error is None:
            self._episodes.succeeded("creation of a journal file")
            file = run.result()
            self._standby = LiveFile(file.path, file)
            self._continue()
            return
        self._episodes.failed("creation of a journal file", error)
        if isinstance(error, RootSyncFailed):
            self._on_failure(error)
        if self._current is None and not self._is_writing:
            self._fail_voids(error)

    def _fail_voids(self, error: BaseException) -> None:
        """Fail the waiting calls of `forget` and `forget_below`. Their callers may call again."""
        voids, self._voids = self._voids, []
        for _, done in voids:
            if not done.done():
                done.set_exception(error if isinstance(error, OSError) else OSError(repr(error)))

    def _run(self, job: Callable[[], Any], lane: Lane = Lane.FLUSH) -> asyncio.Future[Any]:
        """Run a job in a thread; `close` waits for the job."""
        run = self._threads.run(lane, job)
        self._jobs.add(run)
        run.add_done_callback(self._jobs.discard)
        return run

    # --- the end -----------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Begin no further work. Work that is under way continues."""
        self._is_closed = True
        self._fail_voids(OSError("the data directory has failed or is closed"))

    async def close(self) -> None:
        """Stop writing to the journal, and wait for the work under way. Afterwards, the logs sync their own files."""
        self._is_closed = True
        while self._jobs:
            await asyncio.wait(list(self._jobs))
        self._fail_voids(OSError("the journal is closed"))

    async def remove_all(self) -> None:
        """Remove the files that no log needs. Call this after `close`, when the logs have synced their files.

        A file that is needed stays, and is redone at the next start. Raises OSError.
        """
        assert self._is_closed
        if self._standby is not None:
            self._files.append(self._standby)
            self._standby = None
        self._current = None
        for live in self._files:
            live.ends = {log: end for log, end in live.ends.items() if log.synced_offset < end}
        while (oldest := self._removable()) is not None:
            assert oldest.file is not None
            oldest.file.close()
            await self._run(partial(remove_journal_file, self._fs, self._root, oldest.path), Lane.REMOVAL)
            self._files.remove(oldest)
        for live in self._files:
            if live.file is not None:
                live.file.close()


@dataclass(frozen=True, slots=True)
class _Copy:
    """The entries of a partition that are copied to `path`: from base offset `lowest` on, up to offset `end`."""

    path: str
    lowest: int
    end: int


def _copy(fs: FileSystem, root: SharedDirectory, path: str, copies: Mapping[str, _Copy], file_id: bytes) -> None:
    """Copy entries of partitions out of the journal file at `path`.

    Raises OSError, also if the file is damaged or cannot be read completely. Some of the new files may exist then.
    """
    content = read_journal_file(fs, path)
    if content.damage is not None or not content.may_be_torn:
        raise OSError(errno.EIO, "the file is damaged or cannot be read", path)
    entries = entries_that_count(content.batches)
    for name, copy in copies.items():
        found = entries.get(name, ())
        kept = [entry for entry in found if entry.base_offset >= copy.lowest and entry.end_offset <= copy.end]
        write_kept_file(fs, copy.path, file_id, kept)
    root.sync_now()
