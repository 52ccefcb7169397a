"""Repair damaged partitions when an operator asks for it (`oncelog log repair`).

Owns two steps. `inspect` finds, in every partition, the damage that keeps the broker from serving it. `repair` cuts the
damaged part, after saving every byte that it removes. These are separate steps so that the result of `inspect` shows
what would be lost before anything is removed. Never runs by itself. Takes the lock of the data directory, so it never
runs while a broker uses the directory.

Indexes, producer snapshots and checkpoints need no repair, because the broker rebuilds them. What counts as damage is
decided by the rules of a start (`offset_rules.py`), but all checksums are verified, also those that a start trusts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ..system.ports import FileSystem, SystemClock, SystemRandomIds
from .batch_scan import BrokenBatch
from .batch_search import BatchSearch, SearchGivenUp
from .checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS, CheckpointFiles
from .data_directory import DataDirectory, DataDirectoryError
from .file_names import (
    INDEXES,
    LOG,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    being_deleted,
    parse_partition_directory,
    parse_segment_name,
    partition_directory,
)
from .flushed_mark import read_flushed_offset, remove_flushed_offset
from .flusher import sync_path
from .journal_redo import LeftJournal, read_journal
from .journal_view import RedoneFileSystem
from .kafka_segments import KafkaSegments
from .offset_rules import OffsetRules
from .removed import REPAIR, keep, keep_directory
from .segment import LogSegment

_PIECE: Final = 1 << 20
"""The number of bytes that are copied at a time."""


@dataclass(frozen=True, slots=True)
class Damage:
    """The place where a partition is damaged, and the part that a repair removes.

    A repair removes everything from `lost_from_offset` on: `lost_bytes` bytes. Among them, after the damage, are at
    least `whole_batches` undamaged batches with `whole_records` records.

    `below_recovery_point`: whether records are lost that are known to have been on disk, and so may have been
    acknowledged and read; otherwise the broker would cut the torn tail by itself. `new_start_offset`: if it is not -1,
    the beginning of the log is missing or damaged; a repair then makes this the log start offset, and removes only the
    first `lost_bytes` bytes of `file`, in which all records are deleted. The damage of the journal has the topic "" and
    the partition -1; a repair redoes what can be read of it.
    """

    topic: str
    partition: int
    file: str
    position: int
    reason: str
    lost_from_offset: int
    lost_bytes: int
    whole_batches: int
    whole_records: int
    below_recovery_point: bool
    new_start_offset: int = -1


@dataclass(frozen=True, slots=True)
class _Accepted:
    """What an inspection took for undamaged in a partition that Apache Kafka wrote, or whose checkpoint is missing.

    `start_offset`: the log start offset. `of_kafka`: the gaps between segments.
    """

    key: tuple[str, int]
    path: str
    start_offset: int
    of_kafka: KafkaSegments


def inspect(directory: str, fs: FileSystem) -> list[Damage]:
    """Read every partition of a data directory, verify all checksums, and return the damage found. Changes nothing.

    Records that only the journal has are not treated as lost: the next start redoes them. Raises DataDirectoryError if
    `directory` is in use or is not a data directory; raises OSError.
    """
    data = DataDirectory(directory, fs, SystemRandomIds(), 1)
    data.open()
    try:
        journal, damages = _read_journal(data.path, fs)
        return [*damages, *_inspect(data, RedoneFileSystem(fs, journal), journal)[0]]
    finally:
        data.close()


def repair(directory: str, fs: FileSystem) -> list[Damage]:
    """Cut each damaged partition at its damage, and return the repaired damage.

    The removed bytes are kept in `removed/<time>-repair/<partition>/` of the data directory; they are on disk before
    anything is cut. The journal is redone first; if it is damaged, its files are kept in
    `removed/<time>-repair/journal/`. Raises DataDirectoryError if `directory` is in use or is not a data directory, or
    if a damaged journal can still be redone by a start of the broker. Raises OSError, for example if the journal cannot
    be redone.
    """
    now_ms = SystemClock().now_ms()
    data = DataDirectory(directory, fs, SystemRandomIds(), 1)
    data.open()
    try:
        of_journal = _redo(data.path, fs, now_ms)
        damages, accepted = _inspect(data, fs, LeftJournal(data.path))
        if damages:
            _record(accepted, CheckpointFiles(fs, data.path), fs)
            # Without the clean shutdown marker the next start recovers the partitions. The marker is removed before
            # the cut, so that an interrupted repair does not leave a partition that looks undamaged.
            data.take_clean_shutdown()
        for damage in reversed(damages):  # the end of a log before its beginning, which gets another file name
            path = f"{directory}/{partition_directory(damage.topic, damage.partition)}"
            if damage.new_start_offset < 0:
                _cut(path, damage, fs, now_ms)
            elif damage.file == path:
                _begin_anew(path, damage.new_start_offset, fs)
            elif damage.lost_bytes:
                _drop_beginning(path, damage, fs, now_ms)
        if damages:
            _write_checkpoints(CheckpointFiles(fs, data.path), damages)
        return [*of_journal, *damages]
    finally:
        data.close()


def _read_journal(directory: str, fs: FileSystem) -> tuple[LeftJournal, list[Damage]]:
    """Return the readable part of the journal that the next start needs, and the journal's damage. Raises OSError."""
    journal = read_journal(fs, directory)
    damages = []
    if (damage := journal.damage) is not None and not journal.same_boot:
        damages.append(Damage("", -1, damage.path, damage.position, str(damage), 0, 0, 0, 0, True))
    journal.drop_needless(fs, CheckpointFiles(fs, directory).read(RECOVERY_POINTS) or {})
    return journal, damages


