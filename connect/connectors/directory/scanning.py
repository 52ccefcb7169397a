"""Lists the files of a directory whose names match patterns."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ...errors import ConnectError

_WRONG_SETTING: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
"""The errors that probably mean that the setting directory is wrong."""

_LIKE_AN_ESCAPE: Final = re.compile(r"\\(?=x(?:5c|[89a-f][0-9a-f]))")


class FileId(NamedTuple):
    """The identity of a file while it exists: inodes are unique only within a device."""

    device: int
    inode: int


class Listed(NamedTuple):
    """A file. `name` is the path relative to the directory, as text (`path_text`).

    `stamp` is the size and the modification time in ns.
    """

    id: FileId
    path: str
    name: str
    stamp: tuple[int, int]


class Listing(NamedTuple):
    """The matching files of a directory.

    `unlisted` maps each path that cannot be accessed now, and so is missing from `files`, to the reason.
    """

    files: list[Listed]
    unlisted: dict[str, str]

    def hides(self, path: str) -> bool:
        """Return whether a path is `unlisted`, or in a directory that is."""
        while path not in self.unlisted:
            parent = os.path.dirname(path)
            if parent == path:
                return False
            path = parent
        return True


def path_text(path: str) -> str:
    r"""Return a path as text, with \xHH for each byte that is not valid UTF-8.

    Different paths become different texts, because \ becomes \x5c if the path itself contains such an escape.
    """
    escaped = _LIKE_AN_ESCAPE.sub(r"\\x5c", path)
    return escaped.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def listed(
    directory: str, include: Sequence[str], exclude: Sequence[str], recursive: bool, *, is_first: bool
) -> Listing:
    """Return the matching files. If the directory itself cannot be listed, it is `unlisted`.

    Raises ConnectError if this is the first listing, and the directory does not exist or the worker may not list it.
    """
    found = Listing([], {})
    try:
        entries = _entries(directory)
    except OSError as error:
        if is_first and error.errno in _WRONG_SETTING:
            raise ConnectError(
                f"directory {path_text(directory)} cannot be listed: {error.strerror}; check the setting directory"
            ) from error
        found.unlisted[directory] = error.strerror or str(error)
        return found
    for path in _paths(entries, recursive, found.unlisted):
        name = path_text(os.path.relpath(path, directory))
        if not _matches(name, include) or _matches(name, exclude):
            continue
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # deleted in the meantime, or a dangling link
        except OSError as error:
            found.unlisted[path] = error.strerror or str(error)
            continue
        if stat.S_ISREG(status.st_mode):
            found.files.append(
                Listed(FileId(status.st_dev, status.st_ino), path, name, (status.st_size, status.st_mtime_ns))
            )
    return found


def _entries(directory: str) -> list[tuple[str, bool]]:
    """Return the paths in a directory, and whether each is a directory. Raises OSError."""
    with os.scandir(directory) as entries:
        names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    return [(os.path.join(directory, name), is_directory) for name, is_directory in names]


def _paths(entries: list[tuple[str, bool]], recursive: bool, unlisted: dict[str, str]) -> Iterator[str]:
    """Yield the paths of the files, and add the subdirectories that cannot be listed to `unlisted`."""
    for path, is_directory in entries:
        if not is_directory:
            yield path
        elif recursive:
            try:
                below = _entries(path)
            except (FileNotFoundError, NotADirectoryError):
                continue  # deleted or replaced in the meantime
            except OSError as error:
                unlisted[path] = error.strerror or str(error)
                continue
            yield from _paths(below, recursive, unlisted)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
