"""The names in a directory that many logs share, put on disk with as few syncs as possible.

Owns which changes of the directory's names are on disk. Whoever makes a name takes a number with `changed`; `sync` with
that number returns when the name is on disk. One sync covers every change that was made before it began, so a thousand
partitions that are made together cost about one sync, not a thousand.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ..descriptors import OUT_OF_DESCRIPTORS
from ..ports import FileSystem


class RootSyncFailed(OSError):
    """The directory that holds all partitions cannot be synced."""


class SharedDirectory:
    """The names in the directory at `path`. `changed` is called on the event loop's thread, `sync` in any."""

    def __init__(self, fs: FileSystem, path: str, lock: AbstractContextManager[Any]) -> None:
        self._fs = fs
        self._path = path
        self._lock = lock
        self._changes = 0
        self._synced = 0

    def changed(self) -> int:
        """A name was made, removed or changed; returns the number to pass to `sync`."""
        self._changes += 1
        return self._changes

    def sync(self, change: int) -> None:
        """Return when the change of that number is on disk, whoever syncs it.

        Raises RootSyncFailed, or OSError when there was no descriptor for the sync.
        """
        with self._lock:
            if self._synced >= change:
                return
            covered = self._changes
            try:
                self._fs.sync_directory(self._path)
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    raise
                raise RootSyncFailed(error.errno, error.strerror, self._path) from error
            self._synced = covered
