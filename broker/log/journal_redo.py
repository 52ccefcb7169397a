"""Redo the journal at a start: write its entries into the files of the partitions, which may lack them.

Owns the order of the steps, each of which may be repeated after a crash:

1. `read_journal` reads all journal files. An entry counts unless a void behind it makes it worthless. The last batch of
   the journal may be torn, because it was not acknowledged then.
2. `drop_needless` drops the entries below the recovery points, whose records are on disk in the files of their
   partitions. It also drops the entries whose segment has another mark: the segment belongs to a later partition of the
   same name.
3. `redo` writes the entries of each partition, and syncs the files. It writes also what a file has already, because
   the bytes may be in the page cache alone, after the disk has refused them. No file and no directory is created: if
   one is missing, the partition or the segment was deleted after the entry was written, or the loader finds the loss.
4. The loader recovers the logs. `end_offset` says up to which offset records were acknowledged.
5. `remove` removes the journal files. Entries of a partition that could not be written or synced are kept in a file of
   their own (`keep`) for the next start. That partition stays offline. Without the space for that, all files stay
   (`leave`).

Damage in the middle of the journal concerns the partition alone whose bytes are damaged: its other entries are redone,
and the indexes of the segment are removed, so that the loader reads all its batches and finds those that are missing.
If the list of entries is damaged, it is not known which partitions need them. Then nothing is redone, unless the
operating system has run on: then the page cache has all bytes of these entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from crc32c import crc32c

from ..descriptors import OUT_OF_DESCRIPTORS
from ..ports import FileSystem
from .batch_scan import BrokenBatch, scan_batches
from .file_names import INDEXES, LOG, parse_journal_name, parse_partition_directory, segment_name
from .journal_file import journal_path, read_journal_file, write_kept_file
from .journal_format import KEPT, Batch, Entry, FileContent, Void, segment_mark
from .removal import unlink_all

logger = structlog.get_logger(__name__)


class JournalDamaged(Exception):
    """A journal file is damaged where it lists its entries, and others follow. The message says what to do.

    `path`: the file. `position`: the damaged byte; -1: batches are missing at its end.
    """

    def __init__(self, path: str, position: int) -> None:
        self.path = path
        self.position = position
        place = f"at byte {position}" if position >= 0 else "at its end"
        super().__init__(
            f"{path} is damaged {place}. It has acknowledged records, and it is not known of which partitions. Restore"
            " the file from a copy, or run `oncelog log repair` on the data directory, which redoes the rest of the"
            " journal"
        )


@dataclass(frozen=True, slots=True)
class Leftover:
    """A journal file that the next start redoes again: it has entries of the partitions `names`.

    `kept_for`: the partition if there is only one and the file has no voids, so that the file can be removed with it.
    """

    path: str
    names: frozenset[str]
    kept_for: str | None = None


@dataclass(slots=True)
class LeftJournal:
    """The journal that the last run has left in `directory`.

    `entries`: the entries that count, by the name of the partition, in order. `paths`: the journal files. `empty`: the
    files among them without a batch. `number` and `sequence` are above all that are in use. `failures`: the errors of
    the partitions whose entries cannot be redone.
    """

    directory: str
    paths: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    number: int = 1
    sequence: int = 1
    failures: dict[str, OSError] = field(default_factory=dict)

    def end_offset(self, name: str) -> int:
        """Return the offset below which the journal has made records of the partition durable; 0 if it has none."""
        return max((entry.end_offset for entry in self.entries.get(name, ())), default=0)

    def drop_needless(self, fs: FileSystem, recovery_points: Mapping[tuple[str, int], int]) -> None:
        """Drop the entries of records that are on disk, and those of former partitions with the same name.

        A partition whose segments cannot be read gets into `failures`. Raises OSError if no file descriptor is free.
        """
        for name, entries in list(self.entries.items()):
            key = parse_partition_directory(name)
            on_disk = 0 if key is None else recovery_points.get(key, 0)
            needed = [entry for entry in entries if entry.end_offset > on_disk]
            try:
                needed = _of_this_partition(fs, f"{self.directory}/{name}", needed)
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    raise
                self.failures[name] = error
            if needed:
                self.entries[name] = needed
            else:
                del self.entries[name]

    def redo(self, fs: FileSystem) -> None:
        """Write the entries into the partitions' files, and sync the files. Errors get into `failures`.

        Empty journal files are removed first, because their space may be needed. Raises OSError if no file descriptor
        is free.
        """
        unlink_all(fs, self.empty)
        written = 0
        for name, entries in self.entries.items():
            if name in self.failures:
                continue
            try:
                written += _redo_partition(fs, f"{self.directory}/{name}", entries)
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    raise
                self.failures[name] = error
        if self.entries:
            logger.info("journal redone", partitions=len(self.entries) - len(self.failures), bytes=written)

    def leave(self) -> list[Leftover]:
        """Return the journal files as they are: all of them stay."""
        names = frozenset(self.entries)
        return [Leftover(path, names) for path in self.paths if path not in self.empty]

    def keep(self, fs: FileSystem, file_id: bytes) -> list[Leftover]:
        """Keep the entries of each partition in `failures` in a journal file of its own, and return the files.

        Raises OSError, which leaves no new file.
        """
        kept: list[Leftover] = []
        try:
            for name in self.failures:
                path = write_kept_file(fs, self.directory, self.number, file_id, self.entries[name])
                kept.append(Leftover(path, frozenset((name,)), name))
                self.number += 1
            if kept:
                fs.sync_directory(self.directory)
        except OSError:
            with suppress(OSError):
                unlink_all(fs, [leftover.path for leftover in kept])
            raise
        return kept

    def remove(self, fs: FileSystem) -> None:
        """Remove the journal files; what they are needed for is done, or kept. Raises OSError.

        The oldest one goes first, because the voids of a file concern older files. Each removal is on disk before the
        next one.
        """
        for path in self.paths:
            if path not in self.empty:
                unlink_all(fs, [path])
                fs.sync_directory(self.directory)


def read_journal(fs: FileSystem, directory: str, *, despite_damage: bool = False) -> LeftJournal:
    """Read the journal files in `directory`. Raises JournalDamaged unless `despite_damage`; raises OSError."""
    left = LeftJournal(directory)
    files: dict[int, FileContent] = {}
    for number in sorted(number for number in map(parse_journal_name, fs.list(directory)) if number is not None):
        path = journal_path(directory, number)
        file = files[number] = read_journal_file(fs, path)
        left.paths.append(path)
        left.number = number + 1
        if file.batches:
            left.sequence = max(left.sequence, file.batches[-1].sequence + 1)
        elif file.damage is None:
            left.empty.append(path)
        if not despite_damage:
            _check_damage(fs, path, file, files)
    for batch in _acknowledged(files.values()):
        for void in batch.voids:
            _apply(left.entries, void)
        for entry in batch.entries:
            left.entries.setdefault(entry.name, []).append(entry)
    return left


def _acknowledged(files: Iterable[FileContent]) -> Iterator[Batch]:
    """Yield the batches that were acknowledged, or may have been, in order.

    A batch that could not be written is followed by another one with its sequence, in the next file. The newest batch
    may be torn, because no other one followed it.
    """
    batches = [(batch, file.may_be_torn) for file in files for batch in file.batches]
    newest = max((batch.sequence for batch, _ in batches), default=KEPT)
    last = {batch.sequence: batch for batch, _ in batches}
    for batch, may_be_torn in batches:
        is_torn = batch.sequence == newest and may_be_torn and not batch.is_whole
        if batch.sequence == KEPT or (batch is last[batch.sequence] and not is_torn):
            yield batch


def _check_damage(fs: FileSystem, path: str, file: FileContent, files: Mapping[int, FileContent]) -> None:
    """Raise JournalDamaged if it is not known which entries of this file, or of the one before it, are damaged."""
    if file.damage is not None:
        _check_needed(fs, file, path, file.damage)
    previous = 0 if file.header is None else file.header.previous
    if previous in files and _has_lost_its_end(files[previous], file):
        _check_needed(fs, file, journal_path(path.rpartition("/")[0], previous), -1)


def _has_lost_its_end(file: FileContent, following: FileContent) -> bool:
    """Whether batches are missing between two files, so that the last batch of the first one was not torn."""
    return bool(file.batches and following.batches and file.batches[-1].sequence + 1 < following.batches[0].sequence)


def _check_needed(fs: FileSystem, file: FileContent, path: str, position: int) -> None:
    """Raise JournalDamaged unless the operating system has run on since the journal was written."""
    if file.header is None or not file.header.boot_id or file.header.boot_id != fs.boot_id():
        raise JournalDamaged(path, position)
    logger.warning("damaged journal not needed", file=path, remedy="none needed: the page cache has all bytes")


def _apply(entries: dict[str, list[Entry]], void: Void) -> None:
    """Remove the entries that the void makes worthless."""
    if void.name in entries:
        entries[void.name] = [entry for entry in entries[void.name] if entry.base_offset >= void.below]
        if not entries[void.name]:
            del entries[void.name]


def _of_this_partition(fs: FileSystem, path: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries whose segment has their mark, or has no intact first batch. Raises OSError."""
    marks: dict[int, int | None] = {}
    for base_offset in {entry.base_offset for entry in entries}:
        segment = f"{path}/{segment_name(base_offset, LOG)}"
        marks[base_offset] = _mark_of(fs, segment) if fs.is_directory(path) and fs.exists(segment) else None
    needed = [entry for entry in entries if marks[entry.base_offset] in (None, entry.mark)]
    if len(needed) < len(entries):
        name = path.rpartition("/")[2]
        logger.warning(
            "entries of a former partition skipped",
            partition=name,
            entries=len(entries) - len(needed),
            remedy="none needed: another partition has had this name before",
        )
    return needed