def _redo(directory: str, fs: FileSystem, now_ms: int) -> list[Damage]:
    """Redo the journal and remove it, as a start of the broker does. If it is damaged, keep copies of its files.

    Return the damage of the journal. Raises DataDirectoryError, OSError.
    """
    journal, damages = _read_journal(directory, fs)
    if journal.damage is not None and journal.same_boot:
        raise DataDirectoryError(
            f"the journal in {directory} is damaged. The operating system has not been restarted since the journal was"
            " written, so its records are still in the page cache. Start the broker: it writes the records to disk."
            " Then stop the broker and repair the directory"
        )
    journal.redo(fs)
    for error in journal.failures.values():
        raise error
    points = CheckpointFiles(fs, directory).read(RECOVERY_POINTS) or {}
    for name in journal.entries:
        key = parse_partition_directory(name)
        if key is not None and fs.is_directory(f"{directory}/{name}"):
            points[key] = max(points.get(key, 0), journal.end_offset(name))
    if journal.entries:
        CheckpointFiles(fs, directory).write(RECOVERY_POINTS, points)
    if damages:
        kept = keep_directory(f"{directory}/journal", now_ms, REPAIR)
        for path in journal.paths:
            if path not in journal.empty:
                keep(fs, path, 0, kept)
    journal.remove(fs)
    return damages


def _record(accepted: list[_Accepted], checkpoints: CheckpointFiles, fs: FileSystem) -> None:
    """Write down the gaps and beginnings that the inspection accepted, before a repair removes what shows them.

    It accepts them because of Kafka's index files, the clean shutdown marker, or because no start offset is known.
    """
    starts = checkpoints.read(LOG_START_OFFSETS) or {}
    known = dict(starts)
    for partition in accepted:
        if partition.start_offset > starts.get(partition.key, 0):
            starts[partition.key] = partition.start_offset
        if partition.of_kafka.unrecorded:
            # The program that copied the files into the data directory may not have synced them.
            for name in fs.list(partition.path):
                if name.endswith((LOG, LOG + SWAP)):
                    sync_path(fs, f"{partition.path}/{name}")
            fs.sync_directory(partition.path)
            partition.of_kafka.record()
    if starts != known:
        checkpoints.write(LOG_START_OFFSETS, starts)


