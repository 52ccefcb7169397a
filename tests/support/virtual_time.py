"""An event loop whose clock jumps: timers fire in order and at once, nothing ever sleeps.

With nothing ready and no timer set, it raises Deadlock instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class Deadlock(RuntimeError):
    """Everything waits for something that will never happen."""


class JumpingSelector(selectors.DefaultSelector):
    """Where the loop would wait, time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def jump(self, timeout: float | None) -> None:
        """The wait is over."""
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set")
        if timeout > 0:
            self.now += timeout

    def select(self, timeout: float | None = None) -> Any:
        self.jump(timeout)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Use as `asyncio.Runner(loop_factory=VirtualTimeLoop)`."""

    selector = JumpingSelector

    def __init__(self) -> None:
        self._jumping = self.selector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class LoopClock:
    """Clock port that tells the running loop's time; its wall clock is `ahead_ms` ahead of that."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.ahead_ms + round(asyncio.get_running_loop().time() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()
