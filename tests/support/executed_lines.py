"""Counts executed lines of Python: a measure of work that is the same on every machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any


class Lines:
    """Counts the lines of Python that are executed, in all and in the longest turn of the event loop."""

    def __init__(self) -> None:
        self.all = 0
        self.longest = 0

    async def of(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Count the lines until the awaitable that `work` returns is done."""
        former = sys.gettrace()
        sys.settrace(self._line)
        try:
            working = asyncio.ensure_future(work())
            self.longest = self.all
            while not working.done():
                before = self.all
                await asyncio.sleep(0)
                self.longest = max(self.longest, self.all - before)
            await working
        finally:
            sys.settrace(former)

    def _line(self, *_: Any) -> Any:
        self.all += 1
        return self._line
