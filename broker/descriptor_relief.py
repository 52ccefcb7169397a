"""Syncs files in the threads, so that a pool of descriptors never has to sync one on the event loop.

Owns when that begins and ends. Which files are synced, and what becomes of an error, is the pool's business.

When the loop needs a descriptor and none can be closed without a sync, it gets one beyond the pool's capacity. From
then on there is a crowd: whoever writes to many files waits in between until it has ended, because the threads have
synced enough of them. They begin earlier, when few files are left that can be closed at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, Protocol

from .ports import Lane, Threads

SYNCED_AT_ONCE: Final = 16
"""Files that are given to the flush threads together; a flush that somebody waits for has no more of them before it."""


class Crowding:
    """A sign that more files are open than the pool's capacity.

    `end` is a future that is done when that is over; None while no more are open. A request that appends to many logs
    looks at it between them, and waits.
    """

    __slots__ = ("end",)

    def __init__(self) -> None:
        self.end: asyncio.Future[None] | None = None

    async def wait_until_over(self) -> None:
        """Return when no more files are open than should be; at once if that is so."""
        while (end := self.end) is not None:
            await asyncio.shield(end)


class CrowdedPool(Protocol):
    """A pool, as its relief sees it. Its methods are called in any thread."""

    def unsynced(self) -> int:
        """How many files have unsynced bytes."""

    def is_over_capacity(self) -> bool:
        """Whether more descriptors are open than should be."""

    def is_short(self) -> bool:
        """Whether few descriptors are left that can be closed at once."""

    def sync_oldest(self) -> bool:
        """Sync one file, unless all are in use; False if it was not possible."""


class DescriptorRelief:
    """What the threads do for one pool. Used on the event loop on which it was made."""

    def __init__(self, pool: CrowdedPool, threads: Threads, crowding: Crowding) -> None:
        self._pool = pool
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._syncs = 0
        self._progress = False
        self._crowding = crowding

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the event loop."""
        with suppress(RuntimeError):
            return asyncio.get_running_loop() is self._loop
        return False

    def begin(self) -> None:
        """Sync files until enough can be closed, if that is not under way."""
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
        """Sync more if that helps; else let those go on who wait."""
        over = self._pool.is_over_capacity()
        if self._progress and (over or self._pool.is_short()):
            self.begin()
        end = self._crowding.end
        if end is not None and not (self._syncs and over):
            self._crowding.end = None
            end.set_result(None)
