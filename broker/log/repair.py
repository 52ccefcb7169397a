"""Repair damaged partitions when an operator asks for it (`oncelog log repair`).

There are two steps. `inspect` finds the damage that keeps the broker from serving a partition (`damage.py`). `repair`
cuts off the damaged part, after saving every byte that it removes. These are separate steps so that the result of
`inspect` shows what would be lost before anything is removed. A repair never begins by itself. It takes the lock of the
data directory, so it cannot run while a broker uses the directory.
"""

from __future__ import annotations

from typing import Final

from ..system.ports import FileSystem, SystemClock, SystemRandomIds
from .checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS, CheckpointFiles
from .damage import Accepted, Damage, find_damage, list_segments
from .data_directory import DataDirectory, DataDirectoryError
from .file_names import (
    INDEXES,
    LOG,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    parse_partition_directory,
    parse_segment_name,
    partition_directory,
)
from .flushed_mark import remove_flushed_offset
from .flusher import sync_path
from .journal_redo import LeftJournal, read_journal
from .journal_view import RedoneFileSystem
from .kafka_segments import KafkaSegments
from .removed import REPAIR, keep, keep_directory
from .segment import LogSegment

_PIECE: Final = 1 << 20
"""The number of bytes that are copied at a time."""


def inspect(directory: str, fs: FileSystem, failures: dict[str, OSError] | None = None) -> list[Damage]:
    """Read every partition of a data directory, verify all checksums, and return the damage. This changes nothing.

    Records that only the journal has are not treated as lost, because the next start writes them into the partitions.
    The error of each partition that cannot be read is added to `failures`, by the partition's name. Without `failures`,
    the first of these errors is raised. Raises DataDirectoryError if `directory` is in use or is not a data directory,
    and OSError if a file that concerns all partitions cannot be read.
    """
    found: dict[str, OSError] = {}
    data = DataDirectory(directory, fs, SystemRandomIds(), 1)
    data.open(create=False)
    try:
        journal, damages = _read_journal(data.path, fs)
        found |= journal.failures
        damages += find_damage(data, RedoneFileSystem(fs, journal), journal, found)[0]
    finally:
        data.close()
    _report(found, failures)
    return damages


def repair(directory: str, fs: FileSystem, failures: dict[str, OSError] | None = None) -> list[Damage]:
    """Cut each damaged partition at its damage, and return the repaired damage.

    The removed bytes are kept in `removed/<time>-repair/<partition>/` of the data directory; they are on disk before
    anything is cut. The journal is redone first; if it is damaged, its files are kept in
    `removed/<time>-repair/journal/`. A partition that cannot be read or written stays as it is, except that an error in
    the middle of its repair may leave a part of the work to the next repair, and its entries of the journal stay. The
    errors of such partitions are added to `failures`, by the partition's name. Without `failures`, the first of them is
    raised when the other partitions are repaired. Raises DataDirectoryError if `directory` is in use or is not a data
    directory, or if a damaged journal can still be redone by a start of the broker. Raises OSError if a file that
    concerns all partitions cannot be read or written.
    """
    found: dict[str, OSError] = {}
    now_ms = SystemClock().now_ms()
    data = DataDirectory(directory, fs, SystemRandomIds(), 1)
    data.open(create=False)
    try:
        repaired = _redo(data.path, fs, now_ms, found)
        damages, accepted = find_damage(data, fs, LeftJournal(data.path), found)
        if damages:
            _record(accepted, CheckpointFiles(fs, data.path), fs, found)
            # Without the clean shutdown marker the next start recovers the partitions. The marker is removed before
            # the cut, so that an interrupted repair does not leave a partition that looks undamaged.
            data.take_clean_shutdown()
            done = []
            for damage in reversed(damages):  # repair a log's end first: repairing its beginning renames a file
                name = partition_directory(damage.topic, damage.partition)
                if name in found:
                    continue
                try:
                    _repair(f"{directory}/{name}", damage, fs, now_ms)
                except OSError as error:
                    found[name] = error
                else:
                    done.append(damage)
            _write_checkpoints(CheckpointFiles(fs, data.path), done)
            repaired += reversed(done)
    finally:
        data.close()
    _report(found, failures)
    return repaired


def _repair(path: str, damage: Damage, fs: FileSystem, now_ms: int) -> None:
    """Repair one damage of the partition at `path`. Raises OSError."""
    if damage.new_start_offset < 0:
        _cut(path, damage, fs, now_ms)
    elif damage.file == path:
        _begin_anew(path, damage.new_start_offset, fs)
    elif damage.lost_bytes:
        _drop_beginning(path, damage, fs, now_ms)


