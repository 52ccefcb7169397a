"""The slots of large requests (`max.concurrent.large.requests`), which bound how many are half-made at one time.

A large request is decoded, executed and answered in a slot. It may keep the slot while it waits for the disk. While it
waits for another client's transaction, which may take long or for ever, it gives the slot back. As many requests as
there are slots may wait like that, for each of them is in memory whole; one more is told to ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..protocol.errors import ErrorCode, KafkaError


class LargeRequests:
    """The slots of one broker, given out in the order in which they were asked for."""

    def __init__(self, slots: int) -> None:
        self._free = asyncio.Semaphore(slots)
        self._most_waiting = slots
        self._waiting = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[Slot]:
        """Wait for a slot, and have it as long as the block lasts."""
        slot = Slot(self)
        await slot.take()
        try:
            yield slot
        finally:
            slot.release()


class Slot:
    """The slot of one request; it may be given back for a while."""

    __slots__ = ("_held", "_requests")

    def __init__(self, requests: LargeRequests) -> None:
        self._requests = requests
        self._held = False

    async def take(self) -> None:
        """Wait until a slot is free."""
        await self._requests._free.acquire()
        self._held = True

    def release(self) -> None:
        """Let others have it, if it is held."""
        if self._held:
            self._held = False
            self._requests._free.release()

    @asynccontextmanager
    async def given_back(self) -> AsyncIterator[None]:
        """Be without the slot as long as the block lasts; then wait for one again, unless the request was cancelled.

        Nothing happens where it is not held: the answer of the request is deferred, for instance. Raises KafkaError
        CONCURRENT_TRANSACTIONS when too many requests wait without their slots already.
        """
        if not self._held:
            yield
            return
        requests = self._requests
        if requests._waiting >= requests._most_waiting:
            raise KafkaError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"{requests._waiting} large requests wait for transactions already, as many as"
                " max.concurrent.large.requests allows. Ask again.",
            )
        requests._waiting += 1
        self.release()
        try:
            try:
                yield
            except Exception:
                await self.take()
                raise
            await self.take()
        finally:
            requests._waiting -= 1