def _write_checkpoints(checkpoints: CheckpointFiles, damages: list[Damage]) -> None:
    """Lower the checkpoints to the new end offsets, and raise the start offsets of logs that lost their beginning.

    With a cleaner offset beyond the log's end, compaction would skip the records that are appended later. A log that
    ends before its start offset is begun anew there by the next start.
    """
    points = checkpoints.read(RECOVERY_POINTS) or {}
    starts = checkpoints.read(LOG_START_OFFSETS) or {}
    cleaned = checkpoints.read(CLEANER_OFFSETS) or {}
    for damage in damages:
        key = (damage.topic, damage.partition)
        if damage.new_start_offset >= 0:
            starts[key] = damage.new_start_offset
            continue
        for offsets in (points, cleaned):
            if key in offsets:
                offsets[key] = min(offsets[key], damage.lost_from_offset)
    for name, offsets in ((RECOVERY_POINTS, points), (CLEANER_OFFSETS, cleaned), (LOG_START_OFFSETS, starts)):
        if offsets:
            checkpoints.write(name, offsets)


def _inspect(data: DataDirectory, fs: FileSystem, journal: LeftJournal) -> tuple[list[Damage], list[_Accepted]]:
    """Return the damage of all partitions, including those without a directory, and what was accepted in the others.

    `fs` shows `journal` as redone.
    """
    checkpoints = CheckpointFiles(fs, data.path)
    points = checkpoints.read(RECOVERY_POINTS) or {}
    starts, cleaned = checkpoints.read(LOG_START_OFFSETS), checkpoints.read(CLEANER_OFFSETS)
    unclean = data.clean_shutdown()
    missing = {key for key, offset in points.items() if offset > 0}
    damages: list[Damage] = []
    accepted: list[_Accepted] = []
    names = sorted(fs.list(data.path))
    for name in names:
        key = parse_partition_directory(name)
        if key is None:
            continue
        missing.discard(key)
        path = f"{data.path}/{name}"
        if fs.is_directory(path):
            recovery_point = max(points.get(key, 0), read_flushed_offset(fs, path) or 0, journal.end_offset(name))
            start_offset = None if starts is None else starts.get(key, 0)
            cleaned_to = None if cleaned is None else cleaned.get(key, 0)
            clean = unclean is not None and name not in unclean
            of_kafka = KafkaSegments(fs, path, fs.list(path), None if clean else recovery_point)
            segments = _segments(path, fs)
            first = segments[0].base_offset if segments else 0
            if start_offset is None or (start_offset < first and of_kafka.may_begin_at(first)):
                start_offset = first
            rules = OffsetRules(start_offset, cleaned_to, of_kafka)
            damages += _inspect_partition(*key, path, segments, recovery_point, start_offset, rules)
            accepted.append(_Accepted(key, path, start_offset, of_kafka))
    for key in sorted(missing - being_deleted(missing, names)):
        path, offset = f"{data.path}/{partition_directory(*key)}", points[key]
        reason = f"the directory is missing, but the partition was on disk up to offset {offset}"
        damages.append(Damage(*key, path, 0, reason, offset, 0, 0, 0, True, offset))
    return damages, accepted


