"""Redo the journal when the broker starts: write its entries into the partitions' files, which may lack them.

This module defines the order of the steps, each of which may be repeated after a crash:

1. `read_journal` reads all journal files. An entry is used unless a void in a later batch invalidates it. The last
   batch of the journal may be torn. In that case, it was never acknowledged.
2. `drop_needless` drops the entries below the recovery points, whose records are on disk in the files of their
   partitions. It also drops each entry whose mark differs from that of its segment: the segment then belongs to a later
   partition of the same name.
3. `redo` writes the entries of each partition, and syncs the files. It also writes bytes that a file already seems to
   contain: after a failed sync, they may be in the page cache alone. No file or directory is created. If one is
   missing, its partition or segment may have been deleted after the entry was written. If not, the loader finds the
   loss.
4. The loader recovers the logs. `end_offset` says up to which offset records were acknowledged.
5. `remove` removes the journal files. If the entries of a partition could not be written or synced, they are kept in a
   file of their own (`keep`) for the next start, and the partition stays offline. If there is no space for that file,
   all journal files stay (`leave`).

Damaged bytes in the middle of the journal affect only the partition that they belong to. The other entries of this
partition are redone, and the indexes of the damaged entry's segment are removed, so that the loader reads all batches
of that segment and finds out which ones are missing. If the list of entries of a batch is damaged, it is not known
which partitions the entries belong to. Then, if the operating system has been restarted since the journal was written,
nothing is redone and the start fails. Otherwise the page cache still has all bytes of these entries, and the loader
writes them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog
from crc32c import crc32c

from ..system.descriptors import OUT_OF_DESCRIPTORS
from ..system.ports import FileSystem
from .batch_scan import BrokenBatch, scan_batches
from .file_names import INDEXES, JOURNAL, LOG, TEMPORARY, parse_journal_name, parse_partition_directory, segment_name
from .journal_file import journal_path, read_journal_file, write_kept_file
from .journal_format import KEPT, Batch, Entry, FileContent, Void, segment_mark
from .removal import unlink_all

logger = structlog.get_logger(__name__)

_EMPTY: Final = -1
"""The value that an empty segment has instead of a mark (`segment_mark`). No entry has this mark."""


class JournalDamaged(Exception):
    """An acknowledged batch is missing from a journal file, or the batch's list of entries is damaged.

    The message says what to do. `path`: the file. `position`: the byte at which the damaged batch begins, or -1 if
    batches are missing at the end of the file.
    """

    def __init__(self, path: str, position: int) -> None:
        self.path = path
        self.position = position
        place = f"at byte {position}" if position >= 0 else "at its end"
        super().__init__(
            f"{path} is damaged {place}. It contains acknowledged records, but it is not known which partitions they"
            " belong to. Restore the file from a copy, or run `oncelog log repair` on the data directory, which redoes"
            " the rest of the journal"
        )


@dataclass(frozen=True, slots=True)
class Leftover:
    """A journal file that stays for the next start to redo. It has entries of the partitions `names`.

    `kept_for`: the partition whose deletion makes the file unnecessary, because the file has entries of this partition
    alone and no voids; else None.
    """

    path: str
    names: frozenset[str]
    kept_for: str | None = None


@dataclass(slots=True)
class LeftJournal:
    """The journal that the last run has left in `directory`.

    `entries`: the entries that no void invalidates, by the name of the partition, in order. `paths`: the journal files.
    `empty`: those of them that have no batch. `number`: the number of the next file, which is higher than all numbers
    in use. `sequence`: the sequence of the next batch. `damage`: why entries may be missing, or None. `same_boot`:
    whether the operating system has run without a restart since the journal was written, so that the page cache should
    have the missing bytes. `failures`: the errors of the partitions whose entries cannot be redone.
    """

    directory: str
    paths: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    number: int = 1
    sequence: int = 1
    damage: JournalDamaged | None = None
    same_boot: bool = False
    failures: dict[str, OSError] = field(default_factory=dict)

    def end_offset(self, name: str) -> int:
        """Return the offset up to which the journal has made records of the partition durable; 0 if it has none."""
        return max((entry.end_offset for entry in self.entries.get(name, ())), default=0)

    def drop_needless(self, fs: FileSystem, recovery_points: Mapping[tuple[str, int], int]) -> None:
        """Drop the entries of records that are on disk, and those of deleted partitions whose names are in use again.

        A partition whose segments cannot be read is added to `failures`. Raises OSError if no file descriptor is free.
        """
        for name, entries in list(self.entries.items()):
            key = parse_partition_directory(name)
            on_disk = 0 if key is None else recovery_points.get(key, 0)
            needed = [entry for entry in entries if entry.end_offset > on_disk]
            try:
                # Only damage can hide a void. Without damage, an empty segment proves nothing: the page cache has lost
                # the segment's bytes if the disk was detached meanwhile.
                void_lost = self.same_boot and self.damage is not None
                needed = _of_this_partition(fs, f"{self.directory}/{name}", needed, empty_is_new=void_lost)
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    raise
                self.failures[name] = error
            if needed:
                self.entries[name] = needed
            else:
                del self.entries[name]

    def redo(self, fs: FileSystem) -> None:
        """Write the entries into the partitions' files, and sync the files. Errors are added to `failures`.

        Empty and unfinished journal files are removed first, because their space may be needed. Raises OSError if no
        file descriptor is free.
        """
        unfinished = (name for name in fs.list(self.directory) if name.endswith(JOURNAL + TEMPORARY))
        unlink_all(fs, [*self.empty, *(f"{self.directory}/{name}" for name in unfinished)])
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
        """Return the journal files, which all stay unchanged. `redo` has removed the empty ones."""
        names = frozenset(self.entries)
        return [Leftover(path, names) for path in self.paths if path not in self.empty]

    def keep(self, fs: FileSystem, file_id: bytes) -> list[Leftover]:
        """Write the entries of each partition in `failures` to a journal file of its own, and return these files.

        Removes the new files before it raises OSError.
        """
        kept: list[Leftover] = []
        try:
            for name in self.failures:
                path = journal_path(self.directory, self.number)
                kept.append(Leftover(path, frozenset((name,)), name))
                write_kept_file(fs, path, file_id, self.entries[name])
                self.number += 1
            if kept:
                fs.sync_directory(self.directory)
        except OSError:
            with suppress(OSError):
                unlink_all(fs, [leftover.path for leftover in kept])
            raise
        return kept

    def remove(self, fs: FileSystem) -> None:
        """Remove the journal files, because their entries are redone or kept elsewhere. Raises OSError.

        The oldest file is removed first, because the voids in a file invalidate entries of older files. Each removal is
        on disk before the next one begins.
        """
        for path in self.paths:
            if path not in self.empty:
                unlink_all(fs, [path])
                fs.sync_directory(self.directory)


def read_journal(fs: FileSystem, directory: str) -> LeftJournal:
    """Read the journal files in `directory`, leaving out damaged parts. Raises OSError."""
    left = LeftJournal(directory)
    files: list[FileContent] = []
    for number in sorted(number for number in map(parse_journal_name, fs.list(directory)) if number is not None):
        path = journal_path(directory, number)
        file = read_journal_file(fs, path)
        left.paths.append(path)
        left.number = number + 1
        if not file.batches and file.damage is None:
            left.empty.append(path)
        else:
            files.append(file)
    boot_id = fs.boot_id()
    left.same_boot = bool(boot_id) and all(file.header is not None and file.header.boot_id == boot_id for file in files)
    left.damage = _damage(files, [path for path in left.paths if path not in left.empty])
    if left.damage is not None and left.same_boot:
        remedy = "none: the page cache has all bytes"
        logger.warning("damaged journal not needed", file=left.damage.path, remedy=remedy)
    batches = list(_acknowledged(files))
    left.sequence = max((batch.sequence for batch in batches), default=0) + 1
    left.entries = entries_that_count(batches)
    return left


def entries_that_count(batches: Iterable[Batch]) -> dict[str, list[Entry]]:
    """Return, by partition, the entries of these batches that no later void invalidates."""
    entries: dict[str, list[Entry]] = {}
    for batch in batches:
        for void in batch.voids:
            _apply(entries, void)
        for entry in batch.entries:
            entries.setdefault(entry.name, []).append(entry)
    return entries


def _acknowledged(files: Iterable[FileContent]) -> Iterator[Batch]:
    """Yield, in order, the batches that were or may have been acknowledged.

    If a batch could not be written, the next file begins with a batch of the same sequence, which replaces it. Only the
    newest batch may be torn, because each batch is written only after the one before it is on disk.
    """
    batches = [(batch, file.may_be_torn) for file in files for batch in file.batches]
    newest = max((batch.sequence for batch, _ in batches), default=KEPT)
    last = {batch.sequence: batch for batch, _ in batches}
    for batch, may_be_torn in batches:
        is_torn = batch.sequence == newest and may_be_torn and not batch.is_whole
        if batch.sequence == KEPT or (batch is last[batch.sequence] and not is_torn):
            yield batch


def _damage(files: Sequence[FileContent], paths: Sequence[str]) -> JournalDamaged | None:
    """Return the first damage that hides which entries are missing; None if there is no such damage.

    Files are removed in the order in which they were written. So if there is a gap between the sequences of two files,
    batches are missing at the end of the first file.
    """
    written = KEPT
    before = ""
    for file, path in zip(files, paths, strict=True):
        if file.damage is not None:
            return JournalDamaged(path, file.damage)
        if not file.batches or file.batches[0].sequence == KEPT:
            continue
        if written != KEPT and file.batches[0].sequence > written + 1:
            return JournalDamaged(before, -1)
        written, before = file.batches[-1].sequence, path
    return None


def _apply(entries: dict[str, list[Entry]], void: Void) -> None:
    """Remove the entries that the void invalidates."""
    if void.name in entries:
        entries[void.name] = [entry for entry in entries[void.name] if entry.base_offset >= void.below]
        if not entries[void.name]:
            del entries[void.name]


def _of_this_partition(fs: FileSystem, path: str, entries: Sequence[Entry], *, empty_is_new: bool) -> list[Entry]:
    """Return the entries whose segment has their mark, is missing, or has no intact first batch. Raises OSError.

    `empty_is_new`: whether an empty segment is assumed to belong to a newer partition with the same name. This is right
    if a void may be lost but no written byte can be: the older partition's segment would then still have its bytes.
    """
    marks: dict[int, int | None] = {}
    for base_offset in {entry.base_offset for entry in entries}:
        segment = f"{path}/{segment_name(base_offset, LOG)}"
        marks[base_offset] = None
        if fs.is_directory(path) and fs.exists(segment):
            marks[base_offset] = _EMPTY if empty_is_new and not fs.file_size(segment) else _mark_of(fs, segment)
    needed = [entry for entry in entries if marks[entry.base_offset] in (None, entry.mark)]
    if len(needed) < len(entries):
        name = path.rpartition("/")[2]
        logger.warning(
            "journal entries of a deleted partition skipped",
            partition=name,
            entries=len(entries) - len(needed),
            remedy="none needed: they belong to an earlier partition of the same name",
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


def _in_segment(entries: Iterable[Entry], base_offset: int) -> Iterator[Entry]:
    return (entry for entry in entries if entry.base_offset == base_offset)


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
            # Entries that were copied to a new journal file (KEPT) come late in the journal. In the segment, entries
            # of older journal files may follow them.
            for entry in sorted(_in_segment(entries, base_offset), key=lambda entry: entry.position):
                is_damaged |= entry.position > file.size()  # the entry before this one is missing
                content = entry.content
                if content is None:
                    content = file.read_at(entry.size, entry.position)
                    if len(content) < entry.size or crc32c(content) != entry.checksum:
                        is_damaged = True
                        continue
                file.write_at([content], entry.position)
                written += entry.size
            file.fdatasync()
        finally:
            file.close()
        if is_damaged:
            remedy = "none needed: the damaged segment is scanned completely"
            logger.error("journal damaged", partition=path.rpartition("/")[2], remedy=remedy)
            unlink_all(fs, (f"{path}/{segment_name(base_offset, kind)}" for kind in INDEXES))
            fs.sync_directory(path)
    return written
