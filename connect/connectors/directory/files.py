"""`Files`: tracks the files of a directory, and recognises each file after a rename, a restart or compression.

An `Entry` holds the known state of a file: its source partition {"directory", "fingerprint", "number"} and its offset
{"file", "device", "inode", "position", "line", "crc", "content_crc"}. The fingerprint is a hash of the first line. The
number distinguishes files with the same first line. A new file gets the highest number plus one. The numbers in use may
have gaps, because a user can reset the offset of any file, and a file can be deleted before it is read. So they are
taken from the list of all committed source partitions.

The length and CRC of the last line that was read show whether a file still has this line at this position. A file in
the directory is compared with the known entries:

- If the file has the device and inode of an entry, and still has the entry's last line, it is the same file. If its
  name has changed, it may be a new file with the inode of a deleted one, so it must have all lines that were read. A
  device may get another number when the machine restarts, so the inode alone is enough if the listing has no file on
  the entry's device.
- If the file has the device and inode of an entry, but not the entry's last line, it was truncated or rewritten. It is
  treated as a new file, and read from its start, even if it gets the same lines again. The last line is compared when a
  listing shows that the file has changed, and after a read if the file has changed since the listing. If the last line
  is missing after a read, the lines of this read are discarded. A truncation goes unnoticed if the file grows again and
  then has the same line at the same position.
- A gz file from which lines were read is still decompressed if its name loses the ending .gz. After a restart, it is
  recognised by its inode and all of these lines. If a file that was read as plain data gets the ending .gz, it is
  treated as a new file.
- A listing may miss a file while it is being renamed. So a file that disappeared after the task started may appear
  again: a file with its device and inode is the same file if it also has the same size and modification time.
- A file with another inode is a copy, made by copytruncate rotation or by gzip, if it begins with all lines that were
  read from an entry's file. In addition, the entry's file must be gone or truncated, and both names must belong to the
  same log. Reading continues in the copy. The entry has the CRC of all lines that were read. If an offset
  lacks this CRC, copies of its file are read again.
- If the entry's file still exists, a file that may be its copy is not read yet (see `Files._may_be_copy`). If the
  original then disappears, and more of it had been read than the copy contains, the copy is never read.
- Any other file is new.

Two files may have the same content although neither is a copy of the other. So a file is skipped for good only if it
is certainly a copy. Otherwise, the file is read, although its lines may then be repeated.

Lines that were written between the last read and a truncation exist only in the copy.
"""

from __future__ import annotations

import logging
import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...errors import ConnectError
from .copies import Match, base_name, compare, is_copy_name
from .lines import FileNotReadyError, IncompleteFileError, LineFile, UnreadableFileError, is_compressed
from .scanning import FileId, Listed, Listing, path_text

log = logging.getLogger(__name__)

_CERTAIN_BYTES: Final = 1024
"""The number of equal bytes that show that a file is a copy of a file that is gone.

If fewer bytes were read from that file, the equal content may be a coincidence.
"""

_ROTATION_S: Final = 300.0
"""How many seconds a file that may be a copy is not read, so that a rotation can truncate or delete the original."""

_DAMAGED_S: Final = 30.0
"""How many seconds a damaged gz file must stay unchanged before the task fails: a tool may still be writing it."""

_NEVER: Final = (-1, -1)


