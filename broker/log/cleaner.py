"""Compact logs (KIP-58, KIP-534): keep the newest record of each key, and remove expired tombstones.

This module decides which records to keep, and replaces segments in a crash-safe way. It compacts only finished segments
below the last stable offset, so it never changes open transactions. Kept records keep their offsets, so a log can be
compacted while it is being read.

* Records of aborted transactions are removed at once.
* A tombstone gets a delete horizon (now + delete.retention.ms, in the batch header) at its first compaction, and is
  removed after this time, so that readers have time to see it. The same holds for a transaction marker whose
  transaction has no batches left.
* A batch with a producer's last sequence is kept, possibly without records, as long as the producer's state exists. The
  last batch of each new segment is kept, too, because it shows up to which offset the segment replaces the old ones.

A group of adjacent segments is replaced in four steps:

1. The new segment is written to `.cleaned` files, which are synced.
2. The files are renamed to `.swap`, the `.log` last. From then on, recovery after a crash uses the new segment.
3. The old segments are removed.
4. The `.swap` suffix is removed.

Groups are replaced in order, the oldest first. Each replacement is on disk before the next one begins, so a tombstone
is never removed before the value that it deletes.

A batch that cannot be read is kept unchanged, and logged. Such a batch is damaged, was accepted from a client by an
older version without a check of its records, is larger than today's limits for batches, or needs more memory than is
available. It may contain any key, so tombstones after it are kept, too.

`plan` and `replace` run on the event loop's thread. `map_keys`, `clean_group` and `publish` may run in any thread, and
`stop` interrupts `map_keys` and `clean_group` between two batches. Memory holds the keys, and one batch at a time in
its old and its new form.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import structlog

from ...protocol.batch_header import (
    COMPRESSION_MASK,
    DELETE_HORIZON,
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    assemble_batch,
    verify_crc,
)
from ...protocol.compression import Compression, compress, expand
from ...protocol.control_records import ControlType, read_control_record
from ...protocol.record_skim import SkimmedRecord, select, skim
from ...protocol.record_walk import DEFAULT_LIMITS, RecordLimits
from ...protocol.records import decode_batch
from ..scheduling.steps import Steps, run_at_once
from ..system.ports import FileSystem
from .batch_scan import BrokenBatch
from .disk_space import DiskSpace
from .episodes import Episodes
from .file_names import CLEANED, LOG, SWAP
from .flusher import sync_path
from .log_config import INT64_MAX
from .partition_log import PartitionLog
from .producer_state import ProducerStateEntry
from .results import AbortedTxn, CorruptLog
from .segment import MAX_RELATIVE_OFFSET, MAX_SEGMENT_SIZE, LogSegment

logger = structlog.get_logger(__name__)

MAX_KEY_BYTES: Final = 128 << 20
"""Approximate memory in bytes for the keys of one compaction; the next compaction handles further keys."""

_MOST_SEGMENTS: Final = 200
"""The maximum number of segments that one new segment replaces.

