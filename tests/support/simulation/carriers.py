"""Plain code that stops in its middle: it runs in a thread of its own while everybody else waits, piece by piece.

A `Carrier` runs a call until that calls `pause`, and hands over to its owner; `resume` goes on from there. Exactly one
of the two runs at any time, so nothing depends on how the system schedules threads. Threads are kept and used again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_idle: list[Carrier] = []


class Carrier:
    """One call at a time, and the thread that carries it."""

    def __init__(self) -> None:
        self._call: Callable[[], None] | None = None
        self._go_on = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        threading.Thread(target=self._carry, name="simulated", daemon=True).start()

    def resume(self) -> bool:
        """Go on until the call pauses (True) or has ended (False)."""
        self._go_on.release()
        self._back.acquire()
        if self._call is not None:
            return True
        _idle.append(self)
        return False

    def pause(self) -> None:
        """Called from within the call: let the owner run until it resumes the call."""
        self._back.release()
        self._go_on.acquire()

    def _carry(self) -> None:
        while True:
            self._go_on.acquire()
            assert self._call is not None
            self._call()
            self._call = None
            self._back.release()


def carrier_of(call: Callable[[], None]) -> Carrier:
    """A carrier for a call that catches whatever it raises; it begins with the first `resume`."""
    carrier = _idle.pop() if _idle else Carrier()
    carrier._call = call
    return carrier