@dataclass(eq=False)
class Entry:
    """The state of a file: its source partition, and the offset up to which it was read."""

    partition: Mapping[str, Any]
    """Empty until the file has a number."""
    file: str = ""
    """The name of the file (`File.read_as`)."""
    device: int = -1
    inode: int = -1
    position: int = 0
    line: int = 0
    crc: int = 0
    content_crc: int | None = 0
    """The CRC of everything before the position. None if the offset lacks it, as an offset set by a user may."""
    rewritten: File | None = None
    """The file, if it was truncated or rewritten after the task started. Its old content may exist in a copy."""
    gone: tuple[int, int] | None = None
    """The file's last size and modification time, if it has disappeared since the task started."""

    @property
    def compressed(self) -> bool:
        """Whether the file is decompressed, so that positions count decompressed bytes."""
        return is_compressed(self.file)

    @property
    def id(self) -> FileId:
        """The identity that the file had when it was last recognised; (-1, -1) if it has been rewritten since then."""
        return FileId(self.device, self.inode)

    def advance(self, line: bytes) -> dict[str, Any]:
        """Move the position past a line; return the new source offset."""
        self.position += len(line)
        self.line, self.crc = len(line), zlib.crc32(line)
        offset = {
            "file": self.file,
            "device": self.device,
            "inode": self.inode,
            "position": self.position,
            "line": self.line,
            "crc": self.crc,
        }
        if self.content_crc is not None:
            offset["content_crc"] = self.content_crc = zlib.crc32(line, self.content_crc)
        return offset

    def is_before(self, file: LineFile) -> bool:
        """Return whether a file contains the last line that was read, at the same position.

        If nothing has been read yet, return whether the file begins with the entry's first line. Raises
        UnreadableFileError.
        """
        try:
            if self.position == 0:
                return bool(file.fingerprint() == self.partition["fingerprint"])
            return file.has(self.position, self.line, self.crc)
        except IncompleteFileError:
            return False

    def is_copied_to(self, file: LineFile) -> bool:
        """Return whether a file begins with everything that was read. Raises FileNotReadyError."""
        return self.is_before(file) and (self.position == 0 or file.crc(self.position) == self.content_crc)

    def is_renamed_to(self, file: LineFile) -> bool:
        """Return whether a file has all lines that were read or, if their CRC is not known, the last of them.

        Raises FileNotReadyError.
        """
        return self.is_before(file) if self.content_crc is None else self.is_copied_to(file)


class Copy(NamedTuple):
    """The result of comparing a file with a file that may be its original; `entry` belongs to the original."""

    entry: Entry
    stamp: tuple[int, int]
    """The size and modification time of the copy."""
    original: tuple[int, int] | None
    """The size and modification time of the original; None if lines of it had been read."""
    certain: bool
    """Whether the file is certainly a copy (a gz file of the whole original). If not, it waits for `_ROTATION_S`."""
    name: str
    """The name of the original."""
    size: int
    """The size of the original."""

    def is_doubtful(self, owner: File) -> bool:
        """Return whether `owner`, the file that has the entry, may be a new file with the inode of the original."""
        return owner.name != self.name or owner.stamp[0] < self.size


class Incomplete(NamedTuple):
    """The state of a gz file that cannot be read to its end."""

    stamp: tuple[int, int]
    """The size and modification time of the file."""
    since: float
    """The time (monotonic) when the file was first found in this state."""
    damage: str | None
    """Why the file is invalid; None if it ends too early."""


@dataclass(eq=False)
class File:
    """A file in the directory. `entry` is None until the file is recognised."""

    id: FileId
    path: str
    name: str
    read_as: str
    """The last name that says how the file is read: a name with .gz if and only if the file is decompressed."""
    seen: tuple[int, int]
    """The file's size and modification time when it was last listed or read."""
    entry: Entry | None = None
    stamp: tuple[int, int] = _NEVER
    """The file's size and modification time when it was last examined; `_NEVER` if it must be examined again."""
    more: bool = False
    """Whether the file may have lines that have not been read."""
    handle: LineFile | None = None
    gone: bool = False
    unopened: bool = False
    """Whether the last attempt to open the file has failed. Only the first of consecutive failures is logged."""
    unreadable: bool = False
    """Whether the last attempt to read the open file has failed. Only the first of consecutive failures is logged."""
    incomplete: Incomplete | None = None
    """The state of a gz file when it last could not be read to its end; None if this has not happened."""
    cut_off: bool = False
    """Whether a warning has been logged that the file ends too early."""
    copy: Copy | None = None
    """The result of the last comparison that showed that this file may be a copy; None if no comparison did."""
    waits_since: float | None = None
    """The time (monotonic) when the file began to wait for `_ROTATION_S`; None if it has not waited."""

    @property
    def compressed(self) -> bool:
        """Whether the file is decompressed."""
        return is_compressed(self.read_as)

    def close(self) -> None:
        """Close the file if it is open."""
        if self.handle is not None:
            self.handle.close()
            self.handle = None


Offsets = Callable[[list[Mapping[str, Any]]], Iterable[Mapping[str, Any] | None]]


