"""Hands out producer ids, from blocks that are durable in the metadata log before their first id is used.

Never hands out an id twice: a block that was taken and not used up before a restart is lost, which is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ....protocol.errors import ErrorCode, KafkaError

_REFILL_AT = 100
"""The next block is asked for when so few ids are left, so that nobody waits for it."""


class ProducerIdManager:
    """The producer ids of one broker."""

    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._current: list[int] = []
        self._refill: asyncio.Task[None] | None = None
        self._closed = False

    def take(self) -> int | None:
        """The next producer id, or None when `refill` has to be awaited first."""
        if len(self._current) <= _REFILL_AT and not self._closed:
            self._start_refill()
        return self._current.pop() if self._current else None

    async def refill(self) -> None:
        """Return when there are ids again; raises KafkaError COORDINATOR_NOT_AVAILABLE when no block can be had.

        That is the code which clients of every age retry: the disk may recover, the broker may start again.
        """
        if self._current:
            return
        if self._closed:
            raise _stopping()
        refill = self._start_refill()
        try:
            # Shielded: others wait for the same block, and one of them may be cancelled.
            await asyncio.shield(refill)
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no producer ids: {error}") from error
        except asyncio.CancelledError:
            if self._closed and refill.cancelled():
                raise _stopping() from None
            raise

    async def next(self) -> int:
        """A producer id that nobody has had before."""
        while (producer_id := self.take()) is None:
            await self.refill()
        return producer_id

    async def close(self) -> None:
        """Give up a block that is under way; whoever waits for it is told to ask again."""
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
        # Handed out in ascending order: pop() takes from the end.
        self._current = [*reversed(block), *self._current]


def _stopping() -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")


def _retrieve(task: asyncio.Task[None]) -> None:
    """Whoever waits sees the error; a prefetch nobody waited for is tried again by the next `take`."""
    if not task.cancelled():
        task.exception()
