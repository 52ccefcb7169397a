"""Create, write, read and remove one journal file; the functions of this module run in threads.

A file is filled with zeros before it is used, so that the sync of a batch need not write file system metadata and
cannot fail because the disk is full. After a failed write or sync, the file is never written again, because it is not
known which bytes are on disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ..system.ports import File, FileSystem
from .file_names import JOURNAL, parse_journal_name, segment_name
from .journal_format import (
    HEADER_SIZE,
    ID_SIZE,
    KEPT,
    Entry,
    Extent,
    FileContent,
    Header,
    Void,
    decode_file,
    encode_batch,
    encode_header,
)
from .shared_directory import SharedDirectory
from .small_files import read_readable, replace_file

_FILLED_AT_ONCE: Final = 1 << 20
"""The number of zero bytes that are written and synced at a time. So syncs of other files need not wait until the whole
file is filled.
"""


class UnreadExtent(OSError):
    """The bytes of a partition could not be read, so nothing was written to the journal."""


def journal_path(directory: str, number: int) -> str:
    """Return the path of the journal file with that number."""
    return f"{directory}/{segment_name(number, JOURNAL)}"


class JournalFile:
    """An open journal file. `position`: where the next batch is written. Only one method may run at a time."""

    def __init__(self, fs: FileSystem, path: str, number: int, file: File, file_id: bytes, size: int) -> None:
        self.path = path
        self.number = number
        self.position = HEADER_SIZE
        self.size = size
        self._fs = fs
        self._file = file
        self._id = file_id

    def append(self, sequence: int, extents: Sequence[Extent], voids: Sequence[Void]) -> None:
        """Write a batch and sync it. Raises OSError; the file stays usable only if the error is an UnreadExtent."""
        entries = []
        for extent in extents:
            try:
                entries.append(extent.read())
            except OSError as error:
                raise UnreadExtent(error.errno, error.strerror, extent.name) from error
        batch = encode_batch(self._id, sequence, entries, voids)
        self._file.write_at([batch], self.position)
        self._file.fdatasync()
        self.position += len(batch)

    def close(self) -> None:
        """Close the file; the batches in it stay."""
        self._file.close()


def create_journal_file(
    fs: FileSystem, root: SharedDirectory, directory: str, number: int, file_id: bytes, size: int, reserve_bytes: int
) -> JournalFile:
    """Create an empty journal file of `size` bytes, and sync it and its directory.

    If OSError is raised, no file is left. The error is ENOSPC if the file would use the last `reserve_bytes` of the
    disk.
    """
    if fs.free_space(directory) < size + reserve_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), directory)
    path = journal_path(directory, number)
    file = fs.open(path, create=True)
    try:
        for position in range(0, size, _FILLED_AT_ONCE):
            file.write_at([bytes(min(_FILLED_AT_ONCE, size - position))], position)
            file.fdatasync()
        file.write_at([encode_header(Header(number, file_id[:ID_SIZE], fs.boot_id()))], 0)
        file.fdatasync()
        root.sync_now()
    except BaseException:
        file.close()
        with suppress(OSError):
            fs.unlink(path)
        raise
    return JournalFile(fs, path, number, file, file_id[:ID_SIZE], size)


def read_journal_file(fs: FileSystem, path: str) -> FileContent:
    """Return the content of a journal file, as far as the disk can read it. Raises OSError."""
    unreadable: list[range] = []
    file = fs.open(path)
    try:
        content = read_readable(file, path, file.size(), 0, unreadable)
    finally:
        file.close()
    return decode_file(content, unreadable)


def write_kept_file(fs: FileSystem, path: str, file_id: bytes, entries: Sequence[Entry]) -> None:
    """Write a journal file with only these entries, and sync its content, but not the directory. Raises OSError.

    The file has no boot id, so it is redone whether or not the operating system has been restarted. It gets its name
    when its content is on disk.
    """
    number = parse_journal_name(path.rpartition("/")[2])
    assert number is not None, path
    file_id = file_id[:ID_SIZE]
    content = encode_header(Header(number, file_id, "")) + encode_batch(file_id, KEPT, entries)
    replace_file(fs, path, content, sync=True)


def remove_journal_file(fs: FileSystem, root: SharedDirectory, path: str) -> None:
    """Remove a journal file, and sync the removal. Raises OSError."""
    with suppress(FileNotFoundError):
        fs.unlink(path)
    root.sync_now()