It is limited because the files of all these segments are renamed in one turn of the event loop.
"""

_KEY_OVERHEAD: Final = 120

_SPACE_CHECK_BYTES: Final = 1 << 20
"""How many bytes of a new segment are written before the free space of the disk is read again."""


@dataclass(frozen=True, slots=True)
class SegmentGroup:
    """Adjacent finished segments that are compacted into one segment; `end_offset` is exclusive."""

    segments: tuple[LogSegment, ...]
    end_offset: int


@dataclass(slots=True)
class CleaningPlan:
    """One compaction of one log.

    `producers` and `ended` are the producers' states and the aborted transactions, in lists that never change;
    `map_keys` sets `last_offsets`, `epochs` and `aborted` from them.

    `first_dirty`: the offset up to which the log was compacted before. `end_offset` (exclusive): the offset up to which
    this compaction goes. `as_of`: the log end offset when the plan read the state of the producers. All records below
    it must be on disk before a segment is replaced. Otherwise a crash could lose a producer's last batch, while
    compaction has already removed the producer's earlier batches. `internal`: whether the log belongs to an internal
    topic.
    """

    directory: str
    name: str
    now_ms: int
    delete_retention_ms: int
    index_interval_bytes: int
    segment_bytes: int
    first_dirty: int
    end_offset: int
    segments: list[tuple[LogSegment, int]]
    internal: bool
    as_of: int
    producers: list[ProducerStateEntry]
    ended: list[list[AbortedTxn]]
    limits: RecordLimits = DEFAULT_LIMITS
    last_offsets: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    aborted: dict[int, list[AbortedTxn]] = field(default_factory=dict)
    keys: dict[bytes, int] = field(default_factory=dict)
    groups: list[SegmentGroup] = field(default_factory=list)
    undecided: set[int] = field(default_factory=set)
    key_bytes: int = 0
    unreadable: int = 0

    @property
    def new_horizon_ms(self) -> int:
        """The time in ms after which a tombstone or marker that this compaction finds may be removed."""
        return min(self.now_ms + self.delete_retention_ms, INT64_MAX)

    def lost_segments(self, log: PartitionLog) -> bool:
        """Return whether retention or DeleteRecords has removed segments that this compaction has to read."""
        return self.segments[0][0].base_offset < log.segments.first.base_offset

    def look_up(self) -> None:
        """Build the tables that are keyed by producer id. This takes a long time if there are very many producers."""
        self.last_offsets = {entry.producer_id: entry.last_offset for entry in self.producers}
        self.epochs = {entry.producer_id: entry.producer_epoch for entry in self.producers}
        for entries in self.ended:
            for entry in entries:
                self.aborted.setdefault(entry.producer_id, []).append(entry)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to an aborted transaction."""
        return header.is_transactional and any(
            entry.first_offset <= header.base_offset <= entry.last_offset
            for entry in self.aborted.get(header.producer_id, ())
        )

    def holds_producer_state(self, header: BatchHeader) -> bool:
        """Whether the batch is the log's only evidence of the last sequence, or of the last epoch, of its producer.

        The last epoch matters only if the producer state lists no batch of the producer. In that case, the producer's
        control batches are the evidence.
        """
        last_offset = self.last_offsets.get(header.producer_id)
        if last_offset is None:
            return False
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == self.epochs[header.producer_id]


class CleaningStopped(Exception):
    """A compaction was interrupted because the broker is stopping. Groups that are already replaced stay replaced."""


