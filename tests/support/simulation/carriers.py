"""Run plain code that pauses in the middle: it runs in a greenlet, piece by piece, while everything else waits.

A `Carrier` runs a call until the call invokes `pause`, which returns control to the carrier's owner. `resume` continues
the call. As in a thread, the call has no running event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from greenlet import greenlet


class Carrier:
    """A call that runs piece by piece. The call catches all of its exceptions."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._greenlet = greenlet(call)
        self._owner = greenlet.getcurrent()

    def resume(self) -> bool:
        """Begin or continue the call until it pauses (return True) or has ended (return False)."""
        loop = asyncio._get_running_loop()
        self._owner = self._greenlet.parent = greenlet.getcurrent()
        asyncio._set_running_loop(None)
        try:
            self._greenlet.switch()
        finally:
            asyncio._set_running_loop(loop)
        return not self._greenlet.dead

    def pause(self) -> None:
        """Return control to the owner until it resumes the call. Only the call itself may use this method."""
        self._owner.switch()
