"""Sync data files in the flush threads, so that the event loop never has to sync a file to free a descriptor.

This module decides when syncing begins and ends. The pool of descriptors (`pooled_files.py`) decides which files are
synced, and handles errors.

When the event loop needs a descriptor and every open file would have to be synced before it is closed, the loop opens a
descriptor beyond the pool's capacity. The pool is then crowded: a request that writes to many files waits between two
writes until the flush threads have synced enough files. To avoid this, the threads begin to sync files when only a few
files are left that can be closed without a sync.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, Protocol

from .ports import Lane, Threads

SYNCED_AT_ONCE: Final = 16
"""The maximum number of files that the flush threads get at a time, so that other flushes need not wait long."""


class Crowding:
    """Tells whether a pool has more files open than its capacity, and holds a future that is done when this is over.

    `end` is this future, or None while the pool is not crowded. A request that appends to many logs checks `end`
    between two logs, and awaits it unless it is None.
    """

    __slots__ = ("end",)

    def __init__(self) -> None:
        self.end: asyncio.Future[None] | None = None

    async def wait_until_over(self) -> None:
        """Wait until the open files are within the capacity; return at once if the pool is not crowded."""
        while (end := self.end) is not None:
            await asyncio.shield(end)


class CrowdedPool(Protocol):
    """The part of a pool that `DescriptorRelief` uses. Its methods may be called from any thread."""

    def unsynced(self) -> int:
        """Return the number of files that have unsynced bytes."""

    def is_over_capacity(self) -> bool:
        """Return whether more descriptors are open than the pool's capacity."""

    def is_short(self) -> bool:
        """Return whether few descriptors are left that can be closed without a sync."""

    def sync_oldest(self) -> bool:
        """Sync the least recently used file with unsynced bytes; return False if there is none or all are in use."""


class DescriptorRelief:
    """The part of a descriptor pool that makes the flush threads sync the pool's files.

    It is used on the event loop on which it was created.
    """

    def __init__(self, pool: CrowdedPool, threads: Threads, crowding: Crowding) -> None:
        self._pool = pool
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._syncs = 0
        self._progress = False
        self._crowding = crowding

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on the event loop on which this object was created."""
        with suppress(RuntimeError):
            return asyncio.get_running_loop() is self._loop
        return False

    def begin(self) -> None:
        """Start syncing files until enough of them can be closed. Do nothing if this is already in progress."""
        unsynced = self._pool.unsynced()
        if not (unsynced or self._syncs):
            return
        if self._crowding.end is None and self._pool.is_over_capacity():
            self._crowding.end = self._loop.create_future()
        if not self._syncs:
            self._progress = False
            self._syncs = min(unsynced, SYNCED_AT_ONCE)
            for _ in range(self._syncs):
                self._threads.run(Lane.FLUSH, self._pool.sync_oldest).add_done_callback(self._synced)

    def _synced(self, job: asyncio.Future[bool]) -> None:
        try:
            self._progress |= job.result()
        finally:
            self._syncs -= 1
            if not self._syncs:
                self._go_on()

    def _go_on(self) -> None:
        """Begin another round of syncs if the last one synced any file and the pool still needs more.

        Then complete the future `Crowding.end`, unless the pool is still over its capacity and a round is running.
        """
        over = self._pool.is_over_capacity()
        if self._progress and (over or self._pool.is_short()):
            self.begin()
        end = self._crowding.end
        if end is not None and not (self._syncs and over):
            self._crowding.end = None
            end.set_result(None)
