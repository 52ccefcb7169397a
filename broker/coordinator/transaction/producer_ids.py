"""Allocates producer ids, from blocks that are durable in the metadata log before their first producer id is used.

Never allocates a producer id twice. The unused rest of a block is lost at a restart, which is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ....protocol.errors import ErrorCode, KafkaError

_REFILL_AT = 100
"""The next block is requested when this many producer ids are left, so that producers seldom wait for a block."""


class ProducerIdManager:
    """The allocator of one broker's producer ids."""

    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._current: list[int] = []
        self._refill: asyncio.Task[None] | None = None
        self._closed = False

    def take(self) -> int | None:
        """Return the next producer id, or None if the caller must await `refill` first."""
        if len(self._current) <= _REFILL_AT and not self._closed:
            self._start_refill()
        return self._current.pop() if self._current else None

    async def refill(self) -> None:
        """Return when producer ids are available, allocating a block if necessary.

        Raise KafkaError COORDINATOR_NOT_AVAILABLE if no block can be allocated or the broker is stopping. Clients of
        all versions retry after this code. When they retry, the disk may have recovered, or the broker may have been
        restarted.
        """
        if self._current:
            return
        if self._closed:
            raise _stopping()
        refill = self._start_refill()
        try:
            # Shielded, because other requests wait for the same block, and this request may be cancelled.
            await asyncio.shield(refill)
        except KafkaError as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Producer ids cannot be allocated: {error}"
            ) from error
        except asyncio.CancelledError:
            if self._closed and refill.cancelled():
                raise _stopping() from None
            raise

    async def next(self) -> int:
        """Return a producer id that has never been used before, waiting for a block if necessary.

        Raise KafkaError like `refill`.
        """
        while (producer_id := self.take()) is None:
            await self.refill()
        return producer_id

    async def close(self) -> None:
        """Cancel a pending allocation of a block. Requests that wait for it fail with COORDINATOR_NOT_AVAILABLE."""
        self._closed = True
        if self._refill is not None:
            self._refill.cancel()
            await asyncio.gather(self._refill, return_exceptions=True)

    def _start_refill(self) -> asyncio.Task[None]:
        if self._refill is None or self._refill.done():
            self._refill = asyncio.get_running_loop().create_task(self._take_block(), name="producer-id-block")
            self._refill.add_done_callback(_retrieve)
        return self._refill

    async def _take_block(self) -> None:
        block = await self._allocate_block()
        # Reversed, so that pop() takes the producer ids in ascending order.
        self._current = [*reversed(block), *self._current]


def _stopping() -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The broker is stopping.")


def _retrieve(task: asyncio.Task[None]) -> None:
    """Mark the task's error as retrieved, so that asyncio does not report it.

    A waiting request raises the error. If no request waits, the error has no effect, because the next `take` tries
    again.
    """
    if not task.cancelled():
        task.exception()
