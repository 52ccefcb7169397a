"""All partition logs of a data directory: opening, creating, deleting, and what has to be done time and again.

Owns the directory's lock and checkpoints, the flush thread, the maintenance timers, and the state "failed": after a
sync or a write failed, nothing in the directory is appended or acknowledged any more, until a restart has looked at the
disk.

Order at a clean stop, which recovery relies on: every log flushed and closed with its indexes and snapshot on disk →
the checkpoints → the clean shutdown marker, and only if all partitions were healthy.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Final

import structlog

from ...protocol.errors import KafkaError
from ..ports import Clock, FileSystem, RandomIds
from .cleaner import Cleaner, CleaningPlan
from .data_directory import DataDirectory, DataDirectoryError
from .disk_space import DiskSpace
from .file_names import (
    CLEANER_OFFSETS,
    DELETED_DIRECTORY,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    parse_partition_directory,
    partition_directory,
)
from .flusher import LogFlusher
from .log_config import LogConfig
from .log_loader import LoadPoint, load_log
from .partition_log import PartitionLog
from .results import CorruptLog, storage_error

logger = structlog.get_logger(__name__)

DEFAULT_RESERVE_BYTES: Final = 64 << 20

UNTIL_CONFIGURED: Final = LogConfig(retention_ms=-1, retention_bytes=-1)
"""For logs whose settings are not known yet: nothing is deleted."""

TopicPartition = tuple[str, int]


class LogManager:
    """See the module. Everything on the event loop's thread."""

    def __init__(
        self,
        directory: str,
        *,
        fs: FileSystem,
        clock: Clock,
        ids: RandomIds,
        config: LogConfig = UNTIL_CONFIGURED,
        node_id: int = 1,
        reserve_bytes: int = DEFAULT_RESERVE_BYTES,
        checkpoint_interval_ms: int = 5_000,
        retention_check_interval_ms: int = 300_000,
        cleaner_backoff_ms: int = 15_000,
        cleaner_enable: bool = True,
    ) -> None:
        self.directory = DataDirectory(directory, fs, ids, node_id)
        self.offline: dict[TopicPartition, KafkaError] = {}
        self.failed: KafkaError | None = None
        self.clean_start = False
        self._fs = fs
        self._clock = clock
        self._ids = ids
        self._config = config
        self._disk_space = DiskSpace(fs, directory, reserve_bytes)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._cleaner_offsets: dict[TopicPartition, int] = {}
        # These two, and the cleaner's, say what their files say: of partitions that are deleted by now, too.
        self._recovery_points: dict[TopicPartition, int] = {}
        self._start_offsets: dict[TopicPartition, int] = {}
        # What the file says while a newer state waits to be written: a crash may come first.
        self._written_recovery_points: dict[TopicPartition, int] = {}
        self._checkpoint_lock = threading.Lock()
        self._callbacks: list[Callable[[KafkaError], None]] = []
        self._flusher: LogFlusher | None = None
        self._intervals = (checkpoint_interval_ms, retention_check_interval_ms, cleaner_backoff_ms)
        self._cleaner_enable = cleaner_enable
        self._cleaner = Cleaner(fs)
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._cleaning: asyncio.Task[None] | None = None
        self._opened = False

    @property
    def path(self) -> str:
        return self.directory.path

    @property
    def cluster_id(self) -> str:
        """22 characters, as Kafka's; made with the directory."""
        return self.directory.cluster_id

    @property
    def directory_id(self) -> str:
        return self.directory.directory_id

    # --- open --------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directory and load every partition in it.

        A damaged partition goes to `offline`; DataDirectoryError is raised when the whole directory can't be used.
        """
        self.directory.open()
        try:
            self._load_all()
        except OSError as error:
            self._let_go()
            raise DataDirectoryError(f"{self.path} can't be read or written: {error}. See to the disk") from error
        except BaseException:
            self._let_go()
            raise
        self._opened = True

    def _load_all(self) -> None:
        started = time.perf_counter()
        self.clean_start = self.directory.take_clean_shutdown()
        self._recovery_points = self.directory.read_offsets(RECOVERY_POINTS)
        self._written_recovery_points = self._recovery_points
        self._start_offsets = self.directory.read_offsets(LOG_START_OFFSETS)
        self._cleaner_offsets = self.directory.read_offsets(CLEANER_OFFSETS)
        for name in sorted(self._fs.list(self.path)):
            path = f"{self.path}/{name}"
            if not self._fs.is_directory(path):
                continue
            if name.endswith(DELETED_DIRECTORY):
                self._remove_directory(path)
                continue
            found = parse_partition_directory(name)
            if found is not None:
                self._load(found, path)
        if not self.clean_start and self._logs:
            # A process that was killed may have left directories in the page cache alone, and nobody but the one who
            # makes a directory syncs its name: a log that is shown, and appended to, must not vanish as a whole.
            self._fs.sync_directory(self.path)
        if self._logs or self.offline:
            logger.info(
                "logs loaded",
                directory=self.path,
                partitions=len(self._logs),
                offline=len(self.offline),
                clean=self.clean_start,
                seconds=round(time.perf_counter() - started, 3),
            )

    def _load(self, key: TopicPartition, path: str) -> None:
        point = LoadPoint(self.clean_start, self._recovery_points.get(key, 0), self._start_offsets.get(key, 0))
        try:
            self._logs[key] = self._open_log(key, path, self._config, point)
        except KafkaError as error:
            logger.error("partition offline", topic=key[0], partition=key[1], reason=error.message)
            self.offline[key] = error

    def _open_log(self, key: TopicPartition, path: str, config: LogConfig, point: LoadPoint) -> PartitionLog:
        return load_log(
            *key,
            path,
            fs=self._fs,
            clock=self._clock,
            config=config,
            point=point,
            flusher=self._flusher,
            disk_space=self._disk_space,
            on_disk_failure=self._on_disk_failure,
            on_start_offset=self._write_start_offsets,
        )

    async def start(self) -> None:
        """Open the directory if that was not done, start the flush thread and the timers. Raises DataDirectoryError."""
        if not self._opened:
            self.open()
        self._flusher = LogFlusher(self._fs, self._on_disk_failure)
        for log in self._logs.values():
            log.flusher = self._flusher
        checkpoint, retention, cleaner = self._intervals
        self._repeat(checkpoint, self._checkpoint)
        self._repeat(1_000, self._disk_space.refresh)
        self._repeat(retention, self._retain)
        if self._cleaner_enable:
            self._repeat(cleaner, self._clean)

    def _repeat(self, interval_ms: int, action: Callable[[], None]) -> None:
        def run() -> None:
            self._timers[run] = loop.call_later(interval_ms / 1000, run)
            if self.failed is None:
                action()

        loop = asyncio.get_running_loop()
        self._timers[run] = loop.call_later(interval_ms / 1000, run)

    # --- logs --------------------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log of a partition, None if there is none; raises KAFKA_STORAGE_ERROR while it is offline."""
        log = self._logs.get((topic, partition))
        if log is None and (error := self.offline.get((topic, partition))) is not None:
            raise error
        return log

    def create(self, topic: str, partition: int, config: LogConfig) -> PartitionLog:
        """Make the directory of a new partition; raises KAFKA_STORAGE_ERROR. It is on disk with its first record."""
        key = (topic, partition)
        assert key not in self._logs, f"{topic}-{partition} exists"
        if self.failed is not None:
            raise self.failed
        if key in self.offline:
            raise self.offline[key]
        path = f"{self.path}/{partition_directory(topic, partition)}"
        try:
            self._forget_former(key)
            self._fs.make_directory(path)
            log = self._open_log(key, path, config, LoadPoint(clean=True, fresh=True))
        except OSError as error:
            raise storage_error(f"{path} can't be made: {error}") from error
        self._logs[key] = log
        log.sync_later()
        return log

    def _forget_former(self, key: TopicPartition) -> None:
        """Take a deleted partition of that name out of the checkpoints, on disk when this returns; raises OSError.

        Its log start offset would delete what the new partition holds, its recovery point declare that damaged.
        """
        if key in self._start_offsets:
            self._write_start_offsets()
        if key in self._recovery_points or key in self._written_recovery_points:
            self._recovery_points = {other: at for other, at in self._recovery_points.items() if other != key}
            self._write_recovery_points()
        if key in self._cleaner_offsets:
            self._cleaner_offsets = {other: at for other, at in self._cleaner_offsets.items() if other != key}
            self._write_cleaner_offsets()

    def delete(self, topic: str, partition: int) -> None:
        """Delete a partition, offline or not; it is gone, on disk, when this returns. The files go in the background.

        Raises KAFKA_STORAGE_ERROR when the directory can't be renamed; then nothing has changed.
        """
        key = (topic, partition)
        path = f"{self.path}/{partition_directory(topic, partition)}"
        # Names may have 255 bytes; the id makes it unique whatever is cut off.
        doomed = f"{self.path}/{partition_directory(*key)[:200]}.{self._ids.uuid().hex()}{DELETED_DIRECTORY}"
        log = self._logs.get(key)
        with nullcontext() if log is None else log.files_lock:
            try:
                if self._fs.exists(path):
                    self._fs.rename(path, doomed)
                    self._fs.sync_directory(self.path)
            except OSError as error:
                raise storage_error(f"{path} can't be deleted: {error}") from error
            if log is not None:
                del self._logs[key]
                log.discard()
        self.offline.pop(key, None)
        if self._flusher is None:
            self._remove_directory(doomed)
        else:
            self._flusher.submit(lambda: self._remove_directory(doomed))

    def _remove_directory(self, path: str) -> None:
        if self._fs.exists(path):
            for name in self._fs.list(path):
                self._fs.unlink(f"{path}/{name}")
            self._fs.remove_directory(path)

    def logs(self) -> Iterator[PartitionLog]:
        """Every log that is not offline."""
        return iter(list(self._logs.values()))

    # --- failure -----------------------------------------------------------------------------------------------------

    def on_failure(self, callback: Callable[[KafkaError], None]) -> None:
        """Call `callback` once if the directory fails."""
        self._callbacks.append(callback)

    def _on_disk_failure(self, error: OSError) -> None:
        if self.failed is not None:
            return
        self.failed = storage_error(
            f"the disk of {self.path} failed: {error}. Nothing more is written there; see to the disk, then restart"
        )
        logger.error("log directory failed", directory=self.path, error=str(error))
        for log in self.logs():
            log.fail(self.failed)
        for callback in self._callbacks:
            callback(self.failed)

    # --- maintenance -------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        """Record how far each log is on disk, so that recovery need not look further back."""
        points = {key: log.flushed_offset for key, log in self._logs.items()}
        points |= {key: self._recovery_points[key] for key in self.offline if key in self._recovery_points}
        if points != self._recovery_points and self._flusher is not None:
            self._recovery_points = points
            self._flusher.submit(self._write_recovery_points)

    # In the flush thread or on the loop; each writes what holds when its turn comes, so that the last one is right.

    def _write_recovery_points(self) -> None:
        with self._checkpoint_lock:
            points = self._recovery_points
            self.directory.write_offsets(RECOVERY_POINTS, [(*key, offset) for key, offset in points.items()])
            self._written_recovery_points = points

    def _write_cleaner_offsets(self) -> None:
        with self._checkpoint_lock:
            points = self._cleaner_offsets
            self.directory.write_offsets(CLEANER_OFFSETS, [(*key, offset) for key, offset in points.items()])

    def _write_start_offsets(self) -> None:
        offsets = {key: log.log_start_offset for key, log in self._logs.items() if log.log_start_offset > 0}
        offsets |= {key: self._start_offsets[key] for key in self.offline if key in self._start_offsets}
        self.directory.write_offsets(LOG_START_OFFSETS, [(*key, offset) for key, offset in offsets.items()])
        self._start_offsets = offsets

    def _retain(self) -> None:
        now_ms = self._clock.now_ms()
        for log in self.logs():
            if log.failure is None:
                try:
                    log.retain(now_ms)
                except KafkaError as error:
                    logger.warning("retention failed", partition=log.name, reason=error.message)

    def _clean(self) -> None:
        if self._cleaning is None or self._cleaning.done():
            self._cleaning = asyncio.get_running_loop().create_task(self._clean_all(), name="log-cleaner")

    async def _clean_all(self) -> None:
        """Compact, one after the other, the logs that need it; reading and writing happen in a worker thread."""
        now_ms = self._clock.now_ms()
        for log in self.logs():
            if not log.config.compacted or log.failure is not None:
                continue
            first_dirty = self._cleaner_offsets.get((log.topic, log.partition), 0)
            plan = self._cleaner.plan(log, first_dirty, now_ms)
            if plan is None:
                continue
            try:
                await self._clean_one(log, plan, now_ms)
            except CorruptLog as error:
                logger.error("partition taken offline", partition=log.name, reason=error.message)
                log.fail(error)
            except (KafkaError, OSError) as error:
                logger.warning("compaction failed", partition=log.name, reason=str(error))

    async def _clean_one(self, log: PartitionLog, plan: CleaningPlan, now_ms: int) -> None:
        assert self._flusher is not None
        flush = log.synced(plan.as_of)
        if flush is not None:
            await asyncio.shield(flush)
        # Recovery must know that all of what is compacted was on disk: a hole in offsets is no torn tail then.
        self._checkpoint()
        await self._flusher.submit(lambda: None)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._cleaner.map_keys, plan)
        for group in plan.groups:
            if log.failure is not None:
                return
            cleaned = await loop.run_in_executor(None, self._cleaner.clean_group, plan, group)
            if not self._cleaner.replace(log, plan, group, cleaned):
                return
        if log.failure is not None:
            return  # deleted meanwhile: its name may be another's
        self._cleaner_offsets = {**self._cleaner_offsets, (log.topic, log.partition): plan.end_offset}
        await self._flusher.submit(self._write_cleaner_offsets)

    # --- stop --------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Put everything on disk and close; the next start need not recover. Does nothing when it was not opened."""
        if not self._opened:
            return
        self._cancel_timers()
        if self._cleaning is not None:
            await asyncio.gather(self._cleaning, return_exceptions=True)
        if self._flusher is not None:
            await self._flusher.stop()
        clean = self.failed is None and not self.offline
        for log in self.logs():
            log.flusher = None
            clean = clean and log.failure is None
            try:
                log.close()
            except KafkaError as error:
                clean = False
                logger.error("partition not closed cleanly", partition=log.name, reason=error.message)
        try:
            if clean:
                points = [(*key, log.flushed_offset) for key, log in self._logs.items()]
                self.directory.write_offsets(RECOVERY_POINTS, points)
                self.directory.write_clean_shutdown()
        except OSError as error:
            logger.error("clean shutdown not recorded", directory=self.path, error=str(error))
        self._let_go()

    def abandon(self) -> None:
        """Drop everything as a crash would (tests): nothing is flushed or written, the lock is free."""
        self._cancel_timers()
        if self._flusher is not None:
            self._flusher.abandon()
        for log in self.logs():
            log.flusher = None
            log.close(clean=False)
        self._let_go()

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _let_go(self) -> None:
        for log in self._logs.values():
            log.close(clean=False)
        self._logs.clear()
        self.directory.close()
        self._opened = False