def _segments(path: str, fs: FileSystem) -> list[LogSegment]:
    """Return the segments of a partition in the order of their base offsets.

    A `.swap` segment, which compaction has completed, stands in for the segments that it replaces, as at a start of the
    broker. If it is damaged, the segments that it replaces are unknown, and none is left out; a segment with the same
    base offset comes after it.
    """
    segments = []
    for name in fs.list(path):
        parsed = parse_segment_name(name.removesuffix(SWAP))
        if parsed is not None and parsed[1] == LOG:
            suffix = SWAP if name.endswith(SWAP) else ""
            segment = LogSegment(fs, path, parsed[0], created_ms=0, suffix=suffix)
            segment.size = fs.file_size(segment.path())
            segments.append(segment)
    swaps = [segment for segment in segments if segment.path().endswith(SWAP)]
    replaced = [_replaced_by(swap) for swap in swaps]
    kept = [
        segment
        for segment in segments
        if segment in swaps or not any(segment.base_offset in offsets for offsets in replaced)
    ]
    return sorted(kept, key=lambda segment: (segment.base_offset, segment not in swaps))


def _replaced_by(swap: LogSegment) -> range:
    """Return the offsets of the segments that a `.swap` segment replaces; none if it is damaged."""
    try:
        return swap.scanned_offsets()
    except BrokenBatch:
        return range(0)
    finally:
        swap.release()


def _inspect_partition(
    topic: str,
    partition: int,
    path: str,
    segments: list[LogSegment],
    recovery_point: int,
    start_offset: int,
    rules: OffsetRules,
) -> Iterator[Damage]:
    """Yield the damage of a partition: damage to its beginning that costs no live record, then the damage at its end.

    `start_offset`: the partition's log start offset.
    """
    if not segments and recovery_point > start_offset:
        reason = f"the partition has no segment, but was on disk up to offset {recovery_point}"
        yield Damage(topic, partition, path, 0, reason, recovery_point, 0, 0, 0, True, recovery_point)
        return
    first = segments[0].base_offset if segments else recovery_point
    if segments and start_offset < first:
        reason = f"the first segment is missing: offsets {start_offset} to {first - 1} are gone"
        yield Damage(topic, partition, segments[0].path(), 0, reason, start_offset, 0, 0, 0, True, first)
    end_offset = first
    beginning: Damage | None = None
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        is_swap = segment.path().endswith(SWAP)  # a start refuses a damaged one, wherever it begins
        if rules.is_deleted(following) and not is_swap:
            continue
        cut = number
        broken: BrokenBatch | None
        if number and not rules.joins(segments[number - 1].base_offset, segment.base_offset, end_offset):
            if segment.base_offset < end_offset:
                reason = f"the next segment begins at offset {segment.base_offset}, before the end of this one"
            else:
                reason = f"the next segment is missing: offsets {end_offset} to {segment.base_offset - 1} are gone"
            cut, broken = number - 1, BrokenBatch(segments[number - 1].size, reason)
        else:
            deleted, end_offset, broken = _examine(topic, partition, segment, following, start_offset, rules)
            beginning = deleted or beginning
        if broken is None or (not is_swap and cut == number and rules.is_leftover(end_offset, following)):
            continue
        if cut + 1 < len(segments):
            # After the cut, this is the last segment. Gaps that are allowed in a finished segment may be damage in it.
            left = segments[cut].reopened()
            left.size = broken.position
            deleted, sound_end, earlier = _examine(topic, partition, left, None, start_offset, rules)
            if left.base_offset < start_offset:
                beginning = deleted
            if earlier is not None:
                end_offset, broken = sound_end, earlier
        if beginning is not None:
            yield beginning
        yield _damage(topic, partition, segments[cut:], broken, end_offset, recovery_point)
        return
    if beginning is not None:
        yield beginning
    if end_offset < recovery_point:
        last = segments[-1].path() if segments else path
        size = segments[-1].size if segments else 0
        reason = f"the log ends here, but was on disk up to offset {recovery_point}"
        yield Damage(topic, partition, last, size, reason, end_offset, 0, 0, 0, True)


