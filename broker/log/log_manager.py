"""Manage all partition logs of a data directory: open, create, delete and maintain them.

This module owns the directory's lock, the content of its checkpoints, the flusher, the maintenance timers, and the
failure states:

* `offline`: the partitions that were damaged or lost when they were loaded. Nothing is written to them.
* `read_only`: the logs of offline partitions whose records before the damage can be read (`ReadOnlyLog`). Everything
  except reads treats these partitions as offline. Internal topics are never read-only, because outdated offsets and
  transaction decisions are worse than none.
* A log whose write or sync has failed accepts no more writes until a restart has checked the disk
  (`PartitionLog.failure`). Records that are on disk can still be read. Other partitions are not affected.
* `failed`: all logs of the directory refuse appends, and nothing is acknowledged any more. This happens if the
  metadata log fails, if the directory accepts no writes, or if it has been removed or replaced.

Background work that fails (checkpoints, unlinks, retention, compaction) is tried again, and changes none of these
states. The only exception is a log that compaction finds damaged: it accepts no more writes.

A clean stop writes in this order, on which recovery relies: first the records of all logs into their own files (the
journal is then removed), then the checkpoints, and last the clean shutdown marker, which names the partitions that were
not healthy. Indexes and snapshots are written for larger logs only, and are not synced. The next start rebuilds those
that are missing or damaged.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from ...protocol.errors import KafkaError
from ..scheduling.slices import in_slices
from ..scheduling.steps import SLICE, Steps, run_in_slices, run_slice
from ..system.descriptor_relief import Crowding
from ..system.descriptors import NO_SPACE, OUT_OF_DESCRIPTORS
from ..system.ports import Clock, FileSystem, Lane, RandomIds, Threads
from ..system.threads import RealThreads
from ..topic_names import INTERNAL_TOPICS, METADATA_TOPIC
from . import index_cache
from .at_hand import NotAtHand
from .checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS, CheckpointFiles, Checkpoints
from .cleaner import Cleaner, CleaningPlan, CleaningStopped
from .data_directory import JOURNAL_LEVEL, DataDirectory, DataDirectoryError
from .disk_space import DiskSpace
from .episodes import Episodes
from .file_names import (
    DELETED_DIRECTORY,
    being_deleted,
    deleted_directory,
    parse_partition_directory,
    partition_directory,
)
from .flusher import LogFlusher
from .journal import MIN_FILE_BYTES, Journal
from .journal_format import ID_SIZE
from .journal_redo import JournalDamaged, LeftJournal, Leftover, read_journal
from .log_config import LogConfig
from .log_loader import LoadPoint, load_log, load_sound_part
from .partition_log import PartitionLog
from .read_only_log import ReadOnlyLog
from .recovery_points import RecoveryPoints
from .removal import remove_content, remove_tree
from .removed import remove_expired
from .results import CorruptLog, storage_error
from .shared_directory import SharedDirectory

T = TypeVar("T")

logger = structlog.get_logger(__name__)

DEFAULT_RESERVE_BYTES: Final = 64 << 20
DEFAULT_DECISION_RESERVE_BYTES: Final = 16 * 1024 * 1024

_CLOSED_PER_TURN: Final = 10
"""How many logs a stop closes, or how many deletions are begun, in one turn of the event loop."""

_DISCARD: Final = 50
"""The cost of closing the log of a deleted partition, in units of work. The cost of its segments is added."""

_FORGOTTEN_AT_ONCE: Final = 500
"""How many deleted partitions are removed from the journal with one sync, and forgotten in one turn of the event loop.
"""

_JOURNAL_PART: Final = 64
"""A journal file takes at most 1/64 of the disk, or MIN_FILE_BYTES if that is more."""

_LOOK: Final = 5
"""The cost of examining a log for compaction, in units of work. The cost of a compacted log's segments is added."""

_RETAINED_PER_TURN: Final = 1
"""How many logs retention handles in one turn of the event loop; each may roll a segment, which creates files."""

_WRITE_POINTS: Final = "recovery point checkpoint"
"""The name of the housekeeping job that writes the recovery points."""

UNTIL_CONFIGURED: Final = LogConfig(retention_ms=-1, retention_bytes=-1)
"""The settings of a log until those of its topic are known. With them, retention deletes nothing."""

TopicPartition = tuple[str, int]

Doomed = tuple[TopicPartition, str, str, AbstractContextManager[Any]]
"""A partition that is being deleted: its key, the path of its directory, the path to which the directory is renamed,
and the lock of its files."""


