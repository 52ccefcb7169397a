"""Find the damage in the partitions of a data directory, for a repair (`repair.py`), without changing anything.

The rules that the broker applies when it starts (`offset_rules.py`) decide what counts as damage. In addition, all
checksums are verified, even those that the broker does not check when it starts. Indexes, producer snapshots and
checkpoints need no repair, because the broker rebuilds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from ..system.ports import FileSystem
from .batch_scan import BrokenBatch
from .batch_search import BatchSearch, SearchGivenUp
from .checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS, CheckpointFiles
from .data_directory import DataDirectory
from .file_names import LOG, SWAP, being_deleted, parse_partition_directory, parse_segment_name, partition_directory
from .flushed_mark import read_flushed_offset
from .journal_redo import LeftJournal
from .kafka_segments import KafkaSegments
from .offset_rules import OffsetRules
from .segment import LogSegment


@dataclass(frozen=True, slots=True)
class Damage:
    """The place where a partition is damaged, and the part that a repair removes.

    A repair removes everything from `lost_from_offset` on: `lost_bytes` bytes. After the damage, these bytes contain at
    least `whole_batches` undamaged batches with `whole_records` records.

    `below_recovery_point`: whether any lost records are known to have been on disk, and so may have been acknowledged
    and read. Otherwise the damage may be a torn tail, which the broker itself cuts off when it starts.

    `new_start_offset`: -1, unless the beginning of the log is missing or damaged. In this case, a repair makes this
    offset the log start offset, and removes only the first `lost_bytes` bytes of `file`, whose records are already
    deleted.

    Damage of the journal has the topic "" and the partition -1. A repair redoes the readable part of the journal.
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
class Accepted:
    """What an inspection accepts about one partition, even if no file records it yet. A repair records it.

    `start_offset`: the log start offset, which the checkpoint may lack. `of_kafka`: the segments that Apache Kafka
    wrote, with the gaps between them.
    """

    key: tuple[str, int]
    path: str
    start_offset: int
    of_kafka: KafkaSegments


def find_damage(
    data: DataDirectory, fs: FileSystem, journal: LeftJournal, failures: dict[str, OSError]
) -> tuple[list[Damage], list[Accepted]]:
    """Return the damage of all partitions, including missing ones, and an `Accepted` for each partition that was read.

    `fs` shows the files as they will be when `journal` has been redone. `failures`: the errors of partitions that
    cannot be read, by name. These partitions are left out, and the errors of more of them are added.
    """
    checkpoints = CheckpointFiles(fs, data.path)
    points = checkpoints.read(RECOVERY_POINTS) or {}
    starts, cleaned = checkpoints.read(LOG_START_OFFSETS), checkpoints.read(CLEANER_OFFSETS)
    unclean = data.clean_shutdown()

    def inspected(key: tuple[str, int], name: str) -> tuple[list[Damage], Accepted]:
        path = f"{data.path}/{name}"
        recovery_point = max(points.get(key, 0), read_flushed_offset(fs, path) or 0, journal.end_offset(name))
        start_offset = None if starts is None else starts.get(key, 0)
        cleaned_to = None if cleaned is None else cleaned.get(key, 0)
        clean = unclean is not None and name not in unclean
        of_kafka = KafkaSegments(fs, path, fs.list(path), None if clean else recovery_point)
        segments = list_segments(path, fs)
        first = segments[0].base_offset if segments else 0
        if start_offset is None or (start_offset < first and of_kafka.may_begin_at(first)):
            start_offset = first
        rules = OffsetRules(start_offset, cleaned_to, of_kafka)
        found = list(_inspect_partition(*key, path, segments, recovery_point, start_offset, rules))
        return found, Accepted(key, path, start_offset, of_kafka)

    damages: list[Damage] = []
    accepted: list[Accepted] = []
    names = sorted(fs.list(data.path))
    partitions = {name: key for name in names if (key := parse_partition_directory(name)) is not None}
    for name, key in partitions.items():
        if name in failures or not fs.is_directory(f"{data.path}/{name}"):
            continue
        try:
            found, facts = inspected(key, name)
        except OSError as error:
            failures[name] = error
        else:
            damages += found
            accepted.append(facts)
    missing = {key for key, offset in points.items() if offset > 0} - set(partitions.values())
    for key in sorted(missing - being_deleted(missing, names)):
        path, offset = f"{data.path}/{partition_directory(*key)}", points[key]
        reason = f"the directory is missing, but the partition was on disk up to offset {offset}"
        damages.append(Damage(*key, path, 0, reason, offset, 0, 0, 0, True, offset))
    return damages, accepted


def list_segments(path: str, fs: FileSystem) -> list[LogSegment]:
    """Return the segments of a partition in the order of their base offsets.

    A `.swap` segment, which compaction has completed, stands in for the segments that it replaces, as it does when the
    broker starts. If it is damaged, it is unknown which segments it replaces, so all segments are returned. A segment
    with the same base offset as the `.swap` segment then comes after it.
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
    """Return the range of offsets that a `.swap` segment covers; an empty range if the segment is damaged."""
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
    """Yield a partition's damage: first at its beginning, where a repair removes no live record, then at its end.

    Live records are those from `start_offset`, the log start offset, on.
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
        is_swap = segment.path().endswith(SWAP)  # the loader refuses a damaged one, wherever it begins
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

    Return a tuple: the damage at the segment's beginning that affects only records below `start_offset`, or None; the
    end offset of the sound batches; the error of the first unsound batch after this damage, or None.
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

    Return the end offset of the sound batches, and the error of the first batch that is not sound, or None.

    A gap before a batch was either left by compaction, or shows that the batch's own offset is wrong. It is wrong if
    the next batch begins inside the gap or before the end of the batch. The error then concerns the batch after the
    gap, not the next one.
    """
    gap: tuple[int, int, int] | None = None
    """If there is a gap before the previous batch: that batch's byte position and base offset, and the gap's start."""
    try:
        for position, header, _ in segment.batches(start):
            base_offset = header.base_offset
            if not rules.follows(end_offset, base_offset, following):
                if gap is not None and gap[2] <= base_offset < end_offset:
                    position, base_offset, end_offset = gap
                raise BrokenBatch(position, f"base offset {base_offset} cannot follow offset {end_offset - 1}")
            if not rules.fits(end_offset, base_offset, header.next_offset, following):
                raise BrokenBatch(position, f"offset {header.last_offset} of the batch belongs to the next segment")
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
    """Find the first live batch, that is, the first with records at or above the log start offset, `start_offset`.

    `end_offset` is the end offset of the sound batches before `broken`. Return the byte position of the live batch, and
    the offset at which a segment with the live batches can begin.

    Return None if live records may be damaged, too. If the start offset lies in a gap between batches, the gap is
    trusted only if undamaged batches directly precede and follow it.
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
    """Return the damage at which the sound part of the log ends.

    The damage begins in the first of `segments`. These segments contain everything that a repair removes.
    """
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
