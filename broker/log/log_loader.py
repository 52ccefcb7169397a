"""From a partition's directory to a `PartitionLog`: after a clean stop, a crash, or a loss of power.

Owns: which files are kept, finishing a compaction that a crash interrupted, telling damage from a torn write, cutting a
torn tail, making indexes and producer state again. Rules:

* Everything below the recovery point was on disk before the crash: that of the checkpoint, or that of the partition's
  own `flushed-offset`, which is newer. It is not read again but where a segment has to be scanned anyway, and if
  something of it is missing or damaged, the partition stays offline (`CorruptLog`): cutting there would lose
  acknowledged records silently. `repair.py` does that when a person has decided so.
* The active segment's indexes and the producers' state are read from where they were saved last (`PartitionLog`), and
  the batches behind that are scanned, after a clean stop as well: a stop leaves a few of them (`unsaved_bytes`).
* Behind the recovery point every checksum is verified. At the first byte that is no valid batch, or where segments do
  not join, the log ends, if that can be a torn write: a process that is killed tears only its last write, so a valid
  batch behind the damage, and not inside of the torn write (`batch_search.py`), means that the file has rotted, and the
  partition stays offline, too. So it does where more bytes look like batches than can be checked. After a loss of power
  anything behind the recovery point may be whole or not, in any order: the rest was never acknowledged.
* What is cut off is kept (`removed.py`).
* What is kept is on disk before anyone sees it: a crash of the process alone leaves unsynced bytes in the page cache.

`load_sound_part` opens a log that was found damaged a second time, up to the damage and to be read only. The same files
are looked at in the same way, so the same segments are scanned or trusted, but for one thing: where the damage was
found, the log ends, in memory. Nothing is cut, removed, made again on disk or noted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from ...protocol.batch_header import BatchHeader
from ...protocol.control_records import ControlRecord, read_control_record
from ...protocol.records import decode_batch
from ..descriptors import NO_SPACE
from ..ports import Clock, FileSystem, RandomIds, Threads
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
from .leader_epochs import LeaderEpochs
from .log_config import LogConfig
from .partition_log import PartitionLog
from .producer_state_manager import ProducerStateManager
from .read_only_files import ReadOnlyFileSystem
from .read_only_log import ReadOnlyLog
from .removed import MAX_TORN_BYTES, TORN, keep, keep_directory
from .results import CorruptLog
from .segment import LogSegment
from .segments import LogSegments
from .shared_directory import SharedDirectory

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """What the data directory's checkpoints say of a partition.

    `clean`: the last stop was clean. `recovery_point`: everything below it is on disk. `log_start_offset`: records
    below it are deleted; None when that is not known. `fresh`: the directory was made just now. `same_boot`: the system
    has not been restarted since the last start of a broker, so nothing that was written can have been lost in part.
    `cleaned_to`: compaction has left no gaps behind that offset in the last segment; None when that is not known.
    """

    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int | None = 0
    fresh: bool = False
    same_boot: bool = False
    cleaned_to: int | None = None


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
    on_disk_failure: Callable[[PartitionLog, OSError], None] | None = None,
    on_start_offset: Callable[[Callable[[], None]], None] | None = None,
) -> PartitionLog:
    """Open the log in `directory`, which exists. Raises CorruptLog (KAFKA_STORAGE_ERROR) and OSError."""
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
    """Open the log in `directory` up to `damage`, which `load_log` raised for the same `point`; change nothing there.

    Raises CorruptLog where nothing sound precedes the damage or that part does not end right there, and OSError.
    """
    fs = ReadOnlyFileSystem(fs)
    loader = _Loader(f"{topic}-{partition}", directory, fs, clock, config, point, damage)
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
    """One opening of one directory; `segments` and the rest are what the log is made of.

    `damage`: where to end the log, which is to be read only; None: the log has no damage, or is not opened.
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
    ) -> None:
        self._name = name
        self._directory = directory
        self._fs = fs
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
        """Of all segments, of a log that is read only."""
        self.saved_bytes = 0
        """Up to where the active segment's state is saved."""
        self._scanned_from: dict[LogSegment, int] = {}
        self._scanned_producers = False
        self._names: frozenset[str] = frozenset()
        self._snapshots: list[int] = []
        self._epochs: list[tuple[int, int]] = []
        self._flushed_offset = 0  # by the mark in the partition's own directory, which a sync of its names went before
        self.recovery_point = 0
        self._altered = False  # a file was made, cut or removed, which a loss of power must not undo

    def load(self) -> int:
        """Do it all; returns the log end offset."""
        try:
            return self._load()
        except BaseException:
            for segment in self.segments:
                segment.release()
            raise

    def _load(self) -> int:
        self._names = self._finish_interrupted(self._fs.list(self._directory))
        if not self._point.fresh:
            if FLUSHED_OFFSET in self._names:
                self._flushed_offset = read_flushed_offset(self._fs, self._directory)
            self.recovery_point = max(self._point.recovery_point, self._flushed_offset)
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
        if start is None:
            start = bases[0] if bases else 0
        self._check_beginning(start)
        if not self.segments:
            self._begin_at(start)
        end_offset = self._load_segments(start)
        if self._damage is not None:
            return self._end_sound_part(self._damage, start, end_offset)
        if start > end_offset:
            # Deletion up to there was recorded, but the records were not all there: they are gone either way.
            self._remove(self.segments)
            self._begin_at(start)
            end_offset = start
        self.start_offset = max(start, self.segments[0].base_offset)
        self._load_producers(end_offset)
        self._make_durable(end_offset)
        self._drop_deleted_segments()
        if len(self._snapshots) > 1:
            self.producers.remove_stray_snapshots({segment.base_offset for segment in self.segments})
        return end_offset

    def _end_sound_part(self, damage: CorruptLog, start: int, end_offset: int) -> int:
        """Load what else is needed to read up to the damage; returns the offset there."""
        self.start_offset = max(start, self.segments[0].base_offset)
        if not self.start_offset < end_offset == damage.offset:
            raise damage  # nothing is left to read, or the files are not what they were a moment ago
        self._check_tail(damage, end_offset)
        self._load_producers(end_offset)
        for segment in self.changed:
            sync_path(self._fs, segment.path())  # a loss of power must not take back what was shown
            if segment is not self.segments[-1] and (file := segment.take_file()) is not None:
                file.close()
        self._fs.sync_directory(self._directory)
        return end_offset

    def _check_tail(self, damage: CorruptLog, end_offset: int) -> None:
        """Raise `damage` unless the last segment's batches, from the last indexed one on, lead to `end_offset`.

        Of batches that were not scanned, the headers of these few are all that was looked at. A wrong offset there, of
        which no checksum knows, makes sound batches behind it look damaged, or a segment look missing.
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
                follows = gap == 0 or (gap > 0 and self._may_have_gaps(expected))
            if not follows:
                raise damage
            expected = header.next_offset
        if segment.size and expected != end_offset:
            raise damage

    def _check_beginning(self, start: int) -> None:
        """CorruptLog when the first segments are missing: records are deleted only after a new start was recorded."""
        if not self.segments and self.recovery_point > start:
            reason = f"there is no segment, but the partition was on disk up to offset {self.recovery_point}"
            raise CorruptLog(self._directory, 0, start, reason)
        if self.segments and self.segments[0].base_offset > start:
            first = self.segments[0]
            reason = f"the first segment is missing: offsets {start} to {first.base_offset - 1} are gone"
            raise CorruptLog(first.path(), 0, start, reason)

    # --- files -------------------------------------------------------------------------------------------------------

    def _path(self, offset: int, suffix: str) -> str:
        return f"{self._directory}/{segment_name(offset, suffix)}"

    def _finish_interrupted(self, listed: list[str]) -> frozenset[str]:
        """Remove half-made files; finish replacements by compaction whose `.log.swap` says that they are complete.

        `listed`: the names in the directory; returns those that are there afterwards.
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
                end = max((header.next_offset for _, header, _ in swap.batches()), default=base)
            except BrokenBatch as error:
                raise CorruptLog(swap.path(), error.position, base, error.reason) from None
            finally:
                swap.release()
            for replaced in live:
                if base <= replaced < end:
                    LogSegment(self._fs, self._directory, replaced, created_ms=0).unlink()
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
        """Whether the name is a directory's: not ours, whatever it is called."""
        return self._fs.is_directory(f"{self._directory}/{name}")

    def _begin_at(self, offset: int) -> None:
        segment = LogSegment(self._fs, self._directory, offset, created_ms=self._clock.now_ms())
        segment.create()
        self._altered = True
        self.segments = [segment]
        self.changed.append(segment)

    def _remove(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            file = segment.take_file()
            if file is not None:
                file.close()
            if segment in self.changed:
                self.changed.remove(segment)
            segment.unlink()

    def _drop_deleted_segments(self) -> None:
        """Deletion was recorded before the files went: finish it. What they say of producers is kept first."""
        if len(self.segments) > 1 and self.segments[1].base_offset <= self.start_offset:
            try:
                snapshot = self.producers.take_snapshot()
                if snapshot is not None:
                    sync_path(self._fs, snapshot)
                    self._fs.sync_directory(self._directory)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                return  # the next start does it
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.start_offset:
            self._remove([self.segments.pop(0)])

    # --- segments ----------------------------------------------------------------------------------------------------

    def _load_segments(self, start: int) -> int:
        """Load or scan each segment; returns where the log ends.

        Segments that lie wholly below `start` are deleted, and only their files are still there: a loss of power may
        have brought some of them back, with bytes that were never synced. Nothing in them counts as damage.
        """
        last = len(self.segments) - 1
        end_offset = self.segments[0].base_offset
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1].base_offset if number < last else None
            if number and segment.base_offset != end_offset and segment.base_offset > start:
                self._end_before(number, end_offset)
                return end_offset
            if following is None:
                end_offset, broken = self._scan_behind(segment, self._load_saved(segment))
            else:
                # Indexes are synced by the first flush after the roll, the one that also passes the segment's end.
                trusted = following < self.recovery_point or self._point.clean
                if trusted and (trusted_end := self._load_finished(segment)) is not None:
                    end_offset = trusted_end
                    continue
                end_offset, broken = self._scan(segment, following)
            if broken is not None and following is not None and (end_offset == following or following <= start):
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

    def _load_finished(self, segment: LogSegment) -> int | None:
        """Take a finished segment as it is, with its indexes; returns where it ends, None to scan it."""
        try:
            return segment.load_finished()
        except (CorruptIndex, BrokenBatch) as error:
            logger.warning("indexes made again", file=segment.path(), reason=str(error))
            return None
        finally:
            segment.release()

    def _load_saved(self, segment: LogSegment) -> int:
        """Take the active segment's indexes up to where they were saved, `segment.size`; returns the offset there."""
        if not any(segment_name(segment.base_offset, kind) in self._names for kind in INDEXES):
            segment.reset_indexes()
            return segment.base_offset
        try:
            end_offset = segment.load_saved()
            if self._point.clean or self._point.same_boot or end_offset <= self.recovery_point:
                self.saved_bytes = segment.size
                return end_offset
            reason = f"they know of offset {end_offset - 1}, but only those below {self.recovery_point} were on disk"
        except (CorruptIndex, BrokenBatch) as error:
            reason = str(error)
        logger.warning("indexes made again", file=segment.path(), reason=reason)
        self._drop_saved(segment)
        segment.size = 0
        segment.reset_indexes()
        return segment.base_offset

    def _drop_saved(self, segment: LogSegment) -> None:
        """Remove the index files of a segment that will be appended to from a place below what they know of.

        They are gone, on disk, before the log is shown: a later start must not take them for true.
        """
        segment.unlink_indexes()
        self._altered = True
        self.saved_bytes = 0

    def _scan(self, segment: LogSegment, following: int) -> tuple[int, BrokenBatch | None]:
        """Index all batches of a segment before the one that begins at `following`; returns as `_scan_behind`."""
        segment.size = 0
        segment.reset_indexes()
        return self._scan_behind(segment, segment.base_offset, following)

    def _scan_behind(
        self, segment: LogSegment, offset: int, following: int | None = None
    ) -> tuple[int, BrokenBatch | None]:
        """Index the batches behind `segment.size`, where `offset` is, checksums verified.

        Returns (the offset where they end, what is wrong there).
        """
        position, size = segment.size, self._fs.file_size(segment.path())
        end_offset = offset
        broken: BrokenBatch | None = None
        if position == size and self._point.clean and not self._point.fresh:
            return end_offset, None
        try:
            for at, header, _ in scan_batches(segment.file, position, size):
                if header.base_offset != end_offset and not self._may_leave_out(
                    segment, end_offset, header.base_offset
                ):
                    if self._damage is not None and self._may_have_gaps(segment.base_offset):
                        raise self._damage  # the batch before may be the one that has a wrong offset
                    raise BrokenBatch(at, f"offset {header.base_offset} follows {end_offset - 1}")
                if following is not None and header.base_offset >= following:
                    raise BrokenBatch(at, f"offset {header.base_offset} belongs to the next segment")
                segment.index(at, header, self._config.index_interval_bytes)
                end_offset = header.next_offset
                self._scanned_producers |= header.producer_id >= 0
                if not self._epochs or header.partition_leader_epoch > self._epochs[-1][0]:
                    self._epochs.append((header.partition_leader_epoch, header.base_offset))
        except BrokenBatch as error:
            broken = error
        self._scanned_from[segment] = offset
        self.changed.append(segment)
        return end_offset, broken

    def _may_leave_out(self, segment: LogSegment, end_offset: int, base_offset: int) -> bool:
        """Whether compaction may have taken the offsets between. No checksum covers the offset in a batch's header."""
        if base_offset < end_offset:
            return False
        finished = segment is not self.segments[-1] and self._damage is None
        return finished or self._may_have_gaps(end_offset)

    def _may_have_gaps(self, offset: int) -> bool:
        """Whether compaction came as far as `offset`."""
        cleaned_to = self._point.cleaned_to
        return cleaned_to is None or offset < cleaned_to

    def _truncate(self, number: int, end_offset: int, broken: BrokenBatch) -> None:
        """Cut the log at the first batch that is not whole; CorruptLog when that is no torn write."""
        if self._damage is not None:
            del self.segments[number + 1 :]
            return
        segment = self.segments[number]
        size = self._fs.file_size(segment.path())
        behind = number + 1 < len(self.segments)
        if self._point.clean or end_offset < self.recovery_point:
            raise CorruptLog(segment.path(), broken.position, end_offset, broken.reason)
        if self._point.same_boot:
            try:
                valid = BatchSearch(segment.file, broken.position, size, end_offset).find()
            except SearchGivenUp as error:
                reason = f"{broken.reason}; {error}"
                raise CorruptLog(segment.path(), broken.position, end_offset, reason) from None
            if behind or valid is not None:
                where = f"at byte {valid}" if valid is not None else f"in {self.segments[number + 1].path()}"
                because = "its checksum matches" if valid == broken.position else f"valid batches follow {where}"
                reason = f"{broken.reason}; it is no torn write, because {because}"
                raise CorruptLog(segment.path(), broken.position, end_offset, reason)
        self._keep_and_log(number, broken.position, end_offset, broken.reason)
        segment.cut(broken.position)
        self._cut_behind(number)

    def _cut_leftovers(self, number: int, broken: BrokenBatch) -> None:
        """Cut off what lies behind the last batch of a segment whose successor goes on right there, or is the log's
        beginning.

        No record can be missing between them. In the first case a write that failed left it, and a loss of power undid
        the cut after it.
        """
        segment = self.segments[number]
        end_offset = self.segments[number + 1].base_offset
        self._keep_and_log(number, broken.position, end_offset, broken.reason, behind=False)
        segment.cut(broken.position)

    def _end_before(self, number: int, end_offset: int) -> None:
        """The segment `number` does not join the one before it, which ends at `end_offset`: end the log there.

        CorruptLog when that is not what a loss of power does to unsynced names.
        """
        before, segment = self.segments[number - 1], self.segments[number]
        size = self._fs.file_size(before.path())
        if segment.base_offset < end_offset:
            reason = f"the next segment begins at offset {segment.base_offset} already"
        else:
            reason = f"the next segment is missing: offsets {end_offset} to {segment.base_offset - 1} are gone"
            if self._damage is not None:
                del self.segments[number:]
                return
        if self._damage is not None or self._point.clean or self._point.same_boot or end_offset < self.recovery_point:
            raise CorruptLog(before.path(), size, end_offset, reason)
        self._keep_and_log(number - 1, size, end_offset, reason)
        self._cut_behind(number - 1)

    def _keep_and_log(self, number: int, position: int, end_offset: int, reason: str, *, behind: bool = True) -> None:
        """Keep what is about to be cut off, as far as space allows: with `behind` all later segments, too."""
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
        """Remove the segments behind `number`, and what was saved of that one, which is written to from here on."""
        self._drop_saved(self.segments[number])
        remove_flushed_offset(self._fs, self._directory)
        doomed = self.segments[number + 1 :]
        del self.segments[number + 1 :]
        self._remove(doomed)

    # --- producers ---------------------------------------------------------------------------------------------------

    def _load_producers(self, end_offset: int) -> None:
        """Producer state from the newest usable snapshot and the batches since; indexes of what was scanned.

        The newest one, though it may lie behind segments that are scanned: it knows of batches that retention has
        deleted. The transaction indexes need the state as it was before the scanned segments, so they may take a second
        pass.
        """
        if self._snapshots and self._snapshots[-1] > end_offset and self._damage is None:
            # Gone on disk before the log is shown: they know of batches that are lost, and other batches come there.
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
        """(leader epoch, offset) of the first batch of each segment, for want of their file.

        Of an epoch that nobody knows a consumer is told nothing, and takes its position for one that was cut off.
        """
        epochs = []
        for segment in self.segments:
            if segment.size:
                try:
                    header = segment.batch_at(0)
                except BrokenBatch as error:
                    raise CorruptLog(segment.path(), error.position, segment.base_offset, error.reason) from None
                epochs.append((header.partition_leader_epoch, header.base_offset))
            if segment is not self.segments[-1] and segment not in self.changed:
                segment.release()
        return epochs

    def _replay(self, producers: ProducerStateManager, start: int, end_offset: int, *, rebuild: bool) -> None:
        """Take up the batches from `start` on; with `rebuild`, what they abort goes into indexes that were scanned."""
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1].base_offset if number + 1 < len(self.segments) else end_offset
            if following > start:
                self._replay_segment(producers, segment, start, rebuild=rebuild)
                if segment is not self.segments[-1] and segment not in self.changed:
                    segment.release()

    def _replay_segment(
        self, producers: ProducerStateManager, segment: LogSegment, start: int, *, rebuild: bool
    ) -> None:
        scanned_from = self._scanned_from.get(segment) if rebuild else None
        try:
            for position, header in segment.headers(segment.position_of(start)):
                if header.last_offset < start:
                    continue
                marker = self._marker(segment, position, header) if header.is_control else None
                aborted = producers.update(header, marker, header.base_offset)
                if aborted is not None and scanned_from is not None and header.base_offset >= scanned_from:
                    segment.aborted.append(aborted)
        except BrokenBatch as error:
            raise CorruptLog(segment.path(), error.position, producers.end_offset, error.reason) from None

    def _marker(self, segment: LogSegment, position: int, header: BatchHeader) -> ControlRecord | None:
        records = decode_batch(segment.file.read_at(header.size, position), 0, header)
        return read_control_record(records[0]) if records else None

    # --- durability --------------------------------------------------------------------------------------------------

    def _make_durable(self, end_offset: int) -> None:
        """Sync what was scanned, and the indexes made again, before any of it is shown."""
        if self._point.fresh or (self._point.clean and not (self.changed or self._altered)):
            return  # a fresh log is synced with its first records
        active = self.segments[-1]
        # The name of an empty segment may not be on disk, nor that of its directory, but after a clean stop.
        on_disk = self._point.clean or active.base_offset < end_offset <= self._flushed_offset
        on_disk = on_disk and not self._altered
        if on_disk and all(segment is active for segment in self.changed):
            return  # its indexes are in memory alone, and everything else was on disk before the crash
        for segment in self.changed:
            if segment is not self.segments[-1]:
                self._write_indexes(segment)
            sync_path(self._fs, segment.path())
            if segment is not self.segments[-1]:
                segment.release()
        self._fs.sync_directory(self._directory)
        with suppress(OSError):  # what is shown from here on must not count as a torn write later
            write_flushed_offset(self._fs, self._directory, end_offset)

    def _write_indexes(self, segment: LogSegment) -> None:
        """Write what was made again; on a full disk it stays in memory, and is made again the next time."""
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