class LogManager:
    """The logs of a data directory. All public methods are called on the event loop's thread.

    `checkpoints`: the storage for the checkpoints, which have one offset per partition; None: files in the directory.
    `lost`: the partitions whose directories are missing, each with the offset up to which it was on disk. The caller
    must call `miss` for a lost partition whose topic exists, and `forget` for any other. `journal_bytes`: the size of
    each journal file; 0: there is no journal.
    """

    def __init__(
        self,
        directory: str,
        *,
        fs: FileSystem,
        clock: Clock,
        ids: RandomIds,
        threads: Threads | None = None,
        checkpoints: Checkpoints | None = None,
        config: LogConfig = UNTIL_CONFIGURED,
        crowding: Crowding | None = None,
        node_id: int = 1,
        reserve_bytes: int = DEFAULT_RESERVE_BYTES,
        decision_reserve_bytes: int = DEFAULT_DECISION_RESERVE_BYTES,
        checkpoint_interval_ms: int = 5_000,
        retention_check_interval_ms: int = 300_000,
        cleaner_backoff_ms: int = 15_000,
        cleaner_enable: bool = True,
        index_cache_bytes: int = index_cache.DEFAULT_BYTES,
        journal_bytes: int = 0,
    ) -> None:
        self.directory = DataDirectory(directory, fs, ids, node_id)
        self.checkpoints = checkpoints or CheckpointFiles(fs, directory)
        self.offline: dict[TopicPartition, KafkaError] = {}
        self.read_only: dict[TopicPartition, ReadOnlyLog] = {}
        self.lost: dict[TopicPartition, int] = {}
        self.failed: KafkaError | None = None
        self.crowding = crowding or Crowding()
        self.clean_start = False
        self._fs = fs
        self._clock = clock
        self._ids = ids
        self._threads = threads or RealThreads()
        self._config = config
        self._indexes = index_cache.IndexCache(index_cache_bytes)
        self._disk_space = DiskSpace(fs, directory, reserve_bytes, decision_reserve_bytes)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._cleaner_offsets: dict[TopicPartition, int] = {}
        self._written_cleaner_offsets: dict[TopicPartition, int] | None = None
        self._cleaned_known = False
        # The content of the checkpoint of log start offsets, including a write that is under way.
        self._start_offsets: dict[TopicPartition, int] = {}
        # The callbacks that wait until the log start offsets are on disk; the newest write of these offsets; whether
        # a write is scheduled but has not begun; and whether a write is under way.
        self._behind_start_offsets: list[Callable[[], None]] = []
        self._start_offsets_write: asyncio.Future[None] | None = None
        self._start_offsets_scheduled = False
        self._start_offsets_under_way = False
        # Deleted partitions that the checkpoint of log start offsets may still contain.
        self._former: set[TopicPartition] = set()
        # Partitions that are being deleted, whose directories may not have been renamed yet, each with the path to
        # which its directory is renamed.
        self._undeleted: dict[TopicPartition, str] = {}
        # Partitions that belong to no topic.
        self._strays: set[TopicPartition] = set()
        # Partitions whose creation has failed after their directory was made.
        self._unmade: set[TopicPartition] = set()
        # The path of the checkpoint of recovery points if the disk could not read it, else empty.
        self._unread_points = ""
        self._checkpoint_lock = self._threads.lock()
        self._recovery_points = RecoveryPoints(self.checkpoints, self._checkpoint_lock)
        self._root = SharedDirectory(fs, directory, self._threads.lock())
        self._callbacks: list[Callable[[KafkaError], None]] = []
        self._probe_failure: OSError | None = None
        self._flusher: LogFlusher | None = None
        self._journal: Journal | None = None
        self._journal_bytes = journal_bytes
        self._left_journal = LeftJournal(directory)
        self._leftovers: list[Leftover] = []
        self._intervals = (checkpoint_interval_ms, retention_check_interval_ms, cleaner_backoff_ms)
        self._cleaner_enable = cleaner_enable
        self._cleaner = Cleaner(fs, disk_space=self._disk_space)
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._cleaning: asyncio.Task[None] | None = None
        self._stop_begun = asyncio.Event()
        # Directories of deleted partitions that an earlier process has not removed. The recovery points of
        # `_left_keys` have to be removed from the checkpoint before the directories are removed.
        self._left_directories: list[str] = []
        self._left_keys: set[TopicPartition] = set()
        self._retaining: asyncio.Task[None] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._checkpointing: asyncio.Task[None] | None = None
        self._episodes = Episodes()
        self._opened = False

    @property
    def path(self) -> str:
        """The path of the data directory."""
        return self.directory.path

    @property
    def oldest_flush_s(self) -> float:
        """The age in seconds of the oldest flush, or of the oldest sync for the journal; 0 if there is none.

        The age of a flush includes waits for disk space or descriptors.
        """
        flush_s = 0.0 if self._flusher is None else self._flusher.oldest_flush_s
        return max(flush_s, 0.0 if self._journal is None else self._journal.oldest_settling_s)

    def space(self) -> tuple[int, int]:
        """Return the total and the usable bytes of the file system. Raises OSError."""
        return self._fs.total_space(self.path), self._fs.free_space(self.path)

    @property
    def cluster_id(self) -> str:
        """The cluster's id: 22 characters, as in Kafka. It was generated when the directory was created."""
        return self.directory.cluster_id

    @property
    def directory_id(self) -> str:
        """The data directory's id: 22 characters, as in Kafka."""
        return self.directory.directory_id

    # --- open --------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directory and load every partition in it.

        A damaged partition is added to `offline`. Raises DataDirectoryError if the whole directory cannot be used.
        """
        self.directory.open()
        try:
            self._load_all()
        except OSError as error:
            self._let_go()
            raise DataDirectoryError(f"{self.path} cannot be read or written: {error}. Check the disk") from error
        except JournalDamaged as error:
            self._let_go()
            raise DataDirectoryError(str(error)) from error
        except BaseException:
            self._let_go()
            raise
        self._opened = True

    def _load_all(self) -> None:
        """Read the checkpoints, load all partitions, and finish the deletions that a crash has interrupted."""
        started = self._clock.monotonic()
        unclean = self.directory.clean_shutdown()
        self.clean_start = unclean is not None
        self._read_recovery_points()
        start_offsets = self._read_start_offsets()
        self._start_offsets = start_offsets or {}
        cleaner_offsets = self._read_cleaner_offsets()
        self._cleaner_offsets, self._cleaned_known = cleaner_offsets or {}, cleaner_offsets is not None
        missing = {key for key, offset in self._recovery_points.current.items() if offset > 0}
        journal = self._left_journal = read_journal(self._fs, self.path)
        if journal.damage is not None and not journal.same_boot:
            raise journal.damage
        journal.drop_needless(self._fs, self._recovery_points.current)
        journal.redo(self._fs)
        deleted = []
        for name in sorted(self._fs.list(self.path)):
            path = f"{self.path}/{name}"
            if name.endswith(DELETED_DIRECTORY):
                deleted.append(path)
                continue
            key = parse_partition_directory(name)
            if key is not None:
                missing.discard(key)
                if name in journal.failures:
                    reason = f"its last records are in the journal and cannot be written: {journal.failures[name]}"
                    self._take_offline(key, storage_error(f"{path}: {reason}. Check the disk, then restart the broker"))
                    continue
                clean = unclean is not None and name not in unclean
                self._load(key, path, clean=clean, start_known=start_offsets is not None)
        self._former = {key for key in self._start_offsets if key not in self._logs and key not in self.offline}
        gone = being_deleted(missing, (path.rpartition("/")[2] for path in deleted))
        self.lost = {key: self._recovery_points.get(key) for key in missing - gone}
        if not self.clean_start and (self._logs or self.read_only):
            # A killed process may have left the names of new directories in the page cache only. Usually the process
            # that creates a directory syncs its name. The names must be on disk before these logs are used: otherwise
            # a loss of power could remove a whole log.
            self._fs.sync_directory(self.path)
        try:
            if start_offsets is None or any(
                log.log_start_offset > self._start_offsets.get(key, 0) for key, log in self._logs.items()
            ):
                self._note_start_offsets()
                self._write_start_offsets()  # from now on a missing checkpoint means that it was lost
            if cleaner_offsets is None and not self._logs and not self.offline:
                self._write_cleaner_offsets()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            logger.warning("checkpoint not written", directory=self.path, error=str(error))
        self._finish_redo(journal)
        # A start that fails before this point has not changed the directory's state, so the next start finds the same.
        self.directory.record_boot(
            {partition_directory(*key) for key in self._logs},
            {partition_directory(*key) for key in (*self.offline, *self.lost)},
        )
        self.directory.take_clean_shutdown()
        self._finish_deletions(gone, deleted)
        try:
            for path in remove_expired(self._fs, self.path, self._clock.now_ms()):
                logger.info("torn tail removed", path=path)
        except Exception as error:
            logger.warning("torn tails not removed", error=repr(error), remedy="the next start tries again")
        if self._logs or self.offline:
            logger.info(
                "logs loaded",
                directory=self.path,
                partitions=len(self._logs),
                offline=len(self.offline) - len(self.read_only),
                read_only=len(self.read_only),
                clean=self.clean_start,
                seconds=round(self._clock.monotonic() - started, 3),
            )

    def _read_recovery_points(self) -> None:
        """Read the recovery points. If the disk cannot read them (EIO), use the partitions' own files.

        In that case, no log is truncated, and missing partition directories are not noticed. Raises OSError.
        """
        try:
            self._recovery_points.read()
        except OSError as error:
            self._unread_points = self._unreadable(RECOVERY_POINTS, error)

    def _read_start_offsets(self) -> dict[TopicPartition, int] | None:
        """Return the log start offsets, or None if their checkpoint is missing or damaged. Raises OSError.

        Raises DataDirectoryError if the disk cannot read them (EIO), because no other file has them.
        """
        try:
            return self.checkpoints.read(LOG_START_OFFSETS)
        except OSError as error:
            path = self._unreadable(LOG_START_OFFSETS, error)
            raise DataDirectoryError(
                f"{path} cannot be read: {error}. Only this file says up to which offsets DeleteRecords has deleted"
                " records. Check the disk and start the broker again, or restore the file from a copy. As a last"
                " resort, remove the file: deleted records may then be read again"
            ) from error

    def _read_cleaner_offsets(self) -> dict[TopicPartition, int] | None:
        """Return the cleaner offsets, or None if they are not known. Compaction then begins at the start of each log.

        Raises OSError.
        """
        try:
            return self.checkpoints.read(CLEANER_OFFSETS)
        except OSError as error:
            self._unreadable(CLEANER_OFFSETS, error)
            return None

    def _unreadable(self, name: str, error: OSError) -> str:
        """If `error` is EIO, log that the disk cannot read a checkpoint, and return its path. Raise any other error."""
        if error.errno != errno.EIO:
            raise error
        path = f"{self.path}/{name}"
        logger.error("checkpoint not read", file=path, reason=str(error))
        return path

    def _finish_redo(self, journal: LeftJournal) -> None:
        """Remove the journal that was redone, but keep the entries of partitions that could not be redone.

        The new recovery points are written first. They say that the redone records are on disk, so that damage to these
        records does not look like a torn write at the next start. On a full disk, the whole journal stays, unless all
        its entries were redone and are in healthy logs. Raises OSError.
        """
        if not journal.paths:
            return
        ends = {key: journal.end_offset(partition_directory(*key)) for key in (*self._logs, *self.offline)}
        durable = {
            key: end
            for key, end in ends.items()
            if end > self._recovery_points.get(key) and partition_directory(*key) not in journal.failures
        }
        try:
            if durable:
                self._recovery_points.note(durable)
                self._recovery_points.write()
            self._leftovers = journal.keep(self._fs, self._ids.uuid()[:ID_SIZE])
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            if not self.offline.keys().isdisjoint(durable) or journal.failures:
                self._leftovers = journal.leave()
                return
        journal.remove(self._fs)

    def _load(self, key: TopicPartition, path: str, *, clean: bool, start_known: bool) -> None:
        """Load the log of one partition; if that fails, make the partition read-only or take it offline.

        `clean`: whether the last stop closed the log cleanly. `start_known`: whether the checkpoint of log start
        offsets exists and is intact. Raises OSError if no file descriptor is left.
        """
        known = self._recovery_points.get(key)
        recovery_point = max(known, self._left_journal.end_offset(partition_directory(*key)))
        unsynced_from = recovery_point if self._left_journal.damage is None else known
        point = LoadPoint(
            clean,
            recovery_point,
            self._start_offsets.get(key, 0) if start_known else None,
            same_boot=self.directory.same_boot(partition_directory(*key)),
            cleaned_to=self._cleaner_offsets.get(key, 0) if self._cleaned_known else None,
            unsynced_from=unsynced_from,
            unread=self._unread_points,
        )
        try:
            if not self._fs.is_directory(path):
                raise storage_error(
                    f"{path} must be a directory, but is a file or a symbolic link (links are not followed). The"
                    " partition stays offline. Move the directory itself to this path, or delete the topic"
                )
            log = self._logs[key] = self._open_log(key, path, self._config, point)
            if self.clean_start and not log.log_end_offset:
                log.files.sync_name(self._root.changed())  # a clean stop does not sync the names of empty partitions
        except CorruptLog as damage:
            if self._unread_points:
                # The next start may be able to read the checkpoint, but must not take the damage for a torn write.
                self._recovery_points.current[key] = max(known, damage.offset + 1)
            if not self._open_sound_part(key, path, point, damage):
                self._take_offline(key, damage)
        except KafkaError as error:
            self._take_offline(key, error)
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                raise  # the lack of descriptors affects every partition
            self._take_offline(
                key, storage_error(f"{path} cannot be loaded: {error}. Check the disk, then restart the broker")
            )

    def _open_sound_part(self, key: TopicPartition, path: str, point: LoadPoint, damage: CorruptLog) -> bool:
        """Open the log up to the damage, read-only. Return False if the whole partition must be offline instead."""
        if key[0] in INTERNAL_TOPICS or key[0] == METADATA_TOPIC:
            return False
        try:
            log = load_sound_part(
                *key,
                path,
                damage=damage,
                fs=self._fs,
                clock=self._clock,
                config=self._config,
                point=point,
                threads=self._threads,
                indexes=self._indexes,
            )
        except Exception as error:
            if error is not damage:
                logger.warning("sound part not read", topic=key[0], partition=key[1], reason=repr(error))
            return False
        assert log.failure is not None
        self.read_only[key], self.offline[key] = log, log.failure
        logger.error(
            "partition read-only",
            topic=key[0],
            partition=key[1],
            served_to=log.log_end_offset,
            reason=log.failure.message,
        )
        return True

    def _take_offline(self, key: TopicPartition, error: KafkaError) -> None:
        """Add the partition to `offline` and log the error, which all further requests for the partition get."""
        self.offline[key] = error.anew()
        logger.error("partition offline", topic=key[0], partition=key[1], reason=error.message)

    def miss(self, key: TopicPartition) -> None:
        """Take a lost partition of an existing topic offline, so that it does not begin again at offset 0."""
        path, end_offset = f"{self.path}/{partition_directory(*key)}", self.lost.pop(key)
        self._take_offline(
            key,
            storage_error(
                f"{path} is missing, but was on disk up to offset {end_offset}. The partition stays offline. Stop the"
                " broker. Then restore the directory from a copy, or run `oncelog log repair` on the data directory:"
                f" the partition is then empty and continues at offset {end_offset}"
            ),
        )

    def forget(self, key: TopicPartition) -> None:
        """Forget a lost partition whose topic no longer exists."""
        del self.lost[key]
        self._recovery_points.drop([key])

    def note_stray(self, key: TopicPartition) -> None:
        """Record that the partition belongs to no topic, so that its directory may be moved away after a clean stop.

        A clean stop then writes no recovery point for the partition. With one, a moved directory would count as lost.
        """
        self._strays.add(key)

    def holdings(self, besides: TopicPartition) -> str | None:
        """Return the name of a known partition (even offline or lost) other than `besides`; None if there is none."""
        known = {*self._logs, *self.offline, *self.lost} - {besides}
        return partition_directory(*min(known)) if known else None

    def _open_log(self, key: TopicPartition, path: str, config: LogConfig, point: LoadPoint) -> PartitionLog:
        """Return the log in the directory `path`, recovered as `point` requires. Raises CorruptLog and OSError."""
        return load_log(
            *key,
            path,
            fs=self._fs,
            clock=self._clock,
            config=config,
            point=point,
            flusher=self._flusher,
            root=self._root,
            threads=self._threads,
            ids=self._ids,
            indexes=self._indexes,
            disk_space=self._disk_space,
            on_disk_failure=partial(self._on_log_failure, key),
            on_start_offset=self._start_offset_moved,
        )

    async def start(self) -> None:
        """Open the directory unless it is open, and start the flusher and the timers. Raises DataDirectoryError."""
        if not self._opened:
            self.open()
        self._flusher = LogFlusher(self._fs, self._threads, self._fail_directory)
        for log in self._logs.values():
            log.files.flusher = self._flusher
        if self._left_directories:
            self._flusher.submit(self._remove_left_directories, "removal of deleted partitions", Lane.DELETION)
        file_bytes = self._journal_file_bytes()
        self._journal = Journal(
            self._fs,
            self._root,
            self.path,
            threads=self._threads,
            ids=self._ids,
            file_bytes=file_bytes,
            reserve_bytes=self._disk_space.reserve_bytes,
            number=self._left_journal.number,
            sequence=self._left_journal.sequence,
            leftovers=self._leftovers,
            wake=self._flusher.wake,
            on_failure=self._fail_directory,
        )
        if file_bytes:
            self._flusher.journal = self._journal
            self._journal.maintain()
        self._left_journal = LeftJournal(self.path)
        checkpoint, retention, cleaner = self._intervals
        self._repeat(checkpoint, self._checkpoint)
        self._repeat(1_000, self._look)
        self._repeat(retention, self._retain)
        if self._cleaner_enable:
            self._repeat(cleaner, self._clean)

    def _journal_file_bytes(self) -> int:
        """Return the size of a journal file in bytes (a small part of the disk), or 0 if this run has no journal.

        There is no journal if the settings exclude it, if the format level cannot be raised, or if the journal of the
        last run is still there because the disk was full.
        """
        if any(leftover.kept_for is None for leftover in self._leftovers):
            return 0
        if self._journal_bytes:
            try:
                self.directory.raise_level(JOURNAL_LEVEL)
                most = max(self._fs.total_space(self.path) // _JOURNAL_PART, MIN_FILE_BYTES)
                return min(self._journal_bytes, most)
            except OSError as error:
                logger.warning(
                    "journal not used in this run", error=str(error), remedy="check the disk, then restart the broker"
                )
        return 0

    def _look(self) -> None:
        """Update the free space, check that the directory is still in place, and retry failed background work."""
        self._disk_space.refresh()
        if not self.directory.in_place():
            self._fail_directory(OSError(errno.ENOENT, "it was removed, or replaced by another directory", self.path))
        elif self._flusher is not None:
            self._judge_probe()  # the flusher may have repeated a failed probe
            self._flusher.try_again()
            self._cleaner.try_again()
            if self._journal is not None:
                self._journal.maintain()
            if self._behind_start_offsets:
                self._start_offset_moved(lambda: None)

    def _repeat(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Call `action` every `interval_ms` ms until the timers are cancelled or the directory fails."""

        def run() -> None:
            self._timers[run] = loop.call_later(interval_ms / 1000, run)
            if self.failed is None:
                action()

        loop = asyncio.get_running_loop()
        self._timers[run] = loop.call_later(interval_ms / 1000, run)

    # --- logs --------------------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the partition's log, or None if there is none. Raises KAFKA_STORAGE_ERROR if it is offline."""
        log = self._logs.get((topic, partition))
        if log is None and (error := self.offline.get((topic, partition))) is not None:
            raise error.anew()
        return log

    def create(self, topic: str, partition: int, config: LogConfig) -> PartitionLog:
        """Create the directory and the log of a new partition, and return the log. Raises KAFKA_STORAGE_ERROR.

        The directory is synced together with the partition's first record.
        """
        key = (topic, partition)
        assert key not in self._logs, f"{topic}-{partition} exists"
        if self.failed is not None:
            raise self.failed.anew()
        if key in self.offline:
            raise self.offline[key].anew()
        if key in self.lost:
            self.forget(key)  # the lost partition belonged to a deleted topic of the same name
        path = f"{self.path}/{partition_directory(topic, partition)}"
        if key in self._undeleted:
            raise storage_error(
                f"{path} cannot be created: an earlier partition with this name is still being deleted. Try again later"
            )
        if self._journal is not None and self._journal.mentions(partition_directory(topic, partition)):
            raise storage_error(
                f"{path} cannot be created yet, because the journal has records of a deleted partition with this name."
                " Restart the broker"
            )
        try:
            self._forget_former(key)
            self._unmade.add(key)
            self._fs.make_directory(path)
            log = self._open_log(key, path, config, LoadPoint(clean=True, fresh=True))
        except OSError as error:
            raise storage_error(f"{path} cannot be created: {error}") from error
        self._logs[key] = log
        self._unmade.discard(key)
        log.files.sync_name(self._root.changed())
        return log

    def _forget_former(self, key: TopicPartition) -> None:
        """Before a partition is created, remove an earlier one of the same name from the checkpoints, and sync them.

        Raises OSError.

        The old log start offset would delete the new partition's records. The old recovery point would make the new
        partition look damaged.
        """
        if key in self._former or key in self._start_offsets:
            self._note_start_offsets()
            self._write_start_offsets()  # waits for a write under way, which may contain the partition
            self._former.clear()
        self._recovery_points.drop([key])
        if self._recovery_points.may_store([key]):
            self._recovery_points.write()
        if key in self._cleaner_offsets:
            self._drop_cleaner_offsets({key})
            self._write_cleaner_offsets()

    def holds(self, topic: str, partition: int) -> bool:
        """Whether files of the partition may be on disk.

        This includes partitions that are offline, still being deleted, or could not be created completely.
        """
        key = (topic, partition)
        return key in self._logs or key in self.offline or key in self._undeleted or key in self._unmade

    async def delete(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete partitions, including offline ones. The deletion is on disk when this returns.

        The logs are closed first, in slices. Then a thread renames the directories and syncs their parent once. The
        files are removed in the background. Raises KAFKA_STORAGE_ERROR if a directory cannot be renamed, or if the
        journal cannot invalidate its records of the partitions: the caller must then call this method again for the
        same partitions.
        """
        doomed = await run_in_slices(self._discard(partitions))
        if not doomed:
            return

        def rename() -> None:
            for _, path, target, lock in doomed:
                with lock:
                    if self._fs.exists(path):
                        self._fs.rename(path, target)
            self._fs.sync_directory(self.path)

        try:
            await asyncio.shield(self._threads.run(Lane.HOUSEKEEPING, rename))
        except OSError as error:
            raise storage_error(f"partitions in {self.path} cannot be deleted: {error}") from error
        if self._journal is not None:
            try:
                async for start in in_slices(range(0, len(doomed), _FORGOTTEN_AT_ONCE), 1):
                    part = doomed[start : start + _FORGOTTEN_AT_ONCE]
                    await self._journal.forget([partition_directory(*key) for key, _, _, _ in part])
            except OSError as error:
                reason = f"cannot be deleted, because the journal has records of them: {error}"
                raise storage_error(f"partitions in {self.path} {reason}") from error
        keys: set[TopicPartition] = set()
        async for key, _, _, _ in in_slices(doomed, _FORGOTTEN_AT_ONCE):
            keys.add(key)
        self._recovery_points.drop(keys)
        async for key in in_slices(list(keys), _FORGOTTEN_AT_ONCE):
            self._undeleted.pop(key, None)
            self._unmade.discard(key)
            self.offline.pop(key, None)
        await self._forget_deleted(keys)
        async for key, _, target, _ in in_slices(doomed, _CLOSED_PER_TURN):
            # If the partition is created again, later recovery points with its name do not concern this deletion.
            stored = {key} if self._recovery_points.may_store([key]) else set[TopicPartition]()
            finish = partial(self._finish_deletion, stored, target)
            if self._flusher is None:
                finish()
            else:
                self._flusher.submit(finish, f"deletion of {target}", Lane.DELETION)

    def _discard(self, partitions: Iterable[TopicPartition]) -> Steps[list[Doomed]]:
        """Close the logs of partitions that are being deleted, and return what must be renamed."""
        doomed: list[Doomed] = []
        for key in partitions:
            name = partition_directory(*key)
            target = f"{self.path}/{deleted_directory(*key, self._ids.uuid().hex())}"
            target = self._undeleted.setdefault(key, target)
            log = self._logs.pop(key, None) or self.read_only.pop(key, None)
            if key in self._start_offsets or (log is not None and log.log_start_offset):
                self._former.add(key)
            doomed.append((key, f"{self.path}/{name}", target, nullcontext() if log is None else log.files.lock))
            if log is not None:
                yield from log.discard_in_steps()
            yield _DISCARD
        return doomed

    async def _forget_deleted(self, keys: set[TopicPartition]) -> None:
        """Remove deleted partitions from the checkpoints. If that fails, as on a full disk, `create` repeats it."""
        if self._flusher is None:
            return
        if self._recovery_points.may_store(keys):
            with suppress(OSError):
                await asyncio.shield(self._flusher.submit(self._recovery_points.write_changes, _WRITE_POINTS))
        if not keys.isdisjoint(self._former):
            self._start_offset_moved(lambda: None)
            with suppress(KafkaError):
                await self.start_offsets_on_disk()
        if any(key in self._cleaner_offsets for key in keys):
            dropped = {key: at for key, at in self._cleaner_offsets.items() if key in keys}
            self._drop_cleaner_offsets(keys)
            try:
                await asyncio.shield(self._flusher.submit(self._write_new_cleaner_offsets, "cleaner offset checkpoint"))
            except OSError:
                self._cleaner_offsets = self._cleaner_offsets | dropped

    def _drop_cleaner_offsets(self, keys: set[TopicPartition]) -> None:
        """Remove these partitions from the cleaner offsets for the next checkpoint."""
        self._cleaner_offsets = {key: at for key, at in self._cleaner_offsets.items() if key not in keys}

    def _finish_deletion(self, keys: set[TopicPartition], path: str) -> None:
        """Remove a deleted partition from the disk, like `_remove_deleted`. Raises OSError.

        If the broker is stopping, this is left to the next start, because removing many partitions can take minutes.
        """
        if not self._stop_begun.is_set():
            self._remove_deleted(keys, path)

    def _remove_deleted(self, keys: set[TopicPartition], path: str) -> None:
        """Remove the files of a deleted partition, then the recovery points of `keys`, then the directory.

        The files go first, because a full disk may have no space for the checkpoint. The directory goes last: a crash
        must not leave a recovery point without a directory, as if the partition were lost. `keys` is emptied once the
        recovery points are removed: any later recovery point for one of these names belongs to a new partition. Raises
        OSError.
        """
        remove_content(self._fs, path)
        if self._recovery_points.may_store(keys):
            self._recovery_points.write()
        keys.clear()
        remove_tree(self._fs, path)

    def _finish_deletions(self, keys: set[TopicPartition], paths: list[str]) -> None:
        """When the broker starts, prepare to finish the deletions that a stop or a crash has interrupted.

        `keys` are the deleted partitions with recovery points, `paths` their renamed directories. `start` begins to
        remove the directories in the background. If the disk has no space for the checkpoint of the recovery points
        now, the checkpoint is written after files have been removed.
        """
        self._recovery_points.drop(keys)
        if self._recovery_points.may_store(keys):
            with suppress(OSError):
                self._recovery_points.write()
        self._left_directories = paths
        self._left_keys = keys

    def _remove_left_directories(self) -> None:
        """Remove the directories of deleted partitions that a stop or a crash has left.

        Directories that cannot be removed are kept for the next attempt, and the first error is raised as OSError.
        """
        failed: list[str] = []
        failure: OSError | None = None
        for number, path in enumerate(self._left_directories):
            if self._stop_begun.is_set():
                failed += self._left_directories[number:]
                break
            try:
                self._remove_deleted(self._left_keys, path)
            except OSError as error:
                failed.append(path)
                failure = failure or error
        self._left_directories = failed
        if failure is not None:
            raise failure

    @property
    def open_logs(self) -> int:
        """The number of open logs, including read-only ones."""
        return len(self._logs) + len(self.read_only)

    def logs(self) -> Iterator[PartitionLog]:
        """Return an iterator over the logs of all partitions that are not offline."""
        return iter(list(self._logs.values()))

    # --- failure -----------------------------------------------------------------------------------------------------

    def on_failure(self, callback: Callable[[KafkaError], None]) -> None:
        """Call `callback` once, with the error, if the directory fails."""
        self._callbacks.append(callback)

    def _on_log_failure(self, key: TopicPartition, error: OSError) -> None:
        """Handle a failed write or sync of a log: find out whether the whole directory has stopped accepting writes.

        If the log is the metadata log, the directory fails at once.
        """
        if self.failed is not None:
            return
        if key[0] == METADATA_TOPIC:
            self._fail_directory(error)
            return
        logger.error(
            "partition accepts no writes",
            partition=partition_directory(*key),
            error=str(error),
            remedy="check the disk, then restart the broker; records that are on disk can still be read",
        )
        if self._flusher is not None:
            probing = self._flusher.submit(self._probe, f"probe of {self.path}")
            probing.add_done_callback(lambda _: self._judge_probe())

    def _probe(self) -> None:
        """Check in a thread whether the directory accepts writes, and keep the error for `_judge_probe`.

        A lack of disk space or of file descriptors does not count as a failure.
        """
        try:
            self.directory.probe()
        except OSError as error:
            if error.errno not in (*NO_SPACE, *OUT_OF_DESCRIPTORS):
                self._probe_failure = error

    def _judge_probe(self) -> None:
        """Fail the directory if a probe has shown that it accepts no writes."""
        if self._probe_failure is not None:
            self._fail_directory(self._probe_failure)

    def _fail_directory(self, error: OSError) -> None:
        """Refuse writes to all logs from now on and call the callbacks, unless the directory has already failed."""
        if self.failed is not None:
            return
        self.failed = storage_error(
            f"the data directory {self.path} failed: {error}. The broker writes nothing more to it. Check the disk,"
            " then restart the broker"
        )
        if self._journal is not None:
            self._journal.abandon()
        for log in self.logs():
            log.fail(self.failed)
        for callback in self._callbacks:
            callback(self.failed)
        logger.error("data directory failed", directory=self.path, error=str(error))

    # --- maintenance -------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        """Begin to write the recovery points, and to save the state of logs that have grown.

        Recovery after a crash need not verify batches below the recovery points.
        """
        if self._checkpointing is None or self._checkpointing.done():
            steps = self._checkpoint_in_steps()
            if run_slice(steps) is None:
                loop = asyncio.get_running_loop()
                self._checkpointing = loop.create_task(run_in_slices(steps), name="log-checkpoint")

    def _checkpoint_in_steps(self) -> Steps[None]:
        """Do the work of `_checkpoint`: look at all logs in slices; then, without a pause, begin the writes."""
        moved: list[TopicPartition] = []
        grown: list[PartitionLog] = []
        known = self._recovery_points.current
        for log in list(self._logs.values()):
            key = log.topic, log.partition
            if known.get(key) != log.files.synced_offset:
                moved.append(key)
            if log.has_grown:
                grown.append(log)
            yield 1
        # Logs may have been flushed or deleted since they were looked at.
        self._note_synced(moved)
        if self._flusher is not None and not self._flusher.is_unfinished(_WRITE_POINTS):
            self._begin_points_write()
        if grown and (self._saving is None or self._saving.done()):
            self._saving = asyncio.get_running_loop().create_task(self._save_all(grown), name="log-state")

    def _note_synced(self, keys: Iterable[TopicPartition]) -> None:
        """Update the recovery points of these partitions. Partitions without a log are skipped."""
        moved = {key: log.files.synced_offset for key in keys if (log := self._logs.get(key)) is not None}
        if moved:
            self._recovery_points.note(moved)

    def _begin_points_write(self) -> asyncio.Future[None] | None:
        """Begin to write the recovery points to disk; return the future of the write, or None if none is needed.

        The future fails with OSError.
        """
        if self._flusher is None or not self._recovery_points.has_changed:
            return None
        return self._flusher.submit(self._recovery_points.write_changes, _WRITE_POINTS)

    async def _save_all(self, logs: list[PartitionLog]) -> None:
        """Save the state of these logs, one per turn of the event loop, to shorten a start after a crash."""
        async for log in in_slices(logs, 1):
            if log.has_grown:  # the log may have been rolled or closed meanwhile
                what = f"saving the state of {log.name}"
                try:
                    log.saved_state.save_grown()
                except Exception as error:
                    self._episodes.failed(what, error)
                else:
                    self._episodes.succeeded(what)

    def _points(self) -> dict[TopicPartition, int]:
        """Return the offset up to which each partition is on disk; for offline and lost ones, the last known offset."""
        points = {key: log.files.synced_offset for key, log in self._logs.items()}
        others = (*self.offline, *self.lost)
        known = self._recovery_points.current
        return points | {key: known[key] for key in others if key in known}

    # The `_write_…` methods run in a thread or on the event loop. Each writes the state as of the moment when it gets
    # the lock, so that the last write has the newest state.

    def _write_cleaner_offsets(self) -> None:
        """Write and sync the checkpoint of the offsets up to which logs are compacted. Raises OSError."""
        with self._checkpoint_lock:
            points = self._cleaner_offsets
            self.checkpoints.write(CLEANER_OFFSETS, points)
            self._written_cleaner_offsets = points

    def _write_new_cleaner_offsets(self) -> None:
        """Write the cleaner offsets, unless another write has already stored all changes."""
        if self._cleaner_offsets is not self._written_cleaner_offsets:
            self._write_cleaner_offsets()

    def _note_start_offsets(self) -> None:
        """Collect the log start offsets of all partitions for the next write of the checkpoint."""
        offsets = {key: log.log_start_offset for key, log in self._logs.items() if log.log_start_offset > 0}
        offsets |= {key: self._start_offsets[key] for key in self.offline if key in self._start_offsets}
        self._start_offsets = offsets

    def _write_start_offsets(self) -> None:
        """Write and sync the checkpoint of log start offsets. Raises OSError."""
        with self._checkpoint_lock:
            offsets = self._start_offsets
            self.checkpoints.write(LOG_START_OFFSETS, offsets)

    def _start_offset_moved(self, then: Callable[[], None]) -> None:
        """Write the log start offsets to disk, because one of them has moved; then call `then`.

        One write covers all offsets that have moved before it begins. At most one write is under way; the next one
        begins when it has ended. Without a flusher, write immediately, and raise OSError if that fails.
        """
        if self._flusher is None:
            self._note_start_offsets()
            self._write_start_offsets()
            then()
            return
        self._behind_start_offsets.append(then)
        if not self._start_offsets_scheduled:
            self._start_offsets_scheduled = True
            loop = asyncio.get_running_loop()
            self._start_offsets_write = loop.create_future()
            self._start_offsets_write.add_done_callback(lambda done: done.cancelled() or done.exception())
            if not self._start_offsets_under_way:
                loop.call_soon(self._begin_start_offsets_write)

    def _begin_start_offsets_write(self) -> None:
        """Write the log start offsets in a thread; when they are on disk, call the callbacks that wait for them."""
        assert self._flusher is not None
        assert self._start_offsets_write is not None
        done = self._start_offsets_write
        self._start_offsets_scheduled = False
        self._start_offsets_under_way = True
        self._note_start_offsets()
        behind, self._behind_start_offsets = self._behind_start_offsets, []
        former = set(self._former)

        def ended(write: asyncio.Future[None]) -> None:
            error = write.exception()
            if error is None:
                self._former -= former
                for then in behind:
                    then()
            else:
                self._behind_start_offsets = behind + self._behind_start_offsets  # `_look` tries again
            if not done.done():
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(error)
            self._start_offsets_under_way = False
            if self._start_offsets_scheduled:
                self._begin_start_offsets_write()

        self._flusher.submit(self._write_start_offsets, "log start offset checkpoint").add_done_callback(ended)

    async def start_offsets_on_disk(self) -> None:
        """Wait until all log start offsets that have moved so far are on disk. Raises KAFKA_STORAGE_ERROR."""
        if self._start_offsets_write is None:
            return
        try:
            await asyncio.shield(self._start_offsets_write)
        except OSError as error:
            raise storage_error(f"the log start offsets cannot be written to {self.path}: {error}") from error

    def _retain(self) -> None:
        """Begin a round of retention, unless one is running."""
        if self._retaining is None or self._retaining.done():
            self._retaining = asyncio.get_running_loop().create_task(self._retain_all(), name="log-retention")

    async def _retain_all(self) -> None:
        """Delete the segments that retention does not keep, in slices; the log start offsets are written together."""
        now_ms = self._clock.now_ms()
        async for log in in_slices(self.logs(), _RETAINED_PER_TURN):
            if log.failure is None:
                what = f"retention of {log.name}"
                try:
                    await run_in_slices(log.retain_in_steps(now_ms))
                except Exception as error:
                    self._episodes.failed(what, error)
                else:
                    self._episodes.succeeded(what)

    def _clean(self) -> None:
        """Begin a round of compaction, unless one is running."""
        if self._cleaning is None or self._cleaning.done():
            self._cleaning = asyncio.get_running_loop().create_task(self._clean_all(), name="log-cleaner")

    async def _clean_all(self) -> None:
        """Compact the logs that need it, one after another. A worker thread reads and writes the segments."""
        now_ms = self._clock.now_ms()
        left = SLICE
        for log in self.logs():
            left -= _LOOK + (2 * len(log.segments) if log.config.compacted else 0)
            if left <= 0:
                await asyncio.sleep(0)
                left = SLICE
            if not log.config.compacted or log.failure is not None:
                continue
            first_dirty = self._cleaner_offsets.get((log.topic, log.partition), 0)
            what = f"compaction of {log.name}"
            plan = None
            try:
                plan = await self._plan_cleaning(log, first_dirty, now_ms)
                if plan is None:
                    continue
                await self._clean_one(log, plan, now_ms)
            except CleaningStopped:
                return
            except Exception as error:  # the log stays unchanged, and the next logs are compacted
                if log.files.closed:
                    # The log was deleted meanwhile. A new one of its name may have files at the same paths.
                    self._episodes.forget(what)
                elif isinstance(error, FileNotFoundError | CorruptLog) and plan and plan.lost_segments(log):
                    continue  # retention or DeleteRecords came in between; the next round compacts what is left
                elif isinstance(error, CorruptLog):
                    log.fail(error)
                    logger.error("partition taken offline", partition=log.name, reason=error.message)
                else:
                    self._episodes.failed(what, error)
            else:
                self._episodes.succeeded(what)

    async def _plan_cleaning(self, log: PartitionLog, first_dirty: int, now_ms: int) -> CleaningPlan | None:
        """Return the plan of a log's compaction, or None if the log needs no compaction or has failed.

        Data that the plan needs and that is not in memory is read in a thread.
        """
        side_reads = log.reader.side_reads
        for _ in range(2 * len(log.segments)):
            if log.failure is not None:
                return None
            try:
                return await run_in_slices(self._cleaner.plan_in_steps(log, first_dirty, now_ms))
            except NotAtHand as missing:
                if not await run_in_slices(side_reads.get(missing)):
                    break
        if log.failure is not None:
            return None
        with side_reads.at_once():
            return self._cleaner.plan(log, first_dirty, now_ms)

    async def _clean_one(self, log: PartitionLog, plan: CleaningPlan, now_ms: int) -> None:
        """Compact a log according to `plan`, and record the offset up to which it is compacted."""
        assert self._flusher is not None
        flush = log.synced(plan.as_of)
        if flush is not None:
            await self._unless_stopped(asyncio.shield(flush))
        if self._journal is not None and not await self._journal.settle(log.files):
            return  # the next round continues
        # The recovery point must lie above all compacted segments. Then recovery attributes gaps in their offsets to
        # compaction instead of a torn tail, and writes no bytes of the journal into these segments.
        self._note_synced([(log.topic, log.partition)])
        written = self._begin_points_write()
        if written is not None:
            await written
        await self._threads.run(Lane.COMPACTION, lambda: self._cleaner.map_keys(plan))
        if self._journal is not None and plan.groups:
            below = max(segment.base_offset for group in plan.groups for segment in group.segments) + 1
            if not await self._unless_stopped(self._journal.forget_below(log.files, below)):
                return
        for group in plan.groups:
            if log.failure is not None:
                return
            cleaned = await self._threads.run(Lane.COMPACTION, partial(self._cleaner.clean_group, plan, group))
            await self._threads.run(Lane.COMPACTION, partial(self._cleaner.publish, log, plan, cleaned))
            if not self._cleaner.replace(log, group, cleaned):
                return
        if log.failure is not None:
            return  # the log may have been deleted meanwhile, and a new partition may have its name
        self._cleaner_offsets = {**self._cleaner_offsets, (log.topic, log.partition): plan.end_offset}
        await self._flusher.submit(self._write_new_cleaner_offsets, "cleaner offset checkpoint")

    async def _unless_stopped(self, waiting: Awaitable[T]) -> T:
        """Await `waiting`, which a full disk may delay indefinitely, and return its result.

        Raise CleaningStopped if a stop begins first.
        """
        work, stop = asyncio.ensure_future(waiting), asyncio.ensure_future(self._stop_begun.wait())
        # Mark an exception as retrieved, because this call may be cancelled at the same time.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
        finally:
            work.cancel()
            stop.cancel()
        raise CleaningStopped

    # --- stop --------------------------------------------------------------------------------------------------------

    def begin_stop(self) -> None:
        """From now on, fail a flush that lacks disk space or a descriptor, so that the stop does not wait for it.

        Flushes that already wait for either are repeated once. Call `stop` to complete the stop.
        """
        if self._flusher is not None:
            self._flusher.begin_stop()

    async def stop(self) -> None:
        """Flush and close all logs and release the directory's lock, so that the next start needs no recovery.

        Do nothing if the directory is not open. Failures are logged; the next start recovers as it does after a crash.
        """
        if not self._opened:
            return
        self._cancel_timers()
        self._cleaner.stop()
        self._stop_begun.set()
        if self._cleaning is not None:
            await asyncio.gather(self._cleaning, return_exceptions=True)
        for task in (self._retaining, self._checkpointing, self._saving):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        with suppress(KafkaError):  # it was logged, and the next start uses the older offsets
            await self.start_offsets_on_disk()
        unclean = {partition_directory(*key) for key in (*self.offline, *self._undeleted)}
        if self._journal is not None:
            if self.failed is None:
                await self._journal.close()
            else:
                self._journal.abandon()
        if self.failed is None:
            # Create all files before the records are synced, because a file system creates files much faster while
            # nothing is being synced.
            async for log in in_slices(list(self._logs.values()), _CLOSED_PER_TURN):
                with suppress(Exception):  # `close` raises the error again
                    log.prepare_close()
            async for log in in_slices(list(self._logs.values()), _CLOSED_PER_TURN):
                log.files.sync_later(directory=False)
        if self._flusher is not None:
            await self._flusher.stop()
        points = self._points()
        async for key, log in in_slices(list(self._logs.items()), _CLOSED_PER_TURN):
            log.files.flusher = None
            if log.failure is not None:
                unclean.add(log.name)
            try:
                log.close()
                points[key] = log.files.synced_offset
                if key in self._strays and log.name not in unclean:
                    del points[key]
            except Exception as error:  # the other logs must still be closed
                unclean.add(log.name)
                reason = error.message if isinstance(error, KafkaError) else repr(error)
                logger.error("partition not closed cleanly", partition=log.name, reason=reason)
        try:
            if self.failed is None:
                if self._journal is not None:
                    await self._journal.remove_all()
                self._recovery_points.current = points
                self._recovery_points.write()
                self.directory.write_clean_shutdown(unclean)
        except Exception as error:  # the next start recovers as it does after a crash
            logger.error("clean shutdown not recorded", directory=self.path, error=repr(error))
        self._let_go()

    def abandon(self) -> None:
        """Drop all logs as a crash would, for tests: release the lock, but flush and write nothing."""
        self._cancel_timers()
        for task in (self._retaining, self._checkpointing, self._saving):
            if task is not None:
                task.cancel()
        if self._flusher is not None:
            self._flusher.abandon()
        if self._journal is not None:
            self._journal.abandon()
        for log in self.logs():
            log.files.flusher = None
            log.close(clean=False)
        self._let_go()

    def _cancel_timers(self) -> None:
        """Cancel all maintenance timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _let_go(self) -> None:
        """Close all files without flushing or saving, and release the directory's lock."""
        for log in (*self._logs.values(), *self.read_only.values()):
            log.close(clean=False)
        self._logs.clear()
        self.read_only.clear()
        self.directory.close()
        self._opened = False