def _report(found: dict[str, OSError], failures: dict[str, OSError] | None) -> None:
    """Add the errors of partitions to the caller's `failures`; raise the first one if the caller has none."""
    if failures is not None:
        failures |= found
    elif found:
        raise next(iter(found.values()))


def _read_journal(directory: str, fs: FileSystem) -> tuple[LeftJournal, list[Damage]]:
    """Return the readable part of the journal that the next start needs, and the journal's damage. Raises OSError."""
    journal = read_journal(fs, directory)
    damages = []
    if (damage := journal.damage) is not None and not journal.same_boot:
        damages.append(Damage("", -1, damage.path, damage.position, str(damage), 0, 0, 0, 0, True))
    journal.drop_needless(fs, CheckpointFiles(fs, directory).read(RECOVERY_POINTS) or {})
    return journal, damages


def _redo(directory: str, fs: FileSystem, now_ms: int, failures: dict[str, OSError]) -> list[Damage]:
    """Redo the journal and remove it, as a start of the broker does. If it is damaged, keep copies of its files.

    The entries of partitions that cannot be read or written are kept in a new journal, and the errors of these
    partitions are added to `failures`. Return the damage of the journal. Raises DataDirectoryError, OSError.
    """
    journal, damages = _read_journal(directory, fs)
    if journal.damage is not None and journal.same_boot:
        raise DataDirectoryError(
            f"the journal in {directory} is damaged, but it is not needed yet: the operating system has not been"
            " restarted since the journal was written, so the partitions' files should still have its records in the"
            " page cache. Start the broker, which writes them to disk. Then stop the broker and repair the directory"
        )
    journal.redo(fs)
    failures |= journal.failures
    points = CheckpointFiles(fs, directory).read(RECOVERY_POINTS) or {}
    for name in journal.entries:
        key = parse_partition_directory(name)
        if key is not None and name not in failures and fs.is_directory(f"{directory}/{name}"):
            points[key] = max(points.get(key, 0), journal.end_offset(name))
    if journal.entries:
        CheckpointFiles(fs, directory).write(RECOVERY_POINTS, points)
    if damages:
        kept = keep_directory(f"{directory}/journal", now_ms, REPAIR)
        for path in journal.paths:
            if path not in journal.empty:
                keep(fs, path, 0, kept)
    journal.keep(fs, SystemRandomIds().uuid())
    journal.remove(fs)
    return damages


def _record(
    accepted: list[Accepted], checkpoints: CheckpointFiles, fs: FileSystem, failures: dict[str, OSError]
) -> None:
    """Record the gaps between segments and the log start offsets that the inspection accepted.

    This must happen before a repair removes the evidence for them: Kafka's index files, the clean shutdown marker, or
    the absence of a recorded start offset. The errors of partitions are added to `failures`. Raises OSError if the
    checkpoint cannot be written.
    """
    starts = checkpoints.read(LOG_START_OFFSETS) or {}
    known = dict(starts)
    for partition in accepted:
        if partition.start_offset > starts.get(partition.key, 0):
            starts[partition.key] = partition.start_offset
        if partition.of_kafka.unrecorded:
            try:
                # The program that copied the files into the data directory may not have synced them.
                for name in fs.list(partition.path):
                    if name.endswith((LOG, LOG + SWAP)):
                        sync_path(fs, f"{partition.path}/{name}")
                fs.sync_directory(partition.path)
                partition.of_kafka.record()
            except OSError as error:
                failures[partition_directory(*partition.key)] = error
    if starts != known:
        checkpoints.write(LOG_START_OFFSETS, starts)


def _write_checkpoints(checkpoints: CheckpointFiles, damages: list[Damage]) -> None:
    """Lower the checkpoints to the new end offsets, and raise the start offsets of logs that lost their beginning.

    The cleaner offsets are lowered, too: with a cleaner offset beyond the log's end, compaction would skip the records
    that are appended later. A start offset beyond the log's end stays: the next start replaces such a log with an empty
    log at the start offset.
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

    If compaction has removed the records at the log start offset, the new segment begins at this offset. A crash may
    leave both segments. This does no harm, because the old one then counts as deleted: the new one begins at or below
    the log start offset.
    """
    keep(fs, damage.file, 0, keep_directory(path, now_ms, REPAIR), damage.lost_bytes)
    (old,) = [segment for segment in list_segments(path, fs) if segment.path() == damage.file]
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
    for segment in list_segments(path, fs):
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