def _examine(
    topic: str, partition: int, segment: LogSegment, following: int | None, start_offset: int, rules: OffsetRules
) -> tuple[Damage | None, int, BrokenBatch | None]:
    """Verify all batches of a segment. The next segment begins at `following`.

    Return (damage to deleted records at its beginning that costs no live record or None, the end offset of the sound
    batches, the error of the first live batch that is not sound or None).
    """
    try:
        end_offset, broken = _sound_end(segment, 0, segment.base_offset, following, rules)
        if broken is None or segment.path().endswith(SWAP):
            return None, end_offset, broken
        live = _first_live(segment, broken, end_offset, start_offset, following, rules)
        if live is None:
            return None, end_offset, broken
        live_end, later = _sound_end(segment, *live, following, rules)
        if later is not None and later.position == live[0]:
            return None, end_offset, broken
        path, position, reason = segment.path(), broken.position, broken.reason
        beginning = Damage(topic, partition, path, position, reason, end_offset, live[0], 0, 0, False, start_offset)
        return beginning, live_end, later
    finally:
        segment.release()


def _sound_end(
    segment: LogSegment, start: int, end_offset: int, following: int | None, rules: OffsetRules
) -> tuple[int, BrokenBatch | None]:
    """Verify a segment's batches from byte `start` (offset `end_offset`) on. The next segment begins at `following`.

    Return (the end offset of the sound batches, the error of the first one that is not sound or None). If a batch steps
    back into a gap that compaction may have left just before, then the batch after the gap has the wrong offset.
    """
    gap: tuple[int, int, int] | None = None
    """Byte position and base offset of the previous batch, and the end of the one before, if they differ."""
    try:
        for position, header, _ in segment.batches(start):
            base_offset = header.base_offset
            if not rules.follows(end_offset, base_offset, following):
                if gap is not None and gap[2] <= base_offset < end_offset:
                    position, base_offset, end_offset = gap
                raise BrokenBatch(position, f"offset {base_offset} follows {end_offset - 1}")
            if not rules.fits(end_offset, base_offset, header.next_offset, following):
                raise BrokenBatch(position, f"offset {header.last_offset} belongs to the next segment")
            segment.check_offset(position, header)
            gap = (position, base_offset, end_offset) if base_offset > end_offset else None
            end_offset = header.next_offset
    except BrokenBatch as error:
        return end_offset, error
    return end_offset, None


def _first_live(
    segment: LogSegment,
    broken: BrokenBatch,
    end_offset: int,
    start_offset: int,
    following: int | None,
    rules: OffsetRules,
) -> tuple[int, int] | None:
    """Find the first live batch, if only batches before it are damaged. `start_offset` is the log start offset.

    `end_offset` is the end of the sound batches before `broken`. Return (byte position, offset at which a segment with
    the live batches can begin). Return None if live records may be damaged, too. If the start offset lies in a gap that
    compaction has left, the gap must be between two undamaged batches.
    """
    if end_offset >= start_offset:
        return None
    searches = [broken.position + 1]  # a broken batch that is whole has a wrong offset
    with suppress(BrokenBatch):  # values of the broken batch may look like batches, so search after it first
        searches.insert(0, broken.position + segment.batch_at(broken.position).size)
    for begin in searches:
        deleted_to = 0
        """The end of the last undamaged batch of deleted records in the file."""
        with suppress(SearchGivenUp):
            for position, header in BatchSearch(segment.file, begin, segment.size, end_offset).whole_batches():
                if header.last_offset < start_offset:
                    deleted_to = position + header.size
                    continue
                if segment.base_offset < header.base_offset <= start_offset:
                    return position, header.base_offset
                if position == deleted_to and rules.follows(start_offset, header.base_offset, following):
                    return position, start_offset
                break
    return None


def _damage(
    topic: str, partition: int, segments: list[LogSegment], broken: BrokenBatch, end_offset: int, recovery_point: int
) -> Damage:
    """Return the damage at which the log ends. It begins in the first of `segments`, which hold all that is lost."""
    batches, records = _whole_behind(segments[0], broken.position + 1)
    for later in segments[1:]:
        more = _whole_behind(later, 0)
        batches, records = batches + more[0], records + more[1]
    return Damage(
        topic,
        partition,
        segments[0].path(),
        broken.position,
        broken.reason,
        end_offset,
        sum(segment.size for segment in segments) - broken.position,
        batches,
        records,
        end_offset < recovery_point,
    )