class Files:
    """The files of one task: `is_mine` accepts their fingerprints (hashes of the first lines)."""

    def __init__(
        self,
        directory: str,
        max_line_bytes: int,
        committed: Iterable[Mapping[str, Any]],
        offsets: Offsets,
        is_mine: Callable[[str], bool],
    ) -> None:
        """Keep the numbers of the source partitions in `committed`. `offsets` reads their offsets when files appear."""
        self._directory, self._max_line_bytes = directory, max_line_bytes
        self._offsets, self._is_mine = offsets, is_mine
        self.known: dict[FileId, File] = {}
        self._numbers: dict[str, list[int]] = {}
        """The numbers that had offsets at the start of the task, by fingerprint, of all tasks of the connector."""
        for partition in committed:
            match partition:
                case {"directory": path, "fingerprint": str(fingerprint), "number": int(number)}:
                    if path == directory:
                        self._numbers.setdefault(fingerprint, []).append(number)
        self._groups: dict[str, list[Entry]] = {}
        """The entries with each fingerprint, by ascending number."""
        self._owners: dict[Entry, File] = {}
        self._devices: set[int] = set()
        """The devices of the files in the current listing."""
        self._unlisted: set[str] = set()
        """The paths that could not be accessed during the last listing."""
        self._intact: set[File] = set()
        """The files that were found to be intact since the last listing."""
        self._unread: set[str] = set()
        """The paths in `_unlisted`, and those of files that could not be read and so have no entry; all as texts."""

    def update(self, listing: Listing) -> list[File]:
        """Process the current listing of the directory. Return the files that may have new lines, the oldest first.

        Files that the listing hides, because they cannot be accessed now, are not treated as gone. They are returned
        if they are open. Raises ConnectError for a damaged gz file.
        """
        self._warn_of_unlisted(listing.unlisted)
        there = {each.id: each for each in listing.files}
        for identity, file in list(self.known.items()):
            now = there.get(identity)
            if now is None:
                if not listing.hides(file.path):
                    self._vanished(file)
                continue
            is_known = file.entry is not None or file.seen == now.stamp
            file.path, file.name, file.seen, file.gone = now.path, now.name, now.stamp, False
            if is_compressed(now.name) == file.compressed:
                file.read_as = now.name
            elif not (file.compressed and is_known):  # it was read as compressed data, or may be a new file
                file.incomplete = None
                self._forget_content(file)
            if file.unreadable and file.handle is not None:
                self._reopen(file)
            if file.incomplete is not None and file.incomplete.stamp == now.stamp:
                self._stays_incomplete(file, file.incomplete)
            if file.entry is not None:
                file.more |= file.stamp != now.stamp
                intact = file.stamp == now.stamp or self._is_intact(file, file.entry)
                if intact:  # otherwise, it may be a new file with the inode of a deleted one
                    file.stamp, file.entry.file = now.stamp, file.read_as
                elif intact is False:
                    _warn_rewritten(file)
                    self._forget_content(file)
        for each in there.values():
            if each.id not in self.known:
                self.known[each.id] = File(each.id, each.path, each.name, each.name, each.stamp)
        self._identify([each for each in self.known.values() if each.entry is None and each.id in there], there)
        ready = [
            file
            for file in self.known.values()
            if file.entry and (file.more if file.gone or file.id in there else file.handle is not None)
        ]
        return sorted(ready, key=lambda file: there[file.id].stamp[1] if file.id in there else 0)

    def open(self, file: File) -> LineFile | None:
        """Open a file for reading and return it, or return None if it cannot be opened now or was renamed."""
        if file.handle is None:
            file.handle = self._look(file)
        return file.handle

    def incomplete(self, file: File, stamp: tuple[int, int], error: IncompleteFileError) -> None:
        """Record that a gz file of this size and modification time cannot be read to its end.

        If the file ends too early, and the next listing shows it unchanged, a warning is logged once. If its content is
        invalid, and the file stays unchanged for `_DAMAGED_S`, `update` raises ConnectError.
        """
        known = file.incomplete
        since = known.since if known is not None and known.stamp == stamp else time.monotonic()
        file.incomplete = Incomplete(stamp, since, error.damage)

    def unreadable(self, file: File, reason: str) -> None:
        """Record that an open file cannot be read now. It is examined again after the next listing.

        A warning is logged, unless the previous read of the file failed as well.
        """
        self._examine_again(file)
        if not file.unreadable:
            file.unreadable = True
            _warn_unreadable(file, reason)

    def close(self) -> None:
        """Close all open files."""
        for file in self.known.values():
            file.close()

    def _warn_of_unlisted(self, unlisted: Mapping[str, str]) -> None:
        """Log warnings for the paths that have become inaccessible: one for each directory and reason."""
        groups: dict[tuple[str, str], list[str]] = {}
        for path, reason in unlisted.items():
            if path not in self._unlisted:
                groups.setdefault((os.path.dirname(path), reason), []).append(path)
        for (directory, reason), (path, *others) in groups.items():
            more = f" and {len(others)} more in {path_text(directory)}" if others else ""
            verb = "are" if others else "is"
            log.warning("%s%s cannot be accessed, and %s tried again: %s", path_text(path), more, verb, reason)
        self._unlisted = set(unlisted)

    def _stays_incomplete(self, file: File, known: Incomplete) -> None:
        name, remedy = path_text(file.path), "Replace the file, or exclude it (setting exclude)"
        if known.damage is not None:
            if time.monotonic() - known.since < _DAMAGED_S:
                return
            raise ConnectError(f"{name} is damaged: {known.damage}. {remedy}")
        if not file.cut_off:
            file.cut_off = True
            log.warning("%s is cut off, and no longer grows: a gz file is read once it is complete. %s", name, remedy)

    def _vanished(self, file: File) -> None:
        """If a file that is gone is open, let it be read to its end; otherwise, stop tracking it.

        An open file stays open at least until the next listing, because a listing may miss a file that is being
        renamed. While it is open, no other file gets its inode.
        """
        ended = file.gone and not file.more and not file.unreadable
        file.gone = file.more = True
        if file.entry is None or file.handle is None or ended:
            file.close()
            if file.entry is not None:
                file.entry.gone = file.seen
                del self._owners[file.entry]
            del self.known[file.id]

    def _reopen(self, file: File) -> None:
        """Reopen a file whose reads have failed. If this fails, keep the old handle: the file may have been deleted."""
        opened = self._look(file)
        if opened is not None:
            file.close()
            file.handle = opened

    def _is_intact(self, file: File, entry: Entry) -> bool | None:
        """Return whether a file still has its entry's last line; None if the file cannot be read now."""
        opened = self._look(file)
        if opened is None:
            return None
        try:
            return entry.is_before(opened)
        except UnreadableFileError as error:
            self.unreadable(file, str(error))
            return None
        finally:
            opened.close()

    def _forget_content(self, file: File) -> None:
        """Let a file be identified as a new one."""
        file.close()
        entry = file.entry
        file.entry, file.read_as, file.stamp, file.copy, file.waits_since = None, file.name, _NEVER, None, None
        if entry is not None:
            # If the file gets the same lines again, these are new.
            entry.device, entry.inode, entry.rewritten = -1, -1, file
            del self._owners[entry]

    def _identify(self, files: list[File], there: Mapping[FileId, Listed]) -> None:
        """Assign entries to files: first by devices and inodes, then by inodes alone, then by their content."""
        changed: list[tuple[File, str]] = []
        examined: list[File] = []
        self._intact.clear()
        self._unread = set(map(path_text, self._unlisted))
        self._devices = {identity.device for identity in there}
        try:
            # An original is recognised before its copies, whose names are longer.
            for file in sorted(files, key=lambda each: (len(each.name), there[each.id].stamp[1])):
                if file.stamp == there[file.id].stamp and not self._is_due(file):
                    continue
                file.stamp = there[file.id].stamp
                examined.append(file)
                try:
                    fingerprint = self._fingerprint(file)
                except UnreadableFileError as error:
                    self.unreadable(file, str(error))
                    continue
                except IncompleteFileError as error:
                    self.incomplete(file, file.stamp, error)
                    file.stamp = _NEVER
                    continue
                if fingerprint is not None and self._is_mine(fingerprint):
                    changed.append((file, fingerprint))
            self._load({fingerprint for _, fingerprint in changed})
        except BaseException:
            for file in examined:
                file.stamp = _NEVER
            raise
        for method in (_by_id, self._by_inode, self._by_content):
            changed = [
                (file, fingerprint) for file, fingerprint in changed if not self._claim(file, fingerprint, method)
            ]
        for file, _ in changed:
            if file.copy is None or self._is_due(file):
                file.stamp = _NEVER

    def _fingerprint(self, file: File) -> str | None:
        """Return the hash of a file's first line; None if the line is incomplete, or if the file cannot be opened now.

        A file that an earlier run has decompressed is still decompressed if it has lost the ending .gz since then.
        Raises FileNotReadyError.
        """
        if not file.compressed and self._numbers:
            opened = self._look(file, compressed=True)
            if opened is None:
                return None
            try:
                file.read_as = self._name_before(file, opened) or file.read_as
            finally:
                opened.close()
        opened = self._look(file)
        if opened is None:
            return None
        try:
            return opened.fingerprint()
        finally:
            opened.close()

    def _name_before(self, file: File, opened: LineFile) -> str | None:
        """Return the name under which an earlier run has decompressed a file, or None. Raises UnreadableFileError."""
        with suppress(IncompleteFileError):  # it is no gz file, or no complete one
            fingerprint = opened.fingerprint()
            if fingerprint not in self._numbers:
                return None
            self._load({fingerprint})
            for entry in reversed(self._groups[fingerprint]):
                has_inode = entry.id == file.id or (entry.device not in self._devices and entry.inode == file.id.inode)
                if has_inode and entry.compressed and entry not in self._owners and entry.is_renamed_to(opened):
                    return entry.file
        return None

    def _is_due(self, file: File) -> bool:
        """Return whether a file that may be a copy must be examined again although it has not changed."""
        if file.copy is None:
            return False
        owner = self._owners.get(file.copy.entry)
        if owner is None or owner.gone or file.copy.stamp != file.stamp or file.copy.is_doubtful(owner):
            return True
        return file.copy.original != _unread_stamp(owner, file.copy.entry) or not (file.copy.certain or _waits(file))

    def _claim(
        self, file: File, fingerprint: str, method: Callable[[File, LineFile, list[Entry]], Entry | None]
    ) -> bool:
        """Assign to a file the entry that `method` returns. Return False if another method must be tried."""
        opened = self._look(file)
        if opened is None:
            return True
        group = self._groups[fingerprint]
        try:
            free = group if method == self._by_content else [each for each in group if each not in self._owners]
            entry = method(file, opened, free)
        except UnreadableFileError as error:
            self.unreadable(file, str(error))
            return True
        except IncompleteFileError as error:
            self.incomplete(file, file.stamp, error)
            return False
        finally:
            opened.close()
        if entry is None:
            return False
        if entry not in group:
            entry.partition = self._partition(fingerprint, group[-1].partition["number"] + 1 if group else 0)
            group.append(entry)
        file.entry, file.more, file.incomplete = entry, True, None
        (entry.device, entry.inode), entry.file, entry.rewritten, entry.gone = file.id, file.read_as, None, None
        self._owners[entry] = file
        return True

    def _by_inode(self, file: File, opened: LineFile, free: list[Entry]) -> Entry | None:
        """Return the newest entry with this file's inode and lines, if no listed file is on the entry's device.

        The number of the device has then probably changed, for example because the machine was restarted. Returns None
        if there is no such entry.
        """
        elsewhere = [entry for entry in free if entry.device not in self._devices and entry.inode == file.id.inode]
        return _newest(elsewhere, file, opened)

    def _by_content(self, file: File, opened: LineFile, group: list[Entry]) -> Entry | None:
        """If this file is a copy of a known file, return that file's entry. Otherwise, return a new entry.

        Returns None if this cannot be decided yet:

        - The original still exists, or is still being read to its end.
        - A file that cannot be read now may be the original.
        - The original was truncated, renamed or deleted while the directory was listed, or later.
        """
        if file.compressed and self._path(file.read_as.removesuffix(".gz")) in self._unread:
            return None
        base, waited_for = base_name(file.read_as), file.copy and file.copy.entry
        free = [each for each in group if each not in self._owners]
        free = [each for each in free if each is waited_for or base == base_name(each.file)]
        # In the order of their last lines, so that a gz file is decompressed only once.
        before = {each for each in sorted(free, key=lambda each: each.position - each.line) if each.is_before(opened)}
        for entry in sorted(group, key=lambda each: -each.position):
            owner = self._owners.get(entry)
            compared = waited_for is entry
            if owner is not None and owner.gone:  # read the original to its end first
                if compared or (base == base_name(entry.file) and entry.is_before(opened)):
                    return None
            elif owner is not None:
                # The owner may be a new file with the inode of the original, if it cannot be examined yet.
                names, was_read = {owner.name, entry.file}, entry.position > 0
                may_be_copy = compared or any(is_copy_name(file.read_as, name, was_read=was_read) for name in names)
                if may_be_copy and self._may_be_copy(file, entry, opened):
                    return None
                is_same_log = was_read and base == base_name(entry.file)
                if is_same_log and entry.is_before(opened) and not self._is_there(owner, entry) and _waits(file):
                    return None
            elif self._is_unread(entry) and is_copy_name(file.read_as, entry.file, was_read=True):
                return None
            elif entry.rewritten is not file and (compared or base == base_name(entry.file)):
                certain = self._is_rewritten(entry) or compared or opened.compressed or entry.position >= _CERTAIN_BYTES
                if certain and entry in before and entry.is_copied_to(opened):
                    return entry
                if file.copy is not None and compared and file.copy.stamp == opened.stamp():
                    end = _at_end(opened)
                    if end.position < entry.position:  # all of its lines have been read from the original
                        return end
        return Entry({})

    def _is_there(self, file: File, entry: Entry) -> bool:
        """Return whether a file can be accessed, and still has its entry's last line; checked once after each listing.

        Otherwise, it may have been truncated, renamed or deleted while the directory was listed, or be a new file with
        the inode of a deleted one.
        """
        if file.stamp == _NEVER or path_text(file.path) in self._unread:
            return False
        if file not in self._intact and self._is_intact(file, entry):
            self._intact.add(file)
        return file in self._intact

    def _is_unread(self, entry: Entry) -> bool:
        """Return whether an entry's file could not be read, so that the task has not recognised it since it started."""
        return entry.rewritten is None and self._path(entry.file) in self._unread

    def _path(self, name: str) -> str:
        """Return the path of the file with this name, as text."""
        return os.path.join(path_text(self._directory), name)

    def _is_rewritten(self, entry: Entry) -> bool:
        """Return whether the file of an entry still exists, but no longer has the entry's content.

        Another file may have got its inode while the task was stopped, so the file must also have the entry's name.
        """
        if entry.rewritten is not None:
            return not entry.rewritten.gone
        return entry.gone is None and entry.id in self.known and self.known[entry.id].name == entry.file

    def _may_be_copy(self, file: File, entry: Entry, opened: LineFile) -> bool:
        """Return whether a file must wait because it may be a copy of the entry's file, which exists.

        A gz file with the whole content of the original is certainly a copy. Once lines of the original have been read,
        a file whose content is the beginning of the original may also be a copy. If the original is not truncated or
        deleted within `_ROTATION_S`, such a file is treated as a new file.

        Also returns True if the original cannot be read, or has changed since the directory was listed. The next
        listing shows whether it was truncated, deleted or renamed.
        """
        owner, known = self._owners[entry], file.copy if file.copy and file.copy.entry is entry else None
        # Until its first read, the original may be rewritten and still begin with the entry's first line.
        stamp, original = opened.stamp(), _unread_stamp(owner, entry)
        is_same = known is not None and (known.stamp, known.original) == (stamp, original)
        if known is None or not is_same or known.is_doubtful(owner):
            match = self._compared(owner, entry, opened)
            if match is None:
                return True
            is_gz = file.read_as == f"{owner.name}.gz" or (known is not None and known.certain)
            certain = is_gz and (match is Match.WHOLE or (is_same and known is not None and known.certain))
            if match is Match.DIFFERENT or (entry.position == 0 and not certain):
                file.copy = None if known is not None else file.copy
                return False
            known = file.copy = Copy(entry, stamp, original, certain, owner.name, owner.stamp[0])
        return known.certain or _waits(file)

    def _compared(self, owner: File, entry: Entry, copy: LineFile) -> Match | None:
        """Compare a file that may be a copy with the entry's file.

        Returns None if the entry's file cannot be read now, or no longer has the entry's last line. Also returns None
        if the possible copy is longer than the entry's file, and that file has changed during the comparison.
        """
        original = self._look(owner)
        if original is None:
            return None
        try:
            match = compare(copy, original)
            # The check follows the comparison, so that the result counts only if the original was not truncated before.
            return match if match is not None and entry.is_before(original) else None
        except FileNotReadyError as error:
            if error.file is copy:
                raise
            if isinstance(error, UnreadableFileError):
                self.unreadable(owner, str(error))
            return None
        finally:
            original.close()

    def _load(self, fingerprints: set[str]) -> None:
        """Read the stored offsets of the files with these fingerprints, unless they have been read before."""
        new = sorted(fingerprints - self._groups.keys())
        partitions = [
            self._partition(fingerprint, number)
            for fingerprint in new
            for number in sorted(self._numbers.get(fingerprint, ()))
        ]
        offsets = self._offsets(partitions) if partitions else ()
        self._groups |= {fingerprint: [] for fingerprint in new}  # not before the offsets have been read
        for partition, offset in zip(partitions, offsets, strict=True):
            if offset is not None:
                self._groups[partition["fingerprint"]].append(Entry(partition, **{"content_crc": None, **offset}))

    def _partition(self, fingerprint: str, number: int) -> Mapping[str, Any]:
        return {"directory": self._directory, "fingerprint": fingerprint, "number": number}

    def _look(self, file: File, *, compressed: bool = False) -> LineFile | None:
        """Open a file and return it, or return None if it cannot be read now or was renamed since the last listing.

        In both cases, the file is examined again after the next listing, even if it has not changed. The content is
        decompressed if that is how the file is read, or if it is `compressed`.
        """
        try:
            opened = LineFile(file.path, self._max_line_bytes, compressed or file.compressed)
        except OSError as error:
            self._examine_again(file)
            if not isinstance(error, FileNotFoundError) and not file.unopened:
                file.unopened = True
                _warn_unreadable(file, error.strerror or str(error))
            return None
        file.unopened = False
        try:
            if opened.id() == file.id:
                return opened
            self._examine_again(file)
        except UnreadableFileError as error:
            self.unreadable(file, str(error))
        opened.close()
        return None

    def _examine_again(self, file: File) -> None:
        """Let the next listing examine a file that cannot be read now. If it has no entry, a gz copy of it waits."""
        file.stamp = _NEVER
        if file.entry is None:
            self._unread.add(path_text(file.path))


