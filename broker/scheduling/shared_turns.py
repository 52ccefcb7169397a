"""Let tasks that begin at the same time do their work one after the other, in several turns of the event loop.

`steps.py` divides the work of one task into slices. But all tasks that are ready run in the same turn, and very many
may become ready together, for example when one flush makes the decisions of a thousand transactions durable. All tasks
that share turns together do about one slice of work in each turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from .steps import SLICE, ResultT, Steps, run_in_slices

Obstacle: TypeAlias = Callable[[], "asyncio.Future[Any] | None"]
"""Returns None if work may be done now, else a future that is done when the obstacle may be over."""


class SharedTurns:
    """The turns of the event loop that some tasks share. The tasks get their turns in the order in which they ask.

    While there is an `obstacle`, no turn is given to tasks that wait.
    """

    def __init__(self, obstacle: Obstacle = lambda: None) -> None:
        self._obstacle = obstacle
        self._left = SLICE
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._is_counting = False

    async def take(self, units: int) -> None:
        """Wait until `units` of work may be done; usually return at once. More than a slice counts as one slice."""
        if self._left > 0 and not self._waiting:
            self._count(min(units, SLICE))
        else:
            await self.wait(units)

    def wait(self, units: int) -> asyncio.Future[None]:
        """Return a future that is done when `units` of work may be done, in one of the next turns.

        If there is an obstacle, it is over by then, but another task may have caused it again.
        """
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((granted, min(units, SLICE)))
        self._count(0)
        return granted

    async def run_in_slices(self, steps: Steps[ResultT], units: int) -> ResultT:
        """Run steps to their end and return their result, like `steps.run_in_slices`, but in shared turns.

        `units` is the expected work of all steps.
        """
        left = units

        def next_turn() -> Coroutine[Any, Any, None]:
            nonlocal left
            # With 0 left, the expected work is done, and the steps probably end now. Below 0, it was underestimated.
            taken = SLICE if left < 0 else max(left, 1)
            left -= SLICE
            return self.take(taken)

        try:
            await next_turn()
            return await run_in_slices(steps, next_turn)
        finally:
            steps.close()

    def _count(self, units: int) -> None:
        self._left -= units
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_counting = False
        self._left = SLICE
        while self._waiting and self._left > 0:
            obstacle = self._obstacle()
            if obstacle is not None:
                self._is_counting = True
                obstacle.add_done_callback(lambda _: self._begin_turn())
                return
            granted, units = self._waiting.popleft()
            if not granted.done():  # else its task was cancelled
                granted.set_result(None)
                self._count(units)
