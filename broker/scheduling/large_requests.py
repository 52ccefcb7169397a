"""Limit how many large requests are executed at a time, by means of slots (`max.concurrent.large.requests`).

A large request is decoded, executed and answered while it holds a slot. It may keep the slot while it waits for the
disk. It releases the slot while it waits for another client's transaction, because this may take forever. At most as
many requests as there are slots may wait in this way, because each is completely in memory. Further requests are
refused with CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ...protocol.errors import ErrorCode, KafkaError


class LargeRequests:
    """The slots for large requests of one broker, granted in the order in which the requests began to wait."""

    def __init__(self, slots: int) -> None:
        self._free = asyncio.Semaphore(slots)
        self._most_waiting = slots
        self._waiting = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[Slot]:
        """Wait for a slot and hold it for the duration of the block."""
        slot = Slot(self)
        await slot.take()
        try:
            yield slot
        finally:
            slot.release()


class Slot:
    """The slot of one request; the request may release it temporarily."""

    __slots__ = ("_held", "_requests")

    def __init__(self, requests: LargeRequests) -> None:
        self._requests = requests
        self._held = False

    async def take(self) -> None:
        """Wait until a slot is free and take it."""
        await self._requests._free.acquire()
        self._held = True

    def release(self) -> None:
        """Release the slot if it is held."""
        if self._held:
            self._held = False
            self._requests._free.release()

    @asynccontextmanager
    async def given_back(self) -> AsyncIterator[None]:
        """Release the slot for the duration of the block, then wait for a slot again unless the request was cancelled.

        Does nothing if the slot is not held, for example because the request's response is deferred. Raises KafkaError
        CONCURRENT_TRANSACTIONS if too many requests already wait without their slots.
        """
        if not self._held:
            yield
            return
        requests = self._requests
        if requests._waiting >= requests._most_waiting:
            raise KafkaError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"{requests._waiting} large requests are already waiting for transactions, as many as"
                " max.concurrent.large.requests allows. Send the request again later.",
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
