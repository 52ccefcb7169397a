"""Open a partition's directory as a `PartitionLog` after a clean stop, a crash, or a loss of power.

This module decides which files are kept, finishes a compaction that a crash interrupted, distinguishes damage from a
torn write, cuts off a torn tail, and rebuilds indexes and producer state. It follows these rules:

* Everything below the recovery point was on disk before the crash. The recovery point is the highest of the offsets in
  the checkpoint, in the partition's own `flushed-offset` file and in the redone journal. Batches below it are read only
  if their segment has to be scanned anyway. If records below it are missing or damaged, the partition stays offline
  (`CorruptLog`), because cutting the log there would lose acknowledged records silently. `repair.py` cuts it when an
  operator asks.
* The active segment's indexes and the producer state are loaded from the files that `SavedState` wrote last. The
  batches after the saved state are scanned. This happens after a clean stop, too, because a stop does not save the
  state for the sake of a few new batches (`unsaved_bytes`).
* `offset_rules.py` decides which segments belong to the log (not those of deleted records), and which offsets may
  follow each other.
* From the recovery point on, every checksum is verified. The log ends at the first position where no valid batch
  begins, or where segments do not join, if a torn write can explain this.
  * A killed process tears only its last write. So a valid batch after the damage, but not inside the torn write
    (`batch_search.py`), means that the file is damaged, and the partition stays offline. It also stays offline if more
    bytes look like batches than can be checked.
  * After a loss of power, any of the bytes from the recovery point on may be lost, not only the last ones. In that
    case, everything after the first broken batch is cut off. With durability "flush", none of it was acknowledged
    with acks=all.
* The bytes that are cut off are kept (`removed.py`).
* The log is synced before it is read or appended to. After a crash of the process alone, the page cache may have
  unsynced bytes, which a later loss of power could take back.

`load_sound_part` opens a damaged log a second time, read-only and only up to the damage. It goes through the same files
in the same way, so it scans or trusts the same segments. The only difference is that in memory the log ends at the
damage. Nothing on disk is cut, removed, rebuilt or recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from ...protocol.batch_header import BatchHeader
from ...protocol.control_records import ControlRecord, read_control_record
from ...protocol.records import decode_batch
from ..system.descriptors import NO_SPACE
from ..system.ports import Clock, FileSystem, RandomIds, Threads
from .batch_scan import BrokenBatch, scan_batches
from .batch_search import BatchSearch, SearchGivenUp
from .disk_space import DiskSpace
from .file_names import (
    CLEANED,
    DELETED,
    FLUSHED_OFFSET,
    INDEXES,
    LEADER_EPOCHS,
    LOG,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    parse_segment_name,
    segment_name,
)
from .flushed_mark import read_flushed_offset, remove_flushed_offset, write_flushed_offset
from .flusher import LogFlusher, sync_path
from .index_cache import IndexCache
from .indexes import CorruptIndex
from .kafka_segments import KafkaSegments
from .leader_epochs import LeaderEpochs
from .log_config import LogConfig
from .offset_rules import OffsetRules
from .partition_log import PartitionLog
from .producer_state_manager import ProducerStateManager
from .read_only_files import ReadOnlyFileSystem
from .read_only_log import ReadOnlyLog
from .removed import MAX_TORN_BYTES, TORN, keep, keep_directory
from .results import CorruptLog
from .segment import LogSegment
from .segments import LogSegments
from .shared_directory import SharedDirectory
from .small_files import renew_file

logger = structlog.get_logger(__name__)


_PIECE: Final = 1 << 20
"""The number of bytes that are written again at a time."""


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """The state of a partition before it is loaded, according to the data directory's files.

    `clean`: whether the last stop closed the partition cleanly. `recovery_point`: all records below this offset are on
    disk. `log_start_offset`: records below this offset are deleted; None if it is not known. `fresh`: whether the
    partition's directory was created just now. `same_boot`: whether the operating system has run without a restart
    since the partition was last loaded, so that no written byte can have been lost. `cleaned_to`: compaction has left
    no gaps from this offset on in the last segment; None if it is not known. `unsynced_from`: from this offset on,
    records may be in the page cache alone, because a sync has failed. `unread`: the path of a file that cannot be read
    and may contain a higher recovery point; empty if there is none. If there is such a file, damage is never treated as
    a torn write.
    """

    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int | None = 0
    fresh: bool = False
    same_boot: bool = False
    cleaned_to: int | None = None
    unsynced_from: int = 0
    unread: str = ""


def load_log(
    topic: str,
    partition: int,
    directory: str,
    *,
    fs: FileSystem,
    clock: Clock,
    config: LogConfig,
    point: LoadPoint,
    flusher: LogFlusher | None = None,
    root: SharedDirectory | None = None,
    threads: Threads | None = None,
    ids: RandomIds | None = None,
    indexes: IndexCache | None = None,
    disk_space: DiskSpace | None = None,
    on_disk_failure: Callable[[OSError], None] | None = None,
    on_start_offset: Callable[[Callable[[], None]], None] | None = None,
) -> PartitionLog:
    """Recover the log in the existing `directory` and return it, open for reads and writes.

    Raises CorruptLog (KAFKA_STORAGE_ERROR) if the log is damaged, and OSError.
    """
    loader = _Loader(f"{topic}-{partition}", directory, fs, clock, config, point)
    end_offset = loader.load()
    return PartitionLog(
        topic,
        partition,
        directory,
        fs=fs,
        clock=clock,
        config=config,
        segments=LogSegments(loader.segments, indexes),
        producers=loader.producers,
        leader_epochs=loader.leader_epochs,
        log_start_offset=loader.start_offset,
        log_end_offset=end_offset,
        saved_bytes=loader.saved_bytes,
        flusher=flusher,
        root=root,
        threads=threads,
        ids=ids,
        disk_space=disk_space,
        on_disk_failure=on_disk_failure,
        on_start_offset=on_start_offset,
    )


def load_sound_part(
    topic: str,
    partition: int,
    directory: str,
    *,
    damage: CorruptLog,
    fs: FileSystem,
    clock: Clock,
    config: LogConfig,
    point: LoadPoint,
    threads: Threads | None = None,
    indexes: IndexCache | None = None,
) -> ReadOnlyLog:
    """Open the log in `directory`, read-only and only up to `damage`; change nothing in the directory.

    `damage` is the error that `load_log` raised for the same `point`. Raises CorruptLog if no sound batch precedes the
    damage, or if the sound part does not end exactly at the damage. Raises OSError.
    """
    disk, fs = fs, ReadOnlyFileSystem(fs)
    loader = _Loader(f"{topic}-{partition}", directory, fs, clock, config, point, damage, disk)
    end_offset = loader.load()
    return ReadOnlyLog(
        topic,
        partition,
        directory,
        damage=damage,
        known_end=max(loader.recovery_point, end_offset + 1),
        stored_bytes=loader.stored_bytes,
        fs=fs,
        clock=clock,
        config=config,
        segments=LogSegments(loader.segments, indexes, in_memory=loader.changed),
        producers=loader.producers,
        leader_epochs=loader.leader_epochs,
        log_start_offset=loader.start_offset,
        log_end_offset=end_offset,
        saved_bytes=loader.saved_bytes,
        threads=threads,
    )


class _Loader:
    """The loading of one log. After `load`, the public attributes contain the parts of the log.

    With `damage`, the log is opened read-only and ends at the damage. Without it, damage raises CorruptLog. If `fs` is
    read-only, `disk` is the file system through which the same bytes can be written again.
    """

    def __init__(
        self,
        name: str,
        directory: str,
        fs: FileSystem,
        clock: Clock,
        config: LogConfig,
        point: LoadPoint,
        damage: CorruptLog | None = None,
        disk: FileSystem | None = None,
    ) -> None:
        self._name = name
        self._directory = directory
        self._fs = fs
        self._disk = disk or fs
        self._clock = clock
        self._config = config
        self._point = point
        self._damage = damage
        self.segments: list[LogSegment] = []
        self.producers = ProducerStateManager(fs, directory, name)
        self.leader_epochs = LeaderEpochs(fs, directory)
        self.start_offset = 0
        self.changed: list[LogSegment] = []
        self.stored_bytes = 0
        """The size in bytes of all segments, including those after the damage. Set only for a read-only log."""
        self.saved_bytes = 0
        """The number of bytes of the active segment that the saved state covers."""
        self._scanned_from: dict[LogSegment, int] = {}
        self._scanned_producers = False
        self._names: frozenset[str] = frozenset()
        self._snapshots: list[int] = []
        self._epochs: list[tuple[int, int]] = []
        # From the partition's own `flushed-offset` file, which is written only after a sync of the directory's names.
        self._flushed_offset = 0
        self.recovery_point = 0
        self._unread = point.unread
        # Whether a file was created, cut or removed. A loss of power must not undo that.
        self._altered = False

    def load(self) -> int:
        """Load the log and return its log end offset. Closes the files before it raises CorruptLog or OSError."""
        try:
            return self._load()
        except BaseException:
            for segment in self.segments:
                segment.release()
            raise

    def _load(self) -> int:
        """Load the segments, the producer state and the leader epochs, and sync them; return the log end offset."""
        listed = self._fs.list(self._directory)
        self._names = self._finish_interrupted(listed)
        if not self._point.fresh:
            if FLUSHED_OFFSET in self._names:
                flushed = read_flushed_offset(self._fs, self._directory)
                if flushed is None:
                    self._unread = f"{self._directory}/{FLUSHED_OFFSET}"
                    if self._damage is None:
                        logger.warning("flushed offset not read", file=self._unread)
                self._flushed_offset = flushed or 0
            self.recovery_point = max(self._point.recovery_point, self._flushed_offset)
        on_disk_to = None if self._point.clean else self.recovery_point
        self._of_kafka = KafkaSegments(self._fs, self._directory, listed, on_disk_to)
        files = [entry for entry in map(parse_segment_name, self._names) if entry is not None]
        bases = sorted(base for base, kind in files if kind == LOG)
        self._snapshots = sorted(offset for offset, kind in files if kind == SNAPSHOT)
        now_ms = self._clock.now_ms()
        self.segments = [LogSegment(self._fs, self._directory, base, created_ms=now_ms) for base in bases]
        if self._damage is not None:
            self.stored_bytes = sum(self._fs.file_size(segment.path()) for segment in self.segments)
        for base, kind in files:
            if kind in INDEXES and base not in bases:
                self._fs.unlink(self._path(base, kind))
                self._altered = True
        start = self._point.log_start_offset
        if bases and (start is None or (start < bases[0] and self._of_kafka.may_begin_at(bases[0]))):
            start = bases[0]
        start = start or 0
        self._rules = OffsetRules(start, self._point.cleaned_to, self._of_kafka, trust_gaps=self._damage is None)
        self._check_beginning(start)
        if not self.segments:
            self._begin_at(start)
        end_offset = self._load_segments()
        if self._damage is not None:
            return self._end_sound_part(self._damage, start, end_offset)
        if start > end_offset:
            # The deletion of all records below `start` was recorded, and the files end before `start`, so no record
            # remains.
            self._remove(self.segments)
            self._begin_at(start)
            end_offset = start
        self.start_offset = max(start, self.segments[0].base_offset)
        self._load_producers(end_offset)
        self._make_durable(end_offset)
        self._drop_deleted_segments()
        if len(self._snapshots) > 1:
            self.producers.remove_stray_snapshots([segment.base_offset for segment in self.segments])
        return end_offset

    def _end_sound_part(self, damage: CorruptLog, start: int, end_offset: int) -> int:
        """Finish loading the sound part (the records before the damage); return the offset of the damage.

        This loads the producer state and the leader epochs, and syncs the segments that were scanned. `start` is the
        log start offset, and `end_offset` is where the loaded segments end. Raises `damage` if it is not at
        `end_offset`, if no record precedes it, or if the last batches do not lead to it (`_check_tail`).
        """
        self.start_offset = max(start, self.segments[0].base_offset)
        if not self.start_offset < end_offset == damage.offset:
            raise damage  # no record is left to read, or the files have changed since the damage was found
        self._check_tail(damage, end_offset)
        self._load_producers(end_offset)
        for segment in self.changed:
            self._sync(segment)  # a loss of power must not take back records that were read
            if segment is not self.segments[-1] and (file := segment.take_file()) is not None:
                file.close()
        self._fs.sync_directory(self._directory)
        return end_offset

    def _check_tail(self, damage: CorruptLog, end_offset: int) -> None:
        """Raise `damage` unless the last segment's batches, from the last indexed one on, lead to `end_offset`.

        A wrong offset in a batch header makes the sound batches after it look damaged, or a segment look missing. A
        checksum does not reveal it, because it does not cover the offset. If the segment was not scanned, only the
        headers of these few batches are checked.
        """
        segment = self.segments[-1]
        index = segment.offset_index
        first = index.last_position()
        expected = segment.base_offset
        for position, header, _ in segment.batches(first):
            if position == first and len(index):
                follows = index.lookup(header.last_offset - 1) < first == index.lookup(header.last_offset)
            else:
                gap = header.base_offset - expected
                follows = gap == 0 or (gap > 0 and self._rules.may_have_gaps(expected))
            if not follows:
                raise damage
            expected = header.next_offset
        if segment.size and expected != end_offset:
            raise damage

    def _check_beginning(self, start: int) -> None:
        """Raise CorruptLog if the first segments are missing.

        Records are deleted only once the new log start offset `start` is recorded, so no deletion explains the loss.
        """
        if not self.segments and self.recovery_point > start:
            reason = f"the partition has no segment, but was on disk up to offset {self.recovery_point}"
            raise CorruptLog(self._directory, 0, start, reason)
        if not self.segments and self._unread:
            raise CorruptLog(self._directory, 0, start, self._in_doubt("the partition has no segment"))
        if self.segments and self.segments[0].base_offset > start:
            first = self.segments[0]
            reason = f"the first segment is missing: offsets {start} to {first.base_offset - 1} are gone"
            raise CorruptLog(first.path(), 0, start, reason)

    def _in_doubt(self, reason: str) -> str:
        """Return the message for damage that may be a torn write, but may also mean that records were lost."""
        return f"{reason}; it is not known whether records here were on disk, because {self._unread} cannot be read"

    # --- files -------------------------------------------------------------------------------------------------------

    def _path(self, offset: int, suffix: str) -> str:
        """Return the path of the partition's file for `offset` with this suffix."""
        return f"{self._directory}/{segment_name(offset, suffix)}"

    def _finish_interrupted(self, listed: list[str]) -> frozenset[str]:
        """Remove incomplete files, and finish each replacement of segments by compaction that a crash interrupted.

        A `.log.swap` file shows that the replacement segment is complete. `listed` has the names in the directory;
        return the names after the changes. Raises CorruptLog if a `.log.swap` file is damaged, and OSError.
        """
        if not any(name.endswith((CLEANED, DELETED, TEMPORARY, SWAP)) for name in listed):
            return frozenset(listed)
        names = [name for name in listed if not self._is_directory(name)]
        for name in names:
            if name.endswith((CLEANED, DELETED, TEMPORARY)):
                self._fs.unlink(f"{self._directory}/{name}")
        swaps = [name.removesuffix(SWAP) for name in names if name.endswith(LOG + SWAP)]
        live = sorted(entry[0] for entry in map(parse_segment_name, names) if entry is not None and entry[1] == LOG)
        for name in swaps:
            parsed = parse_segment_name(name)
            assert parsed is not None, name
            base = parsed[0]
            swap = LogSegment(self._fs, self._directory, base, created_ms=0, suffix=SWAP)
            swap.size = self._fs.file_size(swap.path())
            try:
                replaced = swap.scanned_offsets()
            except BrokenBatch as error:
                raise CorruptLog(swap.path(), error.position, base, error.reason) from None
            finally:
                swap.release()
            for offset in live:
                if offset in replaced:
                    LogSegment(self._fs, self._directory, offset, created_ms=0).unlink()
            for kind in INDEXES:
                for path in (self._path(base, kind) + SWAP, self._path(base, kind)):
                    if self._fs.exists(path):
                        self._fs.unlink(path)
            self._fs.rename(self._path(base, LOG) + SWAP, self._path(base, LOG))
            logger.info("interrupted compaction finished", partition=self._name, segment=self._path(base, LOG))
        for name in names:
            if name.endswith(SWAP) and self._fs.exists(f"{self._directory}/{name}"):
                self._fs.unlink(f"{self._directory}/{name}")
        if swaps:
            self._fs.sync_directory(self._directory)
        return frozenset(self._fs.list(self._directory))

    def _is_directory(self, name: str) -> bool:
        """Whether `name` is a directory. A directory is not part of the log, even if it is named like a log's file."""
        return self._fs.is_directory(f"{self._directory}/{name}")

    def _begin_at(self, offset: int) -> None:
        """Create an empty segment at `offset` as the only segment of the log."""
        segment = LogSegment(self._fs, self._directory, offset, created_ms=self._clock.now_ms())
        segment.create()
        self._altered = True
        self.segments = [segment]
        self.changed.append(segment)

    def _remove(self, segments: list[LogSegment]) -> None:
        """Close the files of these segments and remove the files from the directory. Raises OSError."""
        for segment in segments:
            file = segment.take_file()
            if file is not None:
                file.close()
            if segment in self.changed:
                self.changed.remove(segment)
            segment.unlink()

    def _drop_deleted_segments(self) -> None:
        """Remove the segments below the log start offset, whose deletion was recorded but not finished.

        First put a snapshot of the producer state on disk, because the deleted batches cannot be replayed again. If the
        disk is full, remove nothing.
        """
        if len(self.segments) > 1 and self.segments[1].base_offset <= self.start_offset:
            try:
                renew_file(self._fs, self.producers.take_snapshot())
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                return  # the next start removes the segments
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.start_offset:
            self._remove([self.segments.pop(0)])

    # --- segments ----------------------------------------------------------------------------------------------------

    def _load_segments(self) -> int:
        """Load or scan each segment; return the log end offset. Raises CorruptLog and OSError."""
        end_offset = self.segments[0].base_offset
        for number, segment in enumerate(self.segments):
            following = self._following(number)
            if number and not self._rules.joins(self.segments[number - 1].base_offset, segment.base_offset, end_offset):
                self._end_before(number, end_offset)
                return end_offset
            if following is None:
                end_offset, broken = self._scan_behind(segment, self._load_saved(segment))
            else:
                # The first flush after a roll syncs the indexes, and only then can the recovery point pass the segment.
                trusted = following < self.recovery_point or self._point.clean
                if trusted and (trusted_end := self._load_finished(segment)) is not None:
                    end_offset = trusted_end
                    if end_offset <= following or self._rules.is_deleted(following):
                        continue
                    # A scan shows whether a batch has a wrong offset, or whether both segments have the same offsets.
                end_offset, broken = self._scan(segment, following)
            if broken is not None and following is not None and self._rules.is_leftover(end_offset, following):
                self._cut_leftovers(number, broken)
                end_offset = following
            elif broken is not None:
                self._truncate(number, end_offset, broken)
                return end_offset
        if end_offset < self.recovery_point and self._damage is None:
            active = self.segments[-1]
            raise CorruptLog(
                active.path(),
                active.size,
                end_offset,
                f"the log ends here, but was on disk up to offset {self.recovery_point}",
            )
        return end_offset

    def _following(self, number: int) -> int | None:
        """Return the base offset of the segment after segment `number`; None if it is the last one."""
        return self.segments[number + 1].base_offset if number + 1 < len(self.segments) else None

    def _load_finished(self, segment: LogSegment) -> int | None:
        """Load a finished segment from its index files; return its end offset, or None if it must be scanned."""
        try:
            return segment.load_finished()
        except (CorruptIndex, BrokenBatch) as error:
            logger.warning("indexes rebuilt", file=segment.path(), reason=str(error))
            return None
        finally:
            segment.release()

    def _load_saved(self, segment: LogSegment) -> int:
        """Load the active segment's saved indexes and set `segment.size` to the bytes that they cover.

        Return the end offset of the covered batches. This is the base offset if the indexes are missing, damaged, or
        cover batches that may not be on disk: then the whole segment must be scanned.
        """
        if not any(segment_name(segment.base_offset, kind) in self._names for kind in INDEXES):
            segment.reset_indexes()
            return segment.base_offset
        try:
            end_offset = segment.load_saved()
            if self._point.clean or self._point.same_boot or end_offset <= self.recovery_point:
                self.saved_bytes = segment.size
                return end_offset
            reason = f"they cover offset {end_offset - 1}, but only offsets below {self.recovery_point} were on disk"
        except (CorruptIndex, BrokenBatch) as error:
            reason = str(error)
        logger.warning("indexes rebuilt", file=segment.path(), reason=reason)
        self._drop_saved(segment)
        segment.size = 0
        segment.reset_indexes()
        return segment.base_offset

    def _drop_saved(self, segment: LogSegment) -> None:
        """Remove the index files of a segment, because other batches may replace the batches that they cover.

        The removal is synced before the log is used, so that a later start does not trust the outdated files.
        """
        segment.unlink_indexes()
        self._altered = True
        self.saved_bytes = 0

    def _scan(self, segment: LogSegment, following: int) -> tuple[int, BrokenBatch | None]:
        """Verify and index all batches of a segment. The next segment begins at offset `following`.

        Return (the end offset of the valid batches, the error of the first invalid batch or None).
        """
        segment.size = 0
        segment.reset_indexes()
        return self._scan_behind(segment, segment.base_offset, following)

    def _scan_behind(
        self, segment: LogSegment, offset: int, following: int | None = None
    ) -> tuple[int, BrokenBatch | None]:
        """Verify the checksums of the batches from byte `segment.size` (offset `offset`) on, and index the batches.

        Return (the end offset of the valid batches, the error of the first invalid batch or None). `following`: the
        base offset of the next segment. A batch that belongs to the next segment is invalid (`OffsetRules.fits`). In a
        read-only log, raises CorruptLog if the damage may be a wrong offset in an earlier batch.
        """
        position, size = segment.size, self._fs.file_size(segment.path())
        end_offset = offset
        broken: BrokenBatch | None = None
        if position == size and self._point.clean and not self._point.fresh:
            return end_offset, None
        try:
            for at, header, _ in scan_batches(segment.file, position, size):
                if not self._rules.follows(end_offset, header.base_offset, following):
                    if self._damage is not None and self._rules.may_have_gaps(segment.base_offset):
                        raise self._damage  # the previous batch may be the one with the wrong offset
                    raise BrokenBatch(at, f"base offset {header.base_offset} cannot follow offset {end_offset - 1}")
                next_offset = header.next_offset
                if not self._rules.fits(end_offset, header.base_offset, next_offset, following):
                    raise BrokenBatch(at, f"offset {next_offset - 1} of the batch belongs to the next segment")
                segment.index(at, header, self._config.index_interval_bytes)
                end_offset = next_offset
                self._scanned_producers |= header.producer_id >= 0
                if not self._epochs or header.partition_leader_epoch > self._epochs[-1][0]:
                    self._epochs.append((header.partition_leader_epoch, header.base_offset))
        except BrokenBatch as error:
            broken = error
        self._scanned_from[segment] = offset
        self.changed.append(segment)
        return end_offset, broken

    def _truncate(self, number: int, end_offset: int, broken: BrokenBatch) -> None:
        """Cut the log at the first invalid batch, or raise CorruptLog if the damage cannot be a torn write.

        A read-only log is not cut: it only forgets the segments after the damage.
        """
        if self._damage is not None:
            del self.segments[number + 1 :]
            return
        segment = self.segments[number]
        size = self._fs.file_size(segment.path())
        behind = number + 1 < len(self.segments)
        if self._point.clean or end_offset < self.recovery_point:
            raise CorruptLog(segment.path(), broken.position, end_offset, broken.reason)
        if self._unread:
            raise CorruptLog(segment.path(), broken.position, end_offset, self._in_doubt(broken.reason))
        if self._point.same_boot:
            try:
                valid = BatchSearch(segment.file, broken.position, size, end_offset).find()
            except SearchGivenUp as error:
                reason = f"{broken.reason}; {error}"
                raise CorruptLog(segment.path(), broken.position, end_offset, reason) from None
            if behind or valid is not None:
                where = f"at byte {valid}" if valid is not None else f"in {self.segments[number + 1].path()}"
                because = "the batch is whole" if valid == broken.position else f"valid batches follow {where}"
                reason = f"{broken.reason}; this is not a torn write, because {because}"
                raise CorruptLog(segment.path(), broken.position, end_offset, reason)
        self._keep_and_log(number, broken.position, end_offset, broken.reason)
        segment.cut(broken.position)
        self._cut_behind(number)

    def _cut_leftovers(self, number: int, broken: BrokenBatch) -> None:
        """Cut off the bytes after the last valid batch of a segment that is not the last one. No record is lost.

        There are two cases. If the next segment begins where the valid batches end, a failed write left the bytes, and
        a loss of power undid their removal. Otherwise all records below the next segment are deleted already.
        """
        segment = self.segments[number]
        end_offset = self.segments[number + 1].base_offset
        self._keep_and_log(number, broken.position, end_offset, broken.reason, behind=False)
        segment.cut(broken.position)

    def _end_before(self, number: int, end_offset: int) -> None:
        """End the log at `end_offset`, because the segment `number` should begin there, but does not.

        Raises CorruptLog unless a loss of power can have caused this by undoing unsynced changes of file names. No loss
        of power can have caused it after a clean stop, below the recovery point, or if the operating system has not
        been restarted. A read-only log is not cut: if a segment is missing, the log only forgets the segments after the
        gap.
        """
        before, segment = self.segments[number - 1], self.segments[number]
        size = self._fs.file_size(before.path())
        if segment.base_offset < end_offset:
            reason = f"the next segment begins at offset {segment.base_offset}, before the end of this one"
        else:
            reason = f"the next segment is missing: offsets {end_offset} to {segment.base_offset - 1} are gone"
            if self._damage is not None:
                del self.segments[number:]
                return
        if self._damage is not None or self._point.clean or self._point.same_boot or end_offset < self.recovery_point:
            raise CorruptLog(before.path(), size, end_offset, reason)
        if self._unread:
            raise CorruptLog(before.path(), size, end_offset, self._in_doubt(reason))
        self._keep_and_log(number - 1, size, end_offset, reason)
        self._cut_behind(number - 1)

    def _keep_and_log(self, number: int, position: int, end_offset: int, reason: str, *, behind: bool = True) -> None:
        """Copy the bytes that are about to be cut off to `removed/`, and log the cut.

        The cut begins at byte `position` of segment `number`. With `behind`, it includes all later segments. At most
        about `MAX_TORN_BYTES` are copied. If a copy fails, for example on a full disk, the bytes are not kept.
        """
        directory = keep_directory(self._directory, self._clock.now_ms(), TORN)
        cut = kept = 0
        problem = ""
        for segment, start in [
            (self.segments[number], position),
            *((later, 0) for later in self.segments[number + 1 :] if behind),
        ]:
            size = self._fs.file_size(segment.path()) - start
            cut += size
            try:
                if size and kept < MAX_TORN_BYTES:
                    kept += keep(self._fs, segment.path(), start, directory, MAX_TORN_BYTES - kept)
            except OSError as error:
                problem = str(error)
        logger.warning(
            "torn tail cut",
            file=self.segments[number].path(),
            position=position,
            bytes=cut,
            offset=end_offset,
            reason=reason,
            kept_in=directory if kept else None,
            kept_bytes=kept,
            **({"not_kept_because": problem} if problem else {}),
        )

    def _cut_behind(self, number: int) -> None:
        """Make segment `number` the active one: remove all later segments, its index files and `flushed-offset`."""
        self._drop_saved(self.segments[number])
        remove_flushed_offset(self._fs, self._directory)
        doomed = self.segments[number + 1 :]
        del self.segments[number + 1 :]
        self._remove(doomed)

    # --- producers ---------------------------------------------------------------------------------------------------

    def _load_producers(self, end_offset: int) -> None:
        """Load the producer state and the leader epochs, and rebuild the transaction indexes of scanned segments.

        The producer state comes from the newest usable snapshot and the batches after it. The newest snapshot is used
        even if it is newer than scanned segments, because it covers batches that retention has deleted. The transaction
        indexes need the state from before the scanned segments, so they may need a second pass over the batches.
        """
        if self._snapshots and self._snapshots[-1] > end_offset and self._damage is None:
            # These snapshots cover lost batches, whose offsets other batches will get. So they must be removed on disk
            # before the log is used.
            self.producers.remove_snapshots(above=end_offset)
            self._altered = True
        position = self.producers.load(self.segments[0].base_offset, end_offset, self._snapshots)
        first = min((start for segment, start in self._scanned_from.items() if segment in self.changed), default=None)
        once = first is None or position <= first
        if self._scanned_producers or position < self._scanned_from.get(self.segments[-1], end_offset):
            self._replay(self.producers, position, end_offset, rebuild=once)
        self.producers.skip_to(end_offset)
        self.producers.seen(self._clock.monotonic())
        if first is not None and not once:
            earlier = ProducerStateManager(self._fs, self._directory, self._name)
            position = earlier.load(self.segments[0].base_offset, first, self._snapshots)
            self._replay(earlier, position, end_offset, rebuild=True)
        if LEADER_EPOCHS in self._names:
            self.leader_epochs.load(end_offset)
        if self.leader_epochs.latest < 0 and (not self._epochs or self._epochs[0][1] > self.segments[0].base_offset):
            self._epochs = [*self._first_epochs(), *self._epochs]
        for epoch, offset in self._epochs:
            self.leader_epochs.assign(epoch, offset)

    def _first_epochs(self) -> list[tuple[int, int]]:
        """Return (leader epoch, offset) of the first batch of each segment, for a log without a file of leader epochs.

        Without these entries, a consumer that asks for the end offset of an older epoch would get none, and would
        assume that the records at its position were cut off. Raises CorruptLog.
        """
        epochs = []
        for number, segment in enumerate(self.segments):
            if segment.size:
                try:
                    header = segment.batch_at(0)
                except BrokenBatch as error:
                    if self._rules.is_deleted(self._following(number)):
                        continue
                    raise CorruptLog(segment.path(), error.position, segment.base_offset, error.reason) from None
                epochs.append((header.partition_leader_epoch, header.base_offset))
            if segment is not self.segments[-1] and segment not in self.changed:
                segment.release()
        return epochs

    def _replay(self, producers: ProducerStateManager, start: int, end_offset: int, *, rebuild: bool) -> None:
        """Apply the batches from offset `start` on to `producers`. Raises CorruptLog.

        With `rebuild`, also add the transactions that they abort to the transaction indexes of scanned segments.
        """
        for number, segment in enumerate(self.segments):
            following = self._following(number)
            if (end_offset if following is None else following) > start:
                try:
                    self._replay_segment(producers, segment, start, rebuild=rebuild)
                except BrokenBatch as error:
                    if not self._rules.is_deleted(following):
                        raise CorruptLog(segment.path(), error.position, producers.end_offset, error.reason) from None
                if segment is not self.segments[-1] and segment not in self.changed:
                    segment.release()

    def _replay_segment(
        self, producers: ProducerStateManager, segment: LogSegment, start: int, *, rebuild: bool
    ) -> None:
        """Apply the batches of one segment from offset `start` on to `producers`. Raises BrokenBatch.

        With `rebuild`, also add the transactions that they abort to the segment's transaction index if it was scanned.
        """
        scanned_from = self._scanned_from.get(segment) if rebuild else None
        for position, header in segment.headers(segment.position_of(start)):
            if header.last_offset < start:
                continue
            marker = self._marker(segment, position, header) if header.is_control else None
            aborted = producers.update(header, marker, header.base_offset)
            if aborted is not None and scanned_from is not None and header.base_offset >= scanned_from:
                segment.aborted.append(aborted)

    def _marker(self, segment: LogSegment, position: int, header: BatchHeader) -> ControlRecord | None:
        """Return the control record of the batch at byte `position`; None if compaction has emptied the batch."""
        records = decode_batch(segment.file.read_at(header.size, position), 0, header)
        return read_control_record(records[0]) if records else None

    # --- durability --------------------------------------------------------------------------------------------------

    def _make_durable(self, end_offset: int) -> None:
        """Sync the scanned segments and their rebuilt indexes before the log is used, and record the flushed offset."""
        if self._of_kafka.unrecorded:
            self._take_over(end_offset)
        if self._point.fresh or (self._point.clean and not (self.changed or self._altered)):
            return  # the files of a new log are synced with its first records
        active = self.segments[-1]
        # Unless the last stop was clean, the name of an empty segment or of its directory may not be on disk.
        on_disk = self._point.clean or active.base_offset < end_offset <= self._flushed_offset
        on_disk = on_disk and not self._altered
        if on_disk and all(segment is active for segment in self.changed):
            return  # the active segment's indexes exist only in memory; all other bytes were on disk before the crash
        for segment in self.changed:
            if segment is not self.segments[-1]:
                self._write_indexes(segment)
            self._sync(segment)
            if segment is not self.segments[-1]:
                segment.release()
        self._fs.sync_directory(self._directory)
        with suppress(OSError):  # later damage to records that were read must not count as a torn write
            write_flushed_offset(self._fs, self._directory, end_offset)

    def _take_over(self, end_offset: int) -> None:
        """Sync all segments of a log that Kafka wrote, and record its gaps. Raises OSError, but not for a full disk.

        The program that copied the files into the data directory may not have synced them. On a full disk, the gaps are
        recorded at the next start.
        """
        try:
            for segment in self.segments:
                sync_path(self._fs, segment.path())
            self._of_kafka.record()
            write_flushed_offset(self._fs, self._directory, end_offset)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            logger.warning("gaps of Kafka's compaction not recorded", partition=self._name, reason=str(error))

    def _sync(self, segment: LogSegment) -> None:
        """Put a scanned segment on disk: write again what may not have been synced, and sync the file. Raises OSError.

        After a failed sync, the page cache may have bytes that the disk has refused, and a sync alone does not write
        them. The bytes are written again whatever the `durability`, because what is synced here counts as on disk at
        the next start.
        """
        file = self._disk.open(segment.path())
        try:
            position = segment.position_of(max(self._point.unsynced_from, self._flushed_offset, segment.base_offset))
            while piece := file.read_at(min(_PIECE, segment.size - position), position):
                file.write_at([piece], position)
                position += len(piece)
            file.fdatasync()
        finally:
            file.close()

    def _write_indexes(self, segment: LogSegment) -> None:
        """Write and sync a segment's rebuilt indexes. Raises OSError for errors other than a full disk.

        On a full disk, remove the index files instead: the indexes are then rebuilt when a read needs them.
        """
        segment.distrust_indexes()
        try:
            for path in segment.write_indexes():
                sync_path(self._fs, path)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            logger.warning("indexes not written", file=segment.path(), reason=str(error))
            for kind in INDEXES:
                if self._fs.exists(segment.path(kind)):
                    self._fs.unlink(segment.path(kind))
