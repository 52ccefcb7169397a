"""An event loop whose clock jumps: timers fire in order and at once, and nothing ever sleeps.

If nothing is ready and no timer is set, the loop raises Deadlock instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class Deadlock(RuntimeError):
    """Everything waits for something that will never happen."""


class JumpingSelector(selectors.DefaultSelector):
    """A selector that advances the time instead of waiting, and then calls `jumped`."""

    jumped: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def jump(self, timeout: float | None) -> None:
        """Advance the time by `timeout` seconds. Raises Deadlock if there is no timeout."""
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set")
        if timeout > 0:
            self.now += timeout
            self.jumped()

    def select(self, timeout: float | None = None) -> Any:
        self.jump(timeout)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock that jumps. Use it as `asyncio.Runner(loop_factory=VirtualTimeLoop)`."""

    selector = JumpingSelector

    def __init__(self) -> None:
        self._jumping = self.selector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def stand_still(self, at: float, seconds: float, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Stop the process for `seconds` in the turn after the one that runs the first timer due at `at` or later.

        The requests that arrive during this time are executed by `meanwhile`, in the turn after next.
        """

        def jumped() -> None:
            if self.time() >= at:
                self._jumping.jumped = lambda: None
                self.call_soon(self.call_soon, stand_still)

        def stand_still() -> None:
            self._jumping.now += seconds
            self.call_soon(self.call_soon, meanwhile)

        self._jumping.jumped = jumped


class LoopClock:
    """A clock with the time of the running loop. Its wall clock is ahead of that by `ahead_ms`."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.ahead_ms + round(asyncio.get_running_loop().time() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()
