"""Cutting damaged partitions, when a person has decided that what is behind the damage may go (`oncelog log repair`).

Owns finding the damage of every partition (`inspect`), and cutting there after saving every byte that is removed
(`repair`). Never runs by itself and never while a broker has the directory: the lock is taken. Two steps on purpose:
what `inspect` returns says what would be lost, before anything is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ...protocol.batch_header import CorruptBatch, read_batch_header, verify_crc
from ...protocol.errors import KafkaError
from ..ports import FileSystem, SystemRandomIds
from .batch_scan import BrokenBatch
from .data_directory import DataDirectory
from .file_names import (
    INDEXES,
    LOG,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    SNAPSHOT,
    SWAP,
    parse_partition_directory,
    parse_segment_name,
    partition_directory,
)
from .flusher import sync_path
from .segment import LogSegment

REMOVED: str = ".removed"
"""Suffix of the directory beside a partition's files that keeps what was cut off."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a partition is damaged and what a repair removes.

    From `lost_from_offset` on everything goes: `lost_bytes` bytes, in which `whole_batches` batches with
    `whole_records` records are still whole, but behind the damage. `below_recovery_point`: records known to have been
    on disk (so perhaps acknowledged and read) are among the lost; otherwise the broker would cut the torn tail by
    itself.
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


def inspect(directory: str, fs: FileSystem) -> list[Damage]:
    """Read every partition of a data directory, all checksums; returns the damages found, nothing is changed.

    Raises DataDirectoryError (in use, no data directory), OSError.
    """
    data = DataDirectory(directory, fs, SystemRandomIds(), 1)
    data.open()
    try:
        return _inspect(data, fs)
    finally:
        data.close()


def repair(directory: str, fs: FileSystem) -> list[Damage]:
    """Cut each damaged partition at its damage; returns what was cut.

    The removed bytes are kept in `<partition>/<time>.removed/`, on disk before anything is cut. Raises as `inspect`.
    """
    data = DataDirectory(directory, fs, SystemRandomIds(), 1)
    data.open()
    try:
        damages = _inspect(data, fs)
        if damages:
            # Recovery has to look at what is left, and must not miss what is gone: before the cut, since a repair
            # that is interrupted must not leave a partition that looks whole.
            data.take_clean_shutdown()
        for damage in damages:
            _cut(f"{directory}/{partition_directory(damage.topic, damage.partition)}", damage, fs)
        points = data.read_offsets(RECOVERY_POINTS)
        starts = data.read_offsets(LOG_START_OFFSETS)
        for damage in damages:
            key = (damage.topic, damage.partition)
            points[key] = min(points.get(key, 0), damage.lost_from_offset)
            if key in starts:
                starts[key] = min(starts[key], damage.lost_from_offset)
        if damages:
            data.write_offsets(RECOVERY_POINTS, [(*key, offset) for key, offset in points.items()])
            data.write_offsets(LOG_START_OFFSETS, [(*key, offset) for key, offset in starts.items()])
        return damages
    finally:
        data.close()


def _inspect(data: DataDirectory, fs: FileSystem) -> list[Damage]:
    points = data.read_offsets(RECOVERY_POINTS)
    damages = []
    for name in sorted(fs.list(data.path)):
        key = parse_partition_directory(name)
        if key is not None and fs.is_directory(f"{data.path}/{name}"):
            damage = _inspect_partition(*key, f"{data.path}/{name}", points.get(key, 0), fs)
            if damage is not None:
                damages.append(damage)
    return damages


def _segments(path: str, fs: FileSystem) -> list[LogSegment]:
    """The segments, with a complete replacement by compaction in the place of what it replaces."""
    found = []
    for name in fs.list(path):
        parsed = parse_segment_name(name.removesuffix(SWAP))
        if parsed is not None and parsed[1] == LOG:
            suffix = SWAP if name.endswith(SWAP) else ""
            segment = LogSegment(fs, path, parsed[0], created_ms=0, suffix=suffix)
            segment.size = fs.file_size(segment.path())
            found.append(segment)
    return sorted(found, key=lambda segment: (segment.base_offset, not segment.path().endswith(SWAP)))


