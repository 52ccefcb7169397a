"""`WaitingLine`: a first-in, first-out queue of the tasks that wait for a producer. Its length and the wait are
bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class TooManyWaitingError(Exception):
    """The queue already has `max_waiting` tasks."""


class WaitingLine:
    """A queue of tasks. In `await line.wait(choose)` a task waits until it is first in the queue and its `choose`
    succeeds.

    `choose` returns None if it fails. Call `wake` whenever a `choose` may succeed: the first task then calls its
    `choose` again.
    """

    def __init__(self, max_waiting: int, max_wait_s: float) -> None:
        self._most = max_waiting
        self._max_wait_s = max_wait_s
        self._turns: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._turns)

    async def wait(self, choose: Callable[[], int | None]) -> int:
        """Wait until `choose` returns a value that is not None, and return the value.

        Raises TooManyWaitingError at once if the queue is full, TimeoutError after `max_wait_s`, or the error given to
        `close`.
        """
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
                    # Another task took the free value first: this task stays first in the queue.
                    self._turns.remove(turn)
                    turn = loop.create_future()
                    self._turns.appendleft(turn)
        finally:
            self._turns.remove(turn)
            self.wake()

    def wake(self) -> None:
        """Let the first task in the queue call its `choose`."""
        if self._turns and not self._turns[0].done():
            self._turns[0].set_result(None)

    def close(self, error: Exception) -> None:
        """End every wait with `error`."""
        for turn in self._turns:
            if not turn.done():
                turn.set_exception(error)
