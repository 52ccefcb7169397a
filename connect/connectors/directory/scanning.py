"""Lists the files of a directory whose names match patterns."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ...errors import ConnectError

_LIKE_AN_ESCAPE: Final = re.compile(r"\\(?=x(?:5c|[89a-f][0-9a-f]))")


class FileId(NamedTuple):
    """The identity of a file while it exists: inodes are unique only within a device."""

    device: int
    inode: int


class Listed(NamedTuple):
    """A file. `name` is the text of the path relative to the directory (`path_text`).

    `stamp` is the size and the modification time in ns.
    """

    id: FileId
    path: str
    name: str
    stamp: tuple[int, int]


def path_text(path: str) -> str:
    r"""Return a path as text, with \xHH for each byte that is not valid UTF-8.

    Different paths become different texts: in a path that contains such an escape itself, \ becomes \x5c.
    """
    escaped = _LIKE_AN_ESCAPE.sub(r"\\x5c", path)
    return escaped.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def listed(directory: str, include: Sequence[str], exclude: Sequence[str], recursive: bool) -> list[Listed]:
    """Return the matching files. Raises ConnectError if the directory cannot be read."""
    found = []
    for path in _paths(directory, recursive):
        name = path_text(os.path.relpath(path, directory))
        if not _matches(name, include) or _matches(name, exclude):
            continue
        try:
            status = os.stat(path)
        except OSError:
            continue  # deleted in the meantime, or a dangling link
        if stat.S_ISREG(status.st_mode):
            found.append(Listed(FileId(status.st_dev, status.st_ino), path, name, (status.st_size, status.st_mtime_ns)))
    return found


def _paths(directory: str, recursive: bool) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except OSError as error:
        raise ConnectError(
            f"directory {path_text(directory)} cannot be listed: {error.strerror}; check the setting directory"
        ) from error
    for name, is_directory in names:
        path = os.path.join(directory, name)
        if not is_directory:
            yield path
        elif recursive:
            yield from _paths(path, recursive)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