def _whole_behind(segment: LogSegment, start: int) -> tuple[int, int]:
    """Return the numbers of undamaged (batches, records) after byte `start`.

    If the bytes look like more batches than may be checked (`batch_search.py`), the result counts those found so far.
    """
    batches = records = 0
    with suppress(SearchGivenUp):
        for _, header in BatchSearch(segment.file, start, segment.size, segment.base_offset).whole_batches():
            batches, records = batches + 1, records + header.record_count
    segment.release()
    return batches, records


def _begin_anew(path: str, offset: int, fs: FileSystem) -> None:
    """Create an empty partition that starts at `offset` in place of a lost one, so that no offset is used twice."""
    fs.make_directory(path)
    segment = LogSegment(fs, path, offset, created_ms=0)
    segment.create()
    segment.file.fdatasync()
    segment.release()
    remove_flushed_offset(fs, path)
    fs.sync_directory(path)
    fs.sync_directory(path.rpartition("/")[0])


def _drop_beginning(path: str, damage: Damage, fs: FileSystem, now_ms: int) -> None:
    """Save the damaged beginning of a segment, and copy the rest to a segment that begins at the first live batch.

    If compaction has removed the records at the log start offset, the new segment begins at this offset. From then
    on, the old segment is one of deleted records. So a start after a crash may find both of them.
    """
    keep(fs, damage.file, 0, keep_directory(path, now_ms, REPAIR), damage.lost_bytes)
    (old,) = [segment for segment in _segments(path, fs) if segment.path() == damage.file]
    try:
        base_offset = min(old.batch_at(damage.lost_bytes).base_offset, damage.new_start_offset)
        new = LogSegment(fs, path, base_offset, created_ms=0, suffix=TEMPORARY)
        new.create()
        while piece := old.file.read_at(_PIECE, damage.lost_bytes + new.size):
            new.file.write_at([piece], new.size)
            new.size += len(piece)
        new.file.fdatasync()
        new.release()
    finally:
        old.release()
    fs.rename(new.path(), new.path().removesuffix(TEMPORARY))
    fs.sync_directory(path)
    old.unlink()
    fs.sync_directory(path)


def _cut(path: str, damage: Damage, fs: FileSystem, now_ms: int) -> None:
    """Save the bytes from the damage on, then remove them from the partition at `path`."""
    directory = keep_directory(path, now_ms, REPAIR)
    doomed: list[LogSegment] = []
    for segment in _segments(path, fs):
        if doomed or segment.path() == damage.file:
            start = 0 if doomed else damage.position
            if start < segment.size:
                keep(fs, segment.path(), start, directory)
            doomed.append(segment)
    for segment in reversed(doomed):
        if segment.path() == damage.file and segment.base_offset <= damage.lost_from_offset:
            segment.cut(damage.position)
            segment.file.fdatasync()
            segment.release()
        else:
            fs.unlink(segment.path())
    remove_flushed_offset(fs, path)
    KafkaSegments(fs, path, fs.list(path), 0).lower(damage.lost_from_offset)
    _remove_derived(path, damage.lost_from_offset, {segment.base_offset for segment in doomed}, fs)
    fs.sync_directory(path)


def _remove_derived(path: str, end_offset: int, bases: set[int], fs: FileSystem) -> None:
    """Remove the index files of the cut segments and the snapshots above `end_offset`; the broker rebuilds them."""
    for name in fs.list(path):
        parsed = parse_segment_name(name.removesuffix(SWAP))
        if parsed is None:
            continue
        offset, kind = parsed
        if (kind in INDEXES and offset in bases) or (kind == SNAPSHOT and offset > end_offset):
            fs.unlink(f"{path}/{name}")
