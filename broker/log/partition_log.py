"""Append to one partition's log and read from it.

This module carries out the steps of an append (check, stamp, write, record in memory), and creates the errors that
readers get. The parts of a log keep its state:

* `offsets` (`log_offsets.py`): how far the log reaches, and how far readers may see;
* `files` (`log_files.py`): what is on disk, who waits for it, and the failure that takes the log offline;
* `_writer` (`segment_writer.py`): the active segment, and when the next one begins;
* `retention` (`retention.py`): which segments are deleted;
* `saved_state` (`saved_state.py`): the part of the log that the next start need not scan;
* `reader` (`log_reader.py`): where batches are found;
* `producers` (`producer_state_manager.py`), `snapshots` (`snapshot_writer.py`) and `leader_epochs`.

Other modules load a log (`log_loader.py`) and compact it (`cleaner.py`); they use these parts directly. All methods are
plain functions on the event loop's thread; only `FlushTask.run` and jobs that are given to threads run elsewhere.

Invariants, at every moment:

* An appended batch is in the file, in the indexes and in the producer state. A batch whose append raised an error is in
  none of them.
* Each offset is assigned to one record only. The offsets of a failed append are used by the next append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import structlog

from ...protocol.batch_header import (
    CONTROL,
    LENGTH_END,
    BatchHeader,
    clear_attributes,
    read_batch_header,
    set_max_timestamp,
    stamp,
)
from ...protocol.control_records import ControlRecord, read_control_record
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import decode_batch
from ..scheduling.steps import Steps, run_at_once
from ..system.descriptors import OUT_OF_DESCRIPTORS
from ..system.ports import Buffer, Clock, FileSystem, RandomIds, Threads
from .at_hand import NotAtHand
from .batch_inspection import Content, Inspection, content_at_a_glance
from .disk_space import DiskSpace
from .flusher import LogFlusher
from .indexes import CorruptIndex
from .leader_epochs import LeaderEpochs
from .log_config import LogConfig
from .log_files import LogFiles
from .log_offsets import Listener, LogOffsets
from .log_reader import LogReader
from .log_validator import CLIENT_ATTRIBUTES, check_client_batch, client_header, read_and_check
from .producer_state_manager import ProducerStateManager
from .results import (
    CLIENT,
    READ_COMMITTED,
    AppendOrigin,
    AppendResult,
    CorruptLog,
    IsolationLevel,
    LogRead,
    append_result,
    log_read,
    no_descriptor_error,
    storage_error,
)
from .retention import Retention
from .saved_state import SavedState
from .segment_writer import SegmentWriter
from .segments import LogSegments
from .shared_directory import SharedDirectory
from .snapshot_writer import SnapshotWriter

if TYPE_CHECKING:
    import asyncio

logger = structlog.get_logger(__name__)

_SIDE_READS: Final = 5
"""After this number of loads in a thread, plus two for each segment, a read continues without threads.

