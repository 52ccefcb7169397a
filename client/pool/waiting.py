"""The line of tasks that wait for a producer: `WaitingLine`. First come, first served; bounded, and so is the wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class TooManyWaitingError(Exception):
    """The line is full."""


class WaitingLine:
    """`await line.wait(choose)` returns what `choose` returns, as soon as that is not None and it is this task's turn.

    `wake` whenever `choose` may succeed; it lets the first in line try.
    """

    def __init__(self, max_waiting: int, max_wait_s: float) -> None:
        self._most = max_waiting
        self._max_wait_s = max_wait_s
        self._turns: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._turns)

    async def wait(self, choose: Callable[[], int | None]) -> int:
        """Raises TooManyWaitingError at once, TimeoutError after the longest wait, or what `close` is given."""
        if not self._turns and (chosen := choose()) is not None:
            return chosen
        if len(self._turns) >= self._most:
            raise TooManyWaitingError
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout(self._max_wait_s):
                while True:
                    await turn
                    if (chosen := choose()) is not None:
                        return chosen
                    # Somebody else was quicker: this task stays the first in line.
                    self._turns.remove(turn)
                    turn = loop.create_future()
                    self._turns.appendleft(turn)
        finally:
            self._turns.remove(turn)
            self.wake()

    def wake(self) -> None:
        """Let the first in line try."""
        if self._turns and not self._turns[0].done():
            self._turns[0].set_result(None)

    def close(self, error: Exception) -> None:
        """End every wait with `error`."""
        for turn in self._turns:
            if not turn.done():
                turn.set_exception(error)
