"""Sync a directory that many logs share, with as few syncs as possible.

This module knows which changes of names in the directory (creations, removals, renames) are on disk. The caller changes
a name, gets a number from `changed`, and passes the number to `sync`, which returns when the change is on disk. One
sync covers every change that was made before it began. So a thousand partitions that are created together cost about
one sync, not a thousand.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ..system.descriptors import NO_SPACE, OUT_OF_DESCRIPTORS
from ..system.ports import FileSystem


class RootSyncFailed(OSError):
    """The directory that holds all partitions cannot be synced."""


class SharedDirectory:
    """The names in the directory at `path`. Call `changed` on the event loop's thread; `sync` may run in any thread."""

    def __init__(self, fs: FileSystem, path: str, lock: AbstractContextManager[Any]) -> None:
        self._fs = fs
        self._path = path
        self._lock = lock
        self._changes = 0
        self._synced = 0

    def changed(self) -> int:
        """Count a name that was created, removed or changed, and return the number to pass to `sync`."""
        self._changes += 1
        return self._changes

    def sync(self, change: int) -> None:
        """Return when the change with that number is on disk. Sync the directory unless an earlier call has done so.

        Raises RootSyncFailed if the sync fails. Raises OSError if no file descriptor or disk space was free for the
        sync; the caller then tries again.
        """
        with self._lock:
            if self._synced < change:
                self._sync()

    def sync_now(self) -> None:
        """Sync the directory in this thread, after a name in it has changed. Raises the same errors as `sync`."""
        with self._lock:
            self._sync()

    def _sync(self) -> None:
        """Sync the directory. The caller holds the lock."""
        covered = self._changes
        try:
            self._fs.sync_directory(self._path)
        except OSError as error:
            if error.errno in (*NO_SPACE, *OUT_OF_DESCRIPTORS):
                raise
            raise RootSyncFailed(error.errno, error.strerror, self._path) from error
        self._synced = covered