A limit is needed because the log may change during each load, so that the read needs other data.
"""

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5


class PartitionLog:
    """The log of one partition. `load_log` creates it with the state that it has found on disk.

    `saved_bytes`: the number of bytes of the active segment that the saved state covers. `on_disk_failure` is called
    with the error after a failed write or sync has taken the log offline. `on_start_offset(then)` puts the log start
    offset on disk and calls `then` afterwards. `flusher`, `root`, `threads`: see `LogFiles`.
    """

    __slots__ = (
        "_disk_space",
        "_owner_epoch",
        "_refusing_reads",
        "_writer",
        "clock",
        "config",
        "files",
        "leader_epochs",
        "name",
        "offsets",
        "partition",
        "producers",
        "reader",
        "retention",
        "saved_state",
        "segments",
        "snapshots",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: str,
        *,
        fs: FileSystem,
        clock: Clock,
        config: LogConfig,
        segments: LogSegments,
        producers: ProducerStateManager,
        leader_epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        saved_bytes: int,
        flusher: LogFlusher | None = None,
        root: SharedDirectory | None = None,
        threads: Threads | None = None,
        ids: RandomIds | None = None,
        disk_space: DiskSpace | None = None,
        on_disk_failure: Callable[[OSError], None] | None = None,
        on_start_offset: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.name = name = f"{topic}-{partition}"
        self.clock = clock
        self.config = config
        self.segments = segments
        self.producers = producers
        self.leader_epochs = leader_epochs
        self.offsets = LogOffsets(log_start_offset, log_end_offset, producers)
        self.files = LogFiles(
            name,
            directory,
            fs=fs,
            segments=segments,
            offsets=self.offsets,
            durability=config.durability,
            flusher=flusher,
            root=root,
            threads=threads,
            on_failure=on_disk_failure,
        )
        self.reader = LogReader(segments, threads, lambda: ProducerStateManager(fs, directory, name))
        self.snapshots = SnapshotWriter(self.files, producers, threads)
        self.saved_state = SavedState(
            segments=segments,
            producers=producers,
            snapshots=self.snapshots,
            leader_epochs=leader_epochs,
            saved_bytes=saved_bytes,
        )
        self._writer = SegmentWriter(
            segments=segments,
            offsets=self.offsets,
            files=self.files,
            snapshots=self.snapshots,
            saved_state=self.saved_state,
            ids=ids,
        )
        self.retention = Retention(
            segments=segments,
            offsets=self.offsets,
            files=self.files,
            producers=producers,
            snapshots=self.snapshots,
            reader=self.reader,
            roll=self.roll,
            on_start_offset=on_start_offset,
        )
        self._disk_space = disk_space
        self._owner_epoch = -1
        self._refusing_reads = False

    def take_over(self, leader_epoch: int) -> None:
        """Make `leader_epoch` the current one, and refuse appends of older leader epochs from now on.

        The epoch begins at the log end offset. If it gets no batch, it is forgotten at the next start.

        Raises KafkaError FENCED_LEADER_EPOCH if a newer leader epoch has taken over already.
        """
        if leader_epoch < self._owner_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.name}: leader epoch {leader_epoch} is outdated: the current one is {self._owner_epoch}",
            )
        self._owner_epoch = leader_epoch
        self.leader_epochs.assign(leader_epoch, self.offsets.log_end_offset)

    def update_config(self, config: LogConfig) -> None:
        """Replace the log's settings. The new ones apply from the next operation on."""
        self.config = config
        self.files.set_durability(config.durability)

    # --- offsets and failure -----------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers may ask for."""
        return self.offsets.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which read_committed readers see records: no transaction is open below it."""
        return self.offsets.last_stable_offset

    @property
    def high_watermark(self) -> int:
        """The offset up to which readers see records."""
        return self.offsets.high_watermark

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.offsets.log_end_offset

    @property
    def size(self) -> int:
        """The size of all segments without their indexes, in bytes."""
        return self.segments.size

    @property
    def failure(self) -> KafkaError | None:
        """The error that took the log offline, or None if the log works."""
        return self.files.failure

    def fail(self, failure: KafkaError) -> None:
        """Take the log offline: waiting and later writers get `failure`, and nothing is appended any more."""
        self.files.fail(failure)

    def add_listener(self, listener: Listener) -> None:
        """Call `listener(log)` after each move of the high watermark or last stable offset, and when the log fails.

        The listener must not append.
        """
        self.offsets.add_listener(listener, self)

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling `listener`, if it was added."""
        self.offsets.remove_listener(listener)

    # --- durability --------------------------------------------------------------------------------------------------

    def flushed(self, end_offset: int) -> asyncio.Future[None] | None:
        """Return None if everything below `end_offset` is as durable as `durability` demands, else a future to await.

        All waiters of the same flush share the future, so each must shield it. If the flush fails, the future fails
        with KafkaError KAFKA_STORAGE_ERROR. In that case, the appended batches may or may not survive.
        """
        return self.files.flushed(end_offset)

    def synced(self, end_offset: int) -> asyncio.Future[None] | None:
        """Return None if everything below `end_offset` is on disk, else a future to await (see `LogFiles.synced`)."""
        return self.files.synced(end_offset)

    def flush(self) -> None:
        """Flush the log in the calling thread; raise KAFKA_STORAGE_ERROR if that fails.

        The flusher must not be flushing this log at the same time.
        """
        self.files.flush()

    # --- append ------------------------------------------------------------------------------------------------------

    def inspection_of(self, batch: Buffer) -> Inspection:
        """Return an inspection of the records in a client's batch, for `append`. Raises KafkaError as `append` does."""
        if self.files.failure is not None:
            raise self.files.failure.anew()
        header = client_header(batch, self.config, self.name)
        return Inspection(batch, header, self.config.record_limits, self.name)

    def append(
        self,
        batch: Buffer,
        *,
        inspection: Inspection | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        leader_epoch: int = 0,
        transaction_version: int = 0,
        essential: bool = False,
    ) -> AppendResult:
        """Check a batch, assign its offsets and write it, or raise KafkaError. A writable buffer is changed in place.

        `inspection`: the finished inspection of the client's batch; without it the batch is inspected here without
        pauses. `essential`: whether a coordinator's batch, like a marker, may have any size and may use the last part
        of the disk reserve. `transaction_version` 2 requires sequence 0 in the first batch of an unknown producer, and
        a marker with a newer epoch than the open transaction (KIP-890).

        Raises KafkaError CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        UNSUPPORTED_COMPRESSION_TYPE, NOT_LEADER_OR_FOLLOWER, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
        INVALID_TXN_STATE, TRANSACTION_ABORTABLE, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        files, offsets = self.files, self.offsets
        if files.failure is not None:
            raise files.failure.anew()
        if leader_epoch < self._owner_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.name}: leader epoch {leader_epoch} is outdated: the current one is {self._owner_epoch};"
                " refresh the metadata to find the leader",
            )
        config = self.config
        content: Content | None = None
        if inspection is not None:
            header, content = inspection.header, inspection.content
        elif origin is CLIENT:
            header = client_header(batch, config, self.name)
            content = content_at_a_glance(batch, header, config.record_limits)
            if content is None:
                inspection = Inspection(batch, header, config.record_limits, self.name)
                inspection.inspect_whole()
                content = inspection.content
        else:
            header = read_and_check(batch, origin, config, self.name, essential=essential)
        size = header[1] + LENGTH_END
        if size != len(batch):
            raise AssertionError(f"{self.name}: {len(batch) - size} bytes follow the coordinator's batch")
        now_ms = self.clock.now_ms()
        is_control = header[5] & CONTROL
        marker: ControlRecord | None = None
        if content is not None:
            check_client_batch(header, content, config, now_ms, self.name)
            if header[9] >= 0 and (duplicate := self.producers.find_duplicate(header)) is not None:
                stamped = duplicate.timestamp if config.log_append_time else -1
                start = offsets.log_start_offset
                return AppendResult(duplicate.first_offset, duplicate.last_offset, stamped, start, True)
        elif is_control:
            marker = self._marker(batch, header)
        if header[9] >= 0:
            self.producers.check(header, marker, origin, transaction_version)
        base_offset = offsets.log_end_offset
        if isinstance(batch, bytes) or (isinstance(batch, memoryview) and batch.readonly):
            batch = bytearray(batch)
        if content is not None and (header[5] & ~CLIENT_ATTRIBUTES or header[8] != content[1]):
            header = _corrected(batch, header, content[1])
        log_append_time = -1
        if config.log_append_time and not is_control:
            log_append_time = now_ms
            stamp(batch, 0, base_offset, leader_epoch, now_ms)
            header = read_batch_header(batch)
        else:
            stamp(batch, 0, base_offset, leader_epoch)
        last_offset = base_offset + header[6]
        if self._disk_space is not None:
            if config.internal:
                if not (essential or is_control):
                    self._disk_space.require_internally(size)
            elif content is not None:
                self._disk_space.require(size)
        try:
            self._writer.write(batch, size, last_offset, header[8], now_ms, config)
            self._take_up(header, marker, base_offset, leader_epoch)
            files.appended(last_offset + 1)
        except KafkaError:
            raise
        except Exception as error:
            raise self._append_broke(error) from error
        return append_result((base_offset, last_offset, log_append_time, offsets.log_start_offset, False))

    def check_room(self, size: int) -> None:
        """Raise KAFKA_STORAGE_ERROR if there is too little space for a client's batch of `size` bytes."""
        if self._disk_space is not None:
            self._disk_space.check(size)

    def keep_room(self, size: int) -> Callable[[], None]:
        """Keep `size` bytes of the disk free for later essential batches, until the returned function is called.

        Raise KAFKA_STORAGE_ERROR if they would need the part of the reserve that is kept for transaction decisions.
        """
        return (lambda: None) if self._disk_space is None else self._disk_space.keep(size)

    def _marker(self, batch: Buffer, header: BatchHeader) -> ControlRecord | None:
        """Return the record of a control batch, or None if compaction has emptied the batch."""
        records = decode_batch(batch, 0, header)
        return read_control_record(records[0]) if records else None

    def _append_broke(self, error: Exception) -> KafkaError:
        """Take the log offline after an unexpected error, because file and memory may differ; return the error."""
        logger.error("append failed unexpectedly", partition=self.name, exc_info=error)
        return self.files.disk_failed(OSError(f"unexpected {error!r}"))

    def _take_up(self, header: BatchHeader, marker: ControlRecord | None, base_offset: int, leader_epoch: int) -> None:
        """Record a written batch in the producer state, the transaction index and the leader epochs."""
        if header[9] < 0:
            self.producers.end_offset = base_offset + header[6] + 1
        else:
            aborted = self.producers.update(header, marker, base_offset, self.clock.monotonic())
            if aborted is not None:
                self.segments.active.aborted.append(aborted)
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, base_offset)

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        *,
        min_one: bool = True,
    ) -> LogRead | Steps[LogRead]:
        """Return whole batches from `offset` on that readers of this isolation level may see, up to `max_bytes`.

        With `min_one`, a first batch that is larger than `max_bytes` is returned alone. Data that is not immediately
        available is read in steps. Raises KafkaError OFFSET_OUT_OF_RANGE or KAFKA_STORAGE_ERROR, from this call or from
        the steps.
        """
        try:
            return self._read_at_hand(offset, max_bytes, isolation, min_one)
        except NotAtHand as missing:
            # The traceback would keep the frames of the request, and so its response, until a garbage collection.
            return self._read_in_steps(missing.with_traceback(None), offset, max_bytes, isolation, min_one)

    def _read_in_steps(
        self, missing: NotAtHand, offset: int, max_bytes: int, isolation: IsolationLevel, min_one: bool
    ) -> Steps[LogRead]:
        """Load the missing data in threads, then read; after too many attempts, read without threads."""
        side_reads = self.reader.side_reads
        for _ in range(_SIDE_READS + 2 * len(self.segments)):
            try:
                if not (yield from side_reads.get(missing)):
                    break
            except CorruptLog as error:
                self.files.readable_end(offset)
                raise self._read_failed(error) from error
            try:
                return self._read_at_hand(offset, max_bytes, isolation, min_one)
            except NotAtHand as more:
                missing = more.with_traceback(None)
            finally:
                side_reads.drop_piece()
        with side_reads.at_once():
            return self._read_at_hand(offset, max_bytes, isolation, min_one)

    def _read_at_hand(self, offset: int, max_bytes: int, isolation: IsolationLevel, min_one: bool) -> LogRead:
        """Read with the current state of the log; raise NotAtHand if data must be loaded in a thread first."""
        committed = isolation is READ_COMMITTED
        files, offsets = self.files, self.offsets
        limit = offsets.last_stable_offset if committed else offsets.high_watermark
        if files.failure is not None:
            limit = files.readable_end(limit)
            if limit <= offset < offsets.high_watermark:
                # After an empty response, the reader would repeat its request forever: the records here, or the marker
                # that ends an open transaction, do not become visible before a restart.
                raise files.failure.anew()
        start_offset, end_offset = offsets.log_start_offset, offsets.log_end_offset
        if not start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset} is outside of the log, which has offsets {start_offset} to {end_offset}",
            )
        try:
            records, next_offset = self.reader.read(offset, limit, end_offset, max_bytes, min_one, committed)
            aborted = None
            if committed:
                aborted = self.reader.aborted.between(offset, next_offset) if records else []
        except (CorruptLog, CorruptIndex, OSError) as error:
            raise self._read_failed(error) from error
        return log_read(
            (records, offsets.high_watermark, offsets.last_stable_offset, start_offset, aborted, next_offset)
        )

    def readable_bytes(
        self, offset: int, wanted: int, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> int:
        """Return about how many bytes `read` could return from `offset` on, at most `wanted`.

        Never waits: if counting would need a slow read, return `wanted`. Raises KAFKA_STORAGE_ERROR.
        """
        committed = isolation is READ_COMMITTED
        files, offsets = self.files, self.offsets
        limit = offsets.last_stable_offset if committed else offsets.high_watermark
        if files.failure is not None:
            limit = files.readable_end(limit)
            if limit <= offset != offsets.high_watermark:
                raise files.failure.anew()
        try:
            return self.reader.bytes_between(offset, limit, offsets.log_end_offset, wanted)
        except (CorruptLog, CorruptIndex, OSError) as error:
            raise self._read_failed(error) from error

    def _read_failed(self, error: CorruptLog | CorruptIndex | OSError) -> KafkaError:
        """Return the error for a reader. If a file is damaged or missing, also take the log offline.

        From then on, nothing is appended after the damage, but undamaged records can still be read. Of all other read
        errors, only the first one is logged.
        """
        if isinstance(error, OSError) and error.errno in OUT_OF_DESCRIPTORS:
            return no_descriptor_error(self.name)
        failure = error if isinstance(error, KafkaError) else storage_error(f"{self.name} cannot be read: {error}")
        is_damage = not isinstance(error, OSError) or isinstance(error, FileNotFoundError)
        if is_damage and self.failure is None:
            self.fail(failure)
            logger.error("partition taken offline", partition=self.name, reason=failure.message)
        elif not self._refusing_reads:
            self._refusing_reads = True
            logger.error("read failed", partition=self.name, error=str(error), remedy="check the disk")
        return failure

    def batches(self, offset: int | None = None, end: int | None = None) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield (header, whole batch) of each batch, from the one that holds `offset` up to offset `end` (exclusive).

        By default `offset` is the log start offset and `end` the log end offset. Batches above the high watermark are
        included, because coordinators replay the whole log. Raises KAFKA_STORAGE_ERROR.
        """
        if self.failure is not None:
            raise self.failure.anew()
        try:
            offsets = self.offsets
            yield from self.reader.batches(
                offsets.log_start_offset if offset is None else offset, offsets.log_end_offset if end is None else end
            )
        except (CorruptLog, CorruptIndex, OSError) as error:
            raise self._read_failed(error) from error

    def windows(self) -> Iterator[bytes]:
        """Yield all batches from the log start on, tens of kilobytes at a time, with verified checksums.

        Batches above the high watermark are included. The log may change between two windows, for example by
        compaction. Raises KAFKA_STORAGE_ERROR, or the error with which the log was closed meanwhile.
        """
        if self.failure is not None:
            raise self.failure.anew()
        try:
            for window in self.reader.windows(self.offsets.log_start_offset):
                yield window
                self.files.readable_end(self.offsets.log_end_offset)
        except (CorruptLog, CorruptIndex, OSError) as error:
            raise self._read_failed(error) from error

    def offset_for_timestamp(
        self, timestamp: int, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> tuple[int, int, int]:
        """Do the search of `find_offset_for_timestamp` without pauses, and return its result."""
        return run_at_once(self.find_offset_for_timestamp(timestamp, isolation))

    def find_offset_for_timestamp(
        self, timestamp: int, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> Steps[tuple[int, int, int]]:
        """Find the first visible record not older than `timestamp` (ms); return its (timestamp, offset, leader epoch).

        All three are -1 if no record matches. Special timestamps (KIP-79, KIP-734, KIP-405): -1 latest, -2 earliest, -3
        the record with the largest timestamp, -4 earliest local, -5 latest tiered. Of these, only -3 returns a
        timestamp. Raises KafkaError KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE, INVALID_REQUEST.
        """
        committed = isolation is READ_COMMITTED
        offsets = self.offsets
        limit = self.files.readable_end(offsets.last_stable_offset if committed else offsets.high_watermark)
        if timestamp == LATEST:
            return -1, limit, self.leader_epoch
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return -1, offsets.log_start_offset, self.leader_epochs.epoch_of(offsets.log_start_offset)
        if timestamp == LATEST_TIERED:
            return -1, -1, -1
        if timestamp == MAX_TIMESTAMP:
            search = self.reader.timestamps.newest(offsets.log_start_offset, limit)
        elif timestamp < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{self.name}: timestamp {timestamp} is negative and has no special meaning",
            )
        else:
            search = self.reader.timestamps.first_not_older(timestamp, offsets.log_start_offset, limit)
        try:
            while True:
                try:
                    units = next(search)
                except StopIteration as end:
                    return end.value or (-1, -1, -1)
                except (CorruptLog, CorruptIndex, OSError) as error:
                    raise self._read_failed(error) from error
                yield units
                self.files.readable_end(limit)
        finally:
            search.close()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest leader epoch not above `epoch` and its end offset (KIP-101; `LeaderEpochs.end_offset`)."""
        return self.leader_epochs.end_offset(epoch, self.offsets.log_end_offset)

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch; -1 if the log has no batch and `take_over` has not been called."""
        return self.leader_epochs.latest

    # --- segments ----------------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Start a new active segment, unless the current one is empty; raise KAFKA_STORAGE_ERROR if that fails."""
        self._writer.roll(self.clock.now_ms())

    @property
    def has_grown(self) -> bool:
        """Whether a start after a crash would have much to scan, so that `SavedState.save_grown` is due."""
        return self.files.failure is None and self.saved_state.has_grown(self.config)

    def retain(self, now_ms: int) -> int:
        """Do the work of `retain_in_steps` without pauses, and return its result."""
        return run_at_once(self.retain_in_steps(now_ms))

    def retain_in_steps(self, now_ms: int) -> Steps[int]:
        """Expire idle producers, apply the retention settings, and return the number of segments deleted.

        `now_ms` is the time of the wall clock. The idle time of producers is measured with the monotonic clock, because
        a jump of the wall clock must not make a repeated batch look like a new one. Raises KAFKA_STORAGE_ERROR.
        """
        yield from self.producers.expire(self.clock.monotonic(), self.config.producer_id_expiration_ms)
        return self.retention.apply(self.config, now_ms)

    def delete_records_before(self, offset: int) -> int:
        """Advance the log start offset to `offset` (-1: the high watermark); return the resulting log start offset.

        Raises KafkaError OFFSET_OUT_OF_RANGE and KAFKA_STORAGE_ERROR, as `Retention.delete_records_before` does.
        """
        return self.retention.delete_records_before(offset)

    # --- the end -----------------------------------------------------------------------------------------------------

    def prepare_close(self) -> None:
        """Save the state if the next start would otherwise have much to scan; raise KAFKA_STORAGE_ERROR if that fails.

        The files are not synced. If a loss of power damages them, their checksums show the damage, and the files are
        rebuilt.
        """
        if self.files.closed or self.failure is not None:
            return
        self._writer.cut_leftovers()
        if not self.files.untouched and self.saved_state.is_worth_saving(self.config):
            try:
                self.saved_state.save()
            except OSError as error:
                raise storage_error(f"{self.name}: the indexes cannot be written: {error}") from error

    def close(self, *, clean: bool = True) -> None:
        """Close the files. With `clean`, first save the state and flush everything, so that the next start is fast.

        Waiting writers get NOT_LEADER_OR_FOLLOWER and may try again. If the save or the flush fails, the files are
        closed anyway, and KAFKA_STORAGE_ERROR is raised.
        """
        files = self.files
        if files.closed:
            return
        try:
            if clean and files.failure is None:
                self.prepare_close()
                if not files.untouched:
                    files.flush()
        finally:
            reason = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is being closed; try again")
            run_at_once(self._close_in_steps(reason))

    def discard(self) -> None:
        """Close the log of a deleted partition and its files, without pauses (`discard_in_steps`)."""
        run_at_once(self.discard_in_steps())

    def discard_in_steps(self) -> Steps[None]:
        """Close the log of a deleted partition immediately, then its files in steps. The caller removes the files.

        Waiting writers get UNKNOWN_TOPIC_OR_PARTITION.
        """
        if not self.files.closed:
            yield from self._close_in_steps(
                KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} was deleted")
            )

    def _close_in_steps(self, reason: KafkaError) -> Steps[None]:
        """Close the log, so that readers and writers get `reason` from now on; then close its files, in steps."""
        self.reader.forget()
        yield from self.files.close_in_steps(reason)
        yield from self.retention.close_in_steps()


def _corrected(batch: bytearray | memoryview, header: BatchHeader, max_timestamp: int) -> BatchHeader:
    """Correct the header of a client's batch and return it.

    Attribute bits that clients may not set are cleared, and the largest timestamp is set to that of the records.
    """
    max_timestamp = max(max_timestamp, -1)
    if header.attributes & ~CLIENT_ATTRIBUTES:
        clear_attributes(batch, 0, CLIENT_ATTRIBUTES)
    if header.max_timestamp != max_timestamp:
        set_max_timestamp(batch, 0, max_timestamp)
    return read_batch_header(batch)
