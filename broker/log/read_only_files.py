"""Wrap a file system so that a damaged partition can be read through it, but not changed.

Every call that would change a byte or a name raises OSError (EROFS). Syncs are allowed, because they change neither.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NoReturn

from ..system.ports import Buffer, File, FileLock, FileSystem


def _refuse(path: str) -> NoReturn:
    """Raise the OSError of a read-only file system (EROFS) for `path`."""
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


class ReadOnlyFile:
    """An open file that can be read and synced. Writing and truncating raise OSError (EROFS)."""

    __slots__ = ("_file", "_path")

    def __init__(self, file: File, path: str) -> None:
        self._file = file
        self._path = path

    def write_at(self, pieces: Sequence[Buffer], position: int) -> None:
        _refuse(self._path)

    def read_at(self, size: int, position: int) -> bytes:
        return self._file.read_at(size, position)

    def truncate(self, size: int) -> None:
        _refuse(self._path)

    def size(self) -> int:
        return self._file.size()

    def fdatasync(self) -> None:
        self._file.fdatasync()

    def close(self) -> None:
        self._file.close()


class ReadOnlyFileSystem:
    """A read-only view of the file system `fs`: calls that would change a file or a name raise OSError (EROFS)."""

    __slots__ = ("_fs",)

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def open(self, path: str, *, create: bool = False) -> ReadOnlyFile:
        if create:
            _refuse(path)
        return ReadOnlyFile(self._fs.open(path), path)

    def read_file(self, path: str) -> bytes:
        return self._fs.read_file(path)

    def overwrite(self, path: str, content: bytes) -> None:
        _refuse(path)

    def close_overwritten(self, directory: str) -> None:
        self._fs.close_overwritten(directory)

    def exists(self, path: str) -> bool:
        return self._fs.exists(path)

    def is_directory(self, path: str) -> bool:
        return self._fs.is_directory(path)

    def file_size(self, path: str) -> int:
        return self._fs.file_size(path)

    def modified_ms(self, path: str) -> int:
        return self._fs.modified_ms(path)

    def list(self, directory: str) -> list[str]:
        return self._fs.list(directory)

    def make_directory(self, path: str) -> None:
        _refuse(path)

    def rename(self, source: str, target: str) -> None:
        _refuse(source)

    def unlink(self, path: str) -> None:
        _refuse(path)

    def remove_directory(self, path: str) -> None:
        _refuse(path)

    def sync_directory(self, path: str) -> None:
        self._fs.sync_directory(path)

    def free_space(self, path: str) -> int:
        return self._fs.free_space(path)

    def total_space(self, path: str) -> int:
        return self._fs.total_space(path)

    def lock(self, directory: str, name: str) -> FileLock | None:
        _refuse(directory)

    def boot_id(self) -> str:
        return self._fs.boot_id()