def _warn_rewritten(file: File) -> None:
    log.warning(
        "%s was truncated or rewritten, and is read from its start. Lines that were written between the last read and "
        "the truncation exist only in a copy, if there is one",
        path_text(file.path),
    )


def _warn_unreadable(file: File, reason: str) -> None:
    log.warning("%s cannot be read, and is tried again: %s", path_text(file.path), reason)


def _by_id(file: File, opened: LineFile, free: list[Entry]) -> Entry | None:
    same = [entry for entry in free if entry.id == file.id and entry.gone in (None, file.stamp)]
    return _newest(same, file, opened)


def _newest(entries: list[Entry], file: File, opened: LineFile) -> Entry | None:
    """Return the newest of the entries whose lines the file contains, or None.

    If an entry has the name of the file, or if its offset has no `content_crc`, only the last line that was read is
    compared. Otherwise everything that was read is compared by this CRC.
    """
    for entry in reversed(entries):
        if entry.compressed != file.compressed:  # a new file with the inode of a deleted one
            continue
        if entry.is_before(opened) if entry.file == file.name else entry.is_renamed_to(opened):
            return entry
    return None


def _unread_stamp(owner: File, entry: Entry) -> tuple[int, int] | None:
    """Return the size and modification time of the entry's file; None if lines of it have been read."""
    return owner.stamp if entry.position == 0 else None


def _waits(file: File) -> bool:
    """Return whether a file that may be a copy must still wait: for `_ROTATION_S` from the first call on."""
    now = time.monotonic()
    if file.waits_since is None:
        file.waits_since = now
    return now - file.waits_since < _ROTATION_S


def _at_end(opened: LineFile) -> Entry:
    """Return a new entry at the end of a file, so that its content is skipped, even an incomplete last line.

    The last chunk of the content is stored as the entry's last line. Raises FileNotReadyError.
    """
    entry = Entry({})
    for data in opened.chunks():
        entry.advance(data)
    return entry
