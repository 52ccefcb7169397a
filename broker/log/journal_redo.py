"""Redo the journal at a start: write the entries whose bytes a loss of power took out of the partitions' files.

Owns the order of the steps, each of which may be repeated after a crash:

1. Read all journal files. An entry counts unless a void behind it makes it worthless. The last batch of the journal may
   be torn, because it was not acknowledged then.
2. For each partition, write the entries whose bytes differ, and sync the files. No file and no directory is created: if
   one is missing, the partition or the segment was deleted after the entry was written, or the loader finds the loss.
3. The loader recovers the logs. `end_offsets` says up to which offset records were acknowledged.
4. Remove the journal files. Entries of a partition that could not be written or synced are kept in a file of their own
   (`keep`) for the next start. That partition stays offline. Without the space for that, all files stay (`leave`).

Damage in the middle of the journal concerns the partition alone whose bytes are damaged: its other entries are redone,
and the indexes of the segment are removed, so that the loader reads all its batches and finds those that are missing.
If the list of entries is damaged, it is not known which partitions need them. Then nothing is redone, unless the
operating system has run on: then the page cache has all bytes, and the journal is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from crc32c import crc32c

from ..descriptors import OUT_OF_DESCRIPTORS
from ..ports import FileSystem
from .file_names import INDEXES, LOG, parse_journal_name, segment_name
from .journal_file import journal_path
from .journal_format import Entry, FileContent, Void, decode_file, encode_batch, encode_header
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
    files among them without a batch. `number` and `sequence` are above all that are in use.
    """

    directory: str
    paths: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    number: int = 1
    sequence: int = 1

    def end_offset(self, name: str) -> int:
        """Return the offset below which the journal has made records of the partition durable; 0 if it has none."""
        return max((entry.end_offset for entry in self.entries.get(name, ())), default=0)

    def redo(self, fs: FileSystem) -> dict[str, OSError]:
        """Write the entries that are missing in the partitions' files, and sync the files.

        Empty journal files are removed first, because their space may be needed. Return the errors by partition. Raises
        OSError if no file descriptor is free.
        """
        unlink_all(fs, self.empty)
        failures: dict[str, OSError] = {}
        for name, entries in self.entries.items():
            try:
                written = _redo_partition(fs, f"{self.directory}/{name}", entries)
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    raise
                failures[name] = error
            else:
                if written:
                    logger.info("journal redone", partition=name, bytes=written)
        return failures

    def leave(self) -> list[Leftover]:
        """Return the journal files as they are: all of them stay."""
        names = frozenset(self.entries)
        return [Leftover(path, names) for path in self.paths if path not in self.empty]

    def keep(self, fs: FileSystem, names: Iterable[str], file_id: bytes) -> list[Leftover]:
        """Keep the entries of each of these partitions in a journal file of its own, and return the files.

        The boot id in these files is unknown, so they are redone in any case. Raises OSError, which leaves no new file.
        """
        kept: list[Leftover] = []
        try:
            self._keep(fs, names, file_id, kept)
        except OSError:
            with suppress(OSError):
                unlink_all(fs, [leftover.path for leftover in kept])
            raise
        return kept

    def _keep(self, fs: FileSystem, names: Iterable[str], file_id: bytes, kept: list[Leftover]) -> None:
        """Create the files of `keep`, and add each to `kept`. Raises OSError."""
        for name in names:
            path = journal_path(self.directory, self.number)
            entries = [
                (name, entry.base_offset, entry.position, entry.end_offset, entry.content)
                for entry in self.entries[name]
                if entry.content is not None
            ]
            content = encode_header(self.number, file_id, "") + encode_batch(file_id, self.sequence, entries)
            kept.append(Leftover(path, frozenset((name,)), name))
            self.number, self.sequence = self.number + 1, self.sequence + 1
            file = fs.open(path, create=True)
            try:
                file.write_at([content], 0)
                file.fdatasync()
            finally:
                file.close()
        if kept:
            fs.sync_directory(self.directory)

    def remove(self, fs: FileSystem) -> None:
        """Remove the journal files; what they are needed for is done, or kept. Raises OSError."""
        if self.paths:
            unlink_all(fs, self.paths)
            fs.sync_directory(self.directory)


def read_journal(fs: FileSystem, directory: str, *, despite_damage: bool = False) -> LeftJournal:
    """Read the journal files in `directory`. Raises JournalDamaged unless `despite_damage`; raises OSError."""
    left = LeftJournal(directory)
    numbers = sorted(number for number in map(parse_journal_name, fs.list(directory)) if number is not None)
    files: list[FileContent] = []
    for number in numbers:
        path = journal_path(directory, number)
        file = decode_file(fs.read_file(path))
        if not despite_damage:
            if file.damage is not None:
                _check_needed(fs, file, path, file.damage)
            if files and number - 1 in numbers and _has_lost_its_end(files[-1], file):
                _check_needed(fs, file, left.paths[-1], -1)
        left.paths.append(path)
        left.number = number + 1
        if file.batches:
            left.sequence = file.batches[-1].sequence + 1
        elif file.damage is None:
            left.empty.append(path)
        files.append(file)
    for batch in (batch for file in files for batch in file.batches):
        for void in batch.voids:
            _apply(left.entries, void)
        for entry in batch.entries:
            left.entries.setdefault(entry.name, []).append(entry)
    return left


def _has_lost_its_end(file: FileContent, following: FileContent) -> bool:
    """Whether batches are missing between two files, so that the last batch of the first one was not torn."""
    return bool(file.batches and following.batches and file.batches[-1].sequence + 1 < following.batches[0].sequence)


def _check_needed(fs: FileSystem, file: FileContent, path: str, position: int) -> None:
    """Raise JournalDamaged unless the operating system has run on since the journal was written."""
    if not file.boot_id or file.boot_id != fs.boot_id():
        raise JournalDamaged(path, position)
    logger.warning("damaged journal not needed", file=path, remedy="none needed: the page cache has all bytes")


def _apply(entries: dict[str, list[Entry]], void: Void) -> None:
    """Remove the entries that the void makes worthless."""
    if void.name in entries:
        entries[void.name] = [entry for entry in entries[void.name] if entry.base_offset >= void.below]
        if not entries[void.name]:
            del entries[void.name]


def _redo_partition(fs: FileSystem, path: str, entries: Sequence[Entry]) -> int:
    """Write the entries of one partition that differ from its files, and sync these files; return the bytes written.

    The files are synced in any case: an earlier start may have written them without coming to the sync.
    """
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
                content = file.read_at(entry.size, entry.position)
                if entry.content is None:
                    is_damaged |= len(content) < entry.size or crc32c(content) != entry.checksum
                elif content != entry.content:
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