class Cleaner:
    """Compacts one log at a time: `plan`, `map_keys`, then `clean_group`, `publish` and `replace` for each group."""

    def __init__(self, fs: FileSystem, max_key_bytes: int = MAX_KEY_BYTES, disk_space: DiskSpace | None = None) -> None:
        """Create a cleaner. With `disk_space`, its compactions leave a part of `log.reserve.bytes` free."""
        self._fs = fs
        self._disk_space = disk_space
        self._max_key_bytes = max_key_bytes
        self._stopping = threading.Event()
        self._episodes = Episodes()
        self._unfinished: list[tuple[PartitionLog, Callable[[], None]]] = []

    def plan(self, log: PartitionLog, first_dirty: int, now_ms: int, *, force: bool = False) -> CleaningPlan | None:
        """Do the work of `plan_in_steps` without pauses, and return its result."""
        return run_at_once(self.plan_in_steps(log, first_dirty, now_ms, force=force))

    def plan_in_steps(
        self, log: PartitionLog, first_dirty: int, now_ms: int, *, force: bool = False
    ) -> Steps[CleaningPlan | None]:
        """Return the plan of a compaction, or None if too little of the log is dirty (min.cleanable.dirty.ratio).

        `force` ignores this ratio. Also return None if the log has failed, or if a segment still has the `.swap`
        suffix, because its replacement is unfinished. May roll the active segment (max.compaction.lag.ms). Raises
        NotAtHand if an index must first be loaded in a thread. Raises KafkaError, CorruptLog and OSError.
        """
        if any(other is log for other, _ in self._unfinished):
            return None
        config = log.config
        active = log.segments.active
        overdue = config.max_compaction_lag_ms < now_ms
        if overdue and active.size and 0 <= active.first_timestamp < now_ms - config.max_compaction_lag_ms:
            log.roll()
        bound = min(log.high_watermark, log.last_stable_offset, log.files.flushed_offset)
        segments: list[tuple[LogSegment, int]] = []
        dirty = total = 0
        overdue = False
        for segment in log.segments.finished_below(bound):
            if config.min_compaction_lag_ms and segment.max_timestamp > now_ms - config.min_compaction_lag_ms:
                break
            end = log.segments.end_offset(segment, log.log_end_offset)
            segments.append((segment, end))
            total += segment.size
            if end > first_dirty:
                dirty += segment.size
                overdue = overdue or segment.max_timestamp < now_ms - config.max_compaction_lag_ms
            yield 2
        if not dirty or not (force or overdue or dirty >= config.min_cleanable_dirty_ratio * total):
            return None
        # The markers of all transactions with records below `bound` are in the segments that exist now.
        ended: list[list[AbortedTxn]] = []
        for segment in list(log.segments):
            if log.failure is not None:
                return None
            entries = log.reader.aborted.in_segment(segment)
            ended.append(list(entries) if segment is log.segments.active else entries)  # the others never grow
            yield 2
        return CleaningPlan(
            directory=log.files.directory,
            name=log.name,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            index_interval_bytes=config.index_interval_bytes,
            segment_bytes=config.segment_bytes,
            first_dirty=first_dirty,
            end_offset=segments[-1][1],
            segments=segments,
            internal=config.internal,
            as_of=log.log_end_offset,
            producers=log.producers.capture(),
            ended=ended,
            limits=config.record_limits,
        )

    def clean(self, log: PartitionLog, first_dirty: int, now_ms: int, *, force: bool = True) -> int:
        """Compact a log in this thread; return the offset up to which it is clean.

        Raises KafkaError, CleaningStopped and OSError.
        """
        plan = self.plan(log, first_dirty, now_ms, force=force)
        if plan is None:
            return first_dirty
        if plan.as_of > log.files.flushed_offset:
            log.flush()
        self.map_keys(plan)
        for group in plan.groups:
            cleaned = self.clean_group(plan, group)
            self.publish(log, plan, cleaned)
            if not self.replace(log, group, cleaned):
                return first_dirty
        return plan.end_offset

    def stop(self) -> None:
        """Make running calls of `map_keys` and `clean_group` raise CleaningStopped before their next batch."""
        self._stopping.set()

    # --- keys --------------------------------------------------------------------------------------------------------

    def map_keys(self, plan: CleaningPlan) -> None:
        """Find the newest offset of each key in the dirty segments, as far as memory allows, and group the segments.

        The results are the plan's `keys`, `end_offset` and `groups`. Raises CorruptLog, CleaningStopped, OSError.
        """
        plan.look_up()
        covered: list[tuple[LogSegment, int]] = []
        for segment, end in plan.segments:
            covered.append((segment, end))
            if end > plan.first_dirty:
                full_at = self._map_segment(plan, segment)
                if full_at is not None:
                    plan.end_offset = full_at
                    break
        else:
            plan.end_offset = covered[-1][1]
        plan.groups = _group(covered, min(plan.segment_bytes, MAX_SEGMENT_SIZE))

    def _map_segment(self, plan: CleaningPlan, segment: LogSegment) -> int | None:
        """Add the keys of a segment to the plan. If a batch fills the memory, return the offset after it, else None."""
        for header, batch in self._batches(segment):
            if header.is_control or header.next_offset <= plan.first_dirty or plan.is_aborted(header):
                continue
            try:
                data = self._content(plan, header, batch)
                for record in skim(data, header):
                    if record.key is not None:
                        if record.key not in plan.keys:
                            plan.key_bytes += len(record.key) + _KEY_OVERHEAD
                        plan.keys[record.key] = record.offset
            except (CorruptBatch, MemoryError):
                continue  # `_keep` logs the batch when it keeps it
            if plan.key_bytes > self._max_key_bytes:
                return header.next_offset
        return None

    def _content(self, plan: CleaningPlan, header: BatchHeader, batch: memoryview) -> bytes | bytearray:
        """Return the decompressed records of a batch; raise CorruptBatch if they are invalid or exceed the limits."""
        if not verify_crc(batch, 0, header):
            raise CorruptBatch("its checksum does not match its content")
        if not header.record_count:
            return b""
        limits = plan.limits
        size = limits.decompressed_bytes if header.compression else len(batch) - HEADER_SIZE
        limits.check_count(header.record_count, size)
        return expand(header.compression, batch[HEADER_SIZE:], limits.decompressed_bytes)

    def _batches(self, segment: LogSegment) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches of a segment.

        They are read through a separate descriptor, because the log may close its own.
        """
        source = segment.reopened()
        offset = segment.base_offset
        try:
            for _, header, batch in source.batches(verify=False):
                if self._stopping.is_set():
                    raise CleaningStopped
                offset = header.next_offset
                yield header, batch
        except BrokenBatch as error:
            raise CorruptLog(source.path(), error.position, offset, error.reason) from None
        finally:
            source.release()

    # --- cleaning ----------------------------------------------------------------------------------------------------

    def clean_group(self, plan: CleaningPlan, group: SegmentGroup) -> LogSegment:
        """Write the kept batches of a group to `.cleaned` files, sync them, and return the new segment.

        Removes the `.cleaned` files before it raises CorruptLog, CleaningStopped or OSError.
        """
        first = group.segments[0]
        cleaned = LogSegment(self._fs, plan.directory, first.base_offset, created_ms=first.created_ms, suffix=CLEANED)
        try:
            cleaned.create()
            for segment in group.segments:
                for header, batch in self._batches(segment):
                    kept = self._keep(plan, header, batch, is_last=header.next_offset >= group.end_offset)
                    if kept is not None:
                        self._copy(plan, cleaned, header, kept)
            for path in cleaned.write_indexes():
                sync_path(self._fs, path)
            cleaned.file.fdatasync()  # the handle that wrote the batches knows of an earlier failed sync
        except BaseException:
            self._drop(cleaned)
            raise
        cleaned.release()
        return cleaned

    def _copy(self, plan: CleaningPlan, cleaned: LogSegment, header: BatchHeader, batch: bytes | memoryview) -> None:
        """Append a kept batch to the new segment. Raises ENOSPC if too much of the disk's reserve is in use."""
        before = cleaned.size // _SPACE_CHECK_BYTES
        cleaned.append(batch, len(batch), header.last_offset, header.max_timestamp, plan.index_interval_bytes)
        if self._disk_space is not None and cleaned.size // _SPACE_CHECK_BYTES > before:
            self._disk_space.check_compaction(plan.name, internal=plan.internal)

    def _keep(
        self, plan: CleaningPlan, header: BatchHeader, batch: memoryview, *, is_last: bool
    ) -> bytes | memoryview | None:
        """Return the batch that replaces `batch`: the same batch, a smaller one, or None to remove it.

        Aborted records are removed even beyond the plan's `end_offset`, because the transaction index of the new
        segment is empty. `is_last`: whether the batch is the last of its group.
        """
        must_stay = is_last or (header.has_producer and plan.holds_producer_state(header))
        if header.is_transactional and not header.is_control:
            plan.undecided.add(header.producer_id)
            if plan.is_aborted(header):
                return _rewrite(header, b"", 0, -1, None) if must_stay else None
        if header.base_offset >= plan.end_offset:
            return batch  # the keys from this offset on did not fit into memory
        try:
            if header.is_control:
                return self._keep_marker(plan, header, batch, must_stay=must_stay)
            return self._keep_records(plan, header, batch, must_stay=must_stay)
        except (CorruptBatch, MemoryError) as error:
            plan.unreadable += 1
            reason = error.message if isinstance(error, CorruptBatch) else "the batch needs more memory than available"
            logger.warning("batch kept uncompacted", partition=plan.name, offset=header.base_offset, reason=reason)
            return batch

    def _keep_records(
        self, plan: CleaningPlan, header: BatchHeader, batch: memoryview, *, must_stay: bool
    ) -> bytes | memoryview | None:
        """Return a data batch without expired tombstones and superseded records; None if no record is left.

        With `must_stay`, return a batch without records instead of None.
        """
        data = self._content(plan, header, batch)
        horizon = header.base_timestamp if header.has_delete_horizon else None
        expired = horizon is not None and plan.now_ms >= horizon and not plan.unreadable

        def stays(record: SkimmedRecord) -> bool:
            if record.key is None:
                return True
            return record.offset >= plan.keys.get(record.key, -1) and not (expired and record.is_tombstone)

        kept = 0
        max_timestamp = -1
        tombstones = False
        for record in skim(data, header):
            if stays(record):
                kept += 1
                max_timestamp = max(max_timestamp, record.timestamp)
                tombstones = tombstones or record.is_tombstone
        if not kept:
            return _rewrite(header, b"", 0, -1, None) if must_stay else None
        new_horizon = plan.new_horizon_ms if tombstones and horizon is None else horizon
        if kept == header.record_count and new_horizon == horizon:
            return batch
        base_timestamp = header.base_timestamp if new_horizon is None else new_horizon
        content = select(data, filter(stays, skim(data, header)), base_timestamp)
        return _rewrite(header, content, kept, max_timestamp, new_horizon)

    def _keep_marker(
        self, plan: CleaningPlan, header: BatchHeader, batch: memoryview, *, must_stay: bool
    ) -> bytes | memoryview | None:
        """Return a control batch, with a delete horizon if its transaction has no batches left; None to remove it."""
        records = decode_batch(batch, 0, header)
        if not records:
            return batch if must_stay else None
        if read_control_record(records[0]).type is ControlType.UNKNOWN:
            return batch
        has_batches = header.producer_id in plan.undecided
        plan.undecided.discard(header.producer_id)
        if has_batches:
            return batch
        if not header.has_delete_horizon:
            data = self._content(plan, header, batch)
            content = select(data, skim(data, header), plan.new_horizon_ms)
            return _rewrite(header, content, header.record_count, header.max_timestamp, plan.new_horizon_ms)
        if must_stay or plan.now_ms < header.base_timestamp:
            return batch
        return None

    # --- replacing ---------------------------------------------------------------------------------------------------

    def publish(self, log: PartitionLog, plan: CleaningPlan, cleaned: LogSegment) -> None:
        """Change the suffix of the files of `cleaned` to `.swap`, and sync the directory.

        If the broker crashes later, recovery uses this segment. May run in any thread. Do nothing if the log is closed,
        because another log may now use the same directory name. On failure, remove the new segment, leave the log
        unchanged, and raise OSError.
        """
        assert plan.as_of <= log.files.flushed_offset, "the producers' last batches must be on disk"
        with log.files.lock:
            if log.files.closed:
                return
            try:
                cleaned.rename(SWAP)
                self._fs.sync_directory(log.files.directory)
            except Exception:
                self._drop(cleaned)
                raise

    def replace(self, log: PartitionLog, group: SegmentGroup, cleaned: LogSegment) -> bool:
        """Replace a group in the log with the published segment `cleaned`, and remove the old files.

        Return False, without a change to the log, if the log has failed or was closed, or if segments of the group have
        been removed meanwhile. Old files that cannot be removed are removed later (`try_again`), or by the loader at
        the next start.
        """
        current = set(log.segments)
        if log.failure is not None or not current.issuperset(group.segments):
            self._drop(cleaned)
            return False
        before = sum(segment.size for segment in group.segments)
        log.segments.replace(group.segments, cleaned)
        log.reader.forget()
        for segment in group.segments:
            log.files.close_file(segment)
        aside: list[str] = []
        following = log.segments.after(cleaned)
        assert following is not None, "the active segment is never compacted"
        later = following.base_offset

        def finish() -> None:
            aside.extend(segment.set_aside() for segment in group.segments[len(aside) :])
            cleaned.rename("")
            log.producers.remove_replaced_snapshots([segment.base_offset for segment in group.segments], later)
            log.files.unlink_later(aside)

        self._finish(log, finish)
        logger.info(
            "segments compacted",
            partition=log.name,
            segments=len(group.segments),
            bytes_before=before,
            bytes_after=cleaned.size,
        )
        return True

    def try_again(self) -> None:
        """Finish the replacements whose old files could not be removed before."""
        unfinished, self._unfinished = self._unfinished, []
        for log, finish in unfinished:
            if not log.files.closed:
                self._finish(log, finish)

    def _finish(self, log: PartitionLog, finish: Callable[[], None]) -> None:
        """Run the last step of a replacement; if it fails, log this and keep the step for `try_again`."""
        what = f"replacement of segments of {log.name}"
        try:
            finish()
        except Exception as error:
            self._episodes.failed(what, error)
            self._unfinished.append((log, finish))
        else:
            self._episodes.succeeded(what)

    def _drop(self, cleaned: LogSegment) -> None:
        """Close and remove the files of a new segment that is not used."""
        file = cleaned.take_file()
        if file is not None:
            file.close()
        if self._fs.is_directory(cleaned.path(LOG).rpartition("/")[0]):
            cleaned.unlink()


