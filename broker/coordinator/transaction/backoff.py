"""How long to wait before the next attempt at something that has to succeed in the end. Never gives up by itself."""

from __future__ import annotations

import asyncio


class RetryBackoff:
    """Pauses of one series of attempts: `first_ms`, then twice as long each time, `last_ms` at most."""

    def __init__(self, first_ms: int, last_ms: int) -> None:
        self._next_s = min(first_ms, last_ms) / 1000
        self._last_s = last_ms / 1000

    def next_s(self) -> float:
        """The next pause in seconds, for whoever does not wait here."""
        pause_s = self._next_s
        self._next_s = min(pause_s * 2, self._last_s)
        return pause_s

    async def pause(self) -> None:
        """Wait; may be cancelled."""
        await asyncio.sleep(self.next_s())
