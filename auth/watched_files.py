"""`WatchedFiles`: files whose content a service uses, and reads again when one of them has changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple


class FileState(NamedTuple):
    """The properties of a file that change when it is replaced or rewritten."""

    inode: int
    size: int
    modified_ns: int


def file_state(path: str | os.PathLike[str]) -> FileState:
    """Return the state of a file. Blocks. Raises OSError."""
    found = os.stat(path)
    return FileState(found.st_ino, found.st_size, found.st_mtime_ns)


class WatchedFiles:
    """A service's files, which are read again when they have changed. Its methods block."""

    def __init__(self, paths: Collection[str], read: Callable[[], None], error: type[Exception]) -> None:
        """`read` reads the files, and makes the service use their content.

        If the files cannot be used, `read` raises `error`, and the service keeps the former content.
        """
        self.paths = sorted(paths)
        self._read, self._error = read, error
        self._used: Mapping[str, FileState | None] = {}
        self._unusable: Mapping[str, FileState | None] = {}

    def read(self) -> None:
        """Read the files, even if they have not changed. Raises the exceptions of the constructor's `read`."""
        states = self._states()  # before they are read: a change in between is noticed the next time
        self._read()
        self._used = states

    def read_if_changed(self, report: Callable[[Exception], None]) -> bool:
        """Read the files if one of them has changed; return whether their new content is used.

        If the files cannot be used, `report` is called with the error, once for each change. The following calls read
        the files again, even without a further change, because permissions may have changed.
        """
        states = self._states()
        if states == self._used:
            self._unusable = {}
            return False
        try:
            self._read()
        except self._error as error:
            if states != self._unusable:
                report(error)
            self._unusable = states
            return False
        self._used, self._unusable = states, {}
        return True

    def _states(self) -> dict[str, FileState | None]:
        return {path: _state_or_none(path) for path in self.paths}


def _state_or_none(path: str) -> FileState | None:
    try:
        return file_state(path)
    except OSError:
        return None