def _mark_of(fs: FileSystem, segment: str) -> int | None:
    """Return the mark of a segment; None if its first batch is missing or damaged. Raises OSError."""
    file = fs.open(segment)
    try:
        next(scan_batches(file, 0, file.size()), None)
        return segment_mark(file) if file.size() else None
    except BrokenBatch:
        return None
    finally:
        file.close()


def _redo_partition(fs: FileSystem, path: str, entries: Sequence[Entry]) -> int:
    """Write the entries of one partition into its files, and sync these files; return the number of bytes written."""
    written = 0
    if not fs.is_directory(path):
        return 0
    for base_offset in dict.fromkeys(entry.base_offset for entry in entries):
        segment = f"{path}/{segment_name(base_offset, LOG)}"
        if not fs.exists(segment):
            continue
        file = fs.open(segment)
        try:
            is_damaged = False
            for entry in (entry for entry in entries if entry.base_offset == base_offset):
                is_damaged |= entry.position > file.size()  # the entry before this one is missing
                if entry.content is None:
                    content = file.read_at(entry.size, entry.position)
                    is_damaged |= len(content) < entry.size or crc32c(content) != entry.checksum
                else:
                    file.write_at([entry.content], entry.position)
                    written += entry.size
            file.fdatasync()
        finally:
            file.close()
        if is_damaged:
            logger.error("journal damaged", partition=path.rpartition("/")[2], remedy="the partition is checked whole")
            unlink_all(fs, (f"{path}/{segment_name(base_offset, kind)}" for kind in INDEXES))
            fs.sync_directory(path)
    return written
