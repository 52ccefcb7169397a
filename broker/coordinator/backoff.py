"""Computes the pauses between attempts at an operation that must eventually succeed.

The number of attempts is not limited.
"""

from __future__ import annotations

import asyncio


class RetryBackoff:
    """An exponential backoff: the first pause is `first_ms`, and each further one is twice as long, up to `last_ms`."""

    def __init__(self, first_ms: int, last_ms: int) -> None:
        self._next_s = min(first_ms, last_ms) / 1000
        self._last_s = last_ms / 1000

    def next_s(self) -> float:
        """Return the next pause in seconds, without waiting."""
        pause_s = self._next_s
        self._next_s = min(pause_s * 2, self._last_s)
        return pause_s

    async def pause(self) -> None:
        """Wait as long as the next pause lasts. The wait may be cancelled."""
        await asyncio.sleep(self.next_s())