def _group(segments: list[tuple[LogSegment, int]], max_bytes: int) -> list[SegmentGroup]:
    """Group adjacent segments that fit into one segment. The number of segments in a group is limited.

    Groups without batches are left out.
    """
    groups: list[SegmentGroup] = []
    members: list[LogSegment] = []
    size = end_offset = 0
    for segment, end in segments:
        if members and (
            len(members) == _MOST_SEGMENTS
            or size + segment.size > max_bytes
            or end - members[0].base_offset > MAX_RELATIVE_OFFSET
        ):
            groups.append(SegmentGroup(tuple(members), end_offset))
            members, size = [], 0
        members.append(segment)
        size += segment.size
        end_offset = end
    groups.append(SegmentGroup(tuple(members), end_offset))
    return [group for group in groups if any(segment.size for segment in group.segments)]


def _rewrite(
    header: BatchHeader, content: bytes, record_count: int, max_timestamp: int, delete_horizon_ms: int | None
) -> bytes:
    """Return the batch with its records replaced by the uncompressed `content`.

    The offsets and sequences of the batch stay unchanged. With `delete_horizon_ms`, the base timestamp of the batch is
    this delete horizon (KIP-534).
    """
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)
    if record_count:
        attributes |= header.compression
    base_timestamp = header.base_timestamp if record_count else -1
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base_timestamp = delete_horizon_ms
    return assemble_batch(
        compress(Compression(header.compression), content) if record_count else b"",
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=record_count,
    )