def _inspect_partition(topic: str, partition: int, path: str, recovery_point: int, fs: FileSystem) -> Damage | None:
    segments = _segments(path, fs)
    end_offset = segments[0].base_offset if segments else recovery_point
    for number, segment in enumerate(segments):
        position = 0
        try:
            for position_, header, _ in segment.batches():
                if header.base_offset < end_offset:
                    raise BrokenBatch(position_, f"offset {header.base_offset} follows {end_offset - 1}")
                end_offset = header.next_offset
                position = position_ + header.size
        except BrokenBatch as error:
            batches, records = _whole_behind(segment, error.position + 1)
            for later in segments[number + 1 :]:
                more = _whole_behind(later, 0)
                batches, records = batches + more[0], records + more[1]
            lost = segment.size - error.position + sum(later.size for later in segments[number + 1 :])
            return Damage(
                topic,
                partition,
                segment.path(),
                error.position,
                error.reason,
                end_offset,
                lost,
                batches,
                records,
                end_offset < recovery_point,
            )
        finally:
            segment.release()
        assert position == segment.size
    if end_offset < recovery_point:
        last = segments[-1].path() if segments else path
        size = segments[-1].size if segments else 0
        reason = f"the log ends here, but was on disk up to offset {recovery_point}"
        return Damage(topic, partition, last, size, reason, end_offset, 0, 0, 0, True)
    return None


def _whole_behind(segment: LogSegment, start: int) -> tuple[int, int]:
    """(batches, records) that are whole somewhere behind byte `start`, found by trying every byte for a header."""
    data = segment.file.read_at(segment.size, 0)
    batches = records = 0
    position = start
    while (position := data.find(b"\x02", position + 16) - 16) >= start:
        try:
            piece = _probe(data, position)
        except KafkaError:
            position += 1
            continue
        batches, records = batches + 1, records + piece[1]
        position += piece[0]
    segment.release()
    return batches, records


def _probe(data: bytes, position: int) -> tuple[int, int]:
    header = read_batch_header(data, position)
    if not verify_crc(data, position, header):
        raise CorruptBatch("no batch")
    return header.size, header.record_count


def _cut(path: str, damage: Damage, fs: FileSystem) -> None:
    keep = f"{path}/{time.strftime('%Y%m%d-%H%M%S')}{REMOVED}"
    fs.make_directory(keep)
    behind = False
    doomed: list[LogSegment] = []
    for segment in _segments(path, fs):
        if segment.path() == damage.file:
            _save(segment, damage.position, keep, fs)
            doomed.append(segment)
            behind = True
        elif behind:
            _save(segment, 0, keep, fs)
            doomed.append(segment)
    fs.sync_directory(keep)
    fs.sync_directory(path)
    for segment in reversed(doomed):
        if segment.path() == damage.file:
            segment.cut(damage.position)
            segment.file.fdatasync()
            segment.release()
        else:
            fs.unlink(segment.path())
    _remove_derived(path, damage.lost_from_offset, {segment.base_offset for segment in doomed}, fs)
    fs.sync_directory(path)


def _save(segment: LogSegment, position: int, keep: str, fs: FileSystem) -> None:
    name = segment.path().rpartition("/")[2]
    target = f"{keep}/{name}.from-{position}"
    file = fs.open(target, create=True)
    try:
        copied = position
        while copied < segment.size:
            piece = segment.file.read_at(1 << 20, copied)
            if not piece:
                break
            file.write_at([piece], copied - position)
            copied += len(piece)
    finally:
        file.close()
        segment.release()
    sync_path(fs, target)


def _remove_derived(path: str, end_offset: int, bases: set[int], fs: FileSystem) -> None:
    """Indexes of what was cut, and snapshots that know of it, are made again."""
    for name in fs.list(path):
        parsed = parse_segment_name(name.removesuffix(SWAP))
        if parsed is None:
            continue
        offset, kind = parsed
        if (kind in INDEXES and offset in bases) or (kind == SNAPSHOT and offset > end_offset):
            fs.unlink(f"{path}/{name}")
