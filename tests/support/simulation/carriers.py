"""Run plain code that pauses in the middle: it runs in a separate thread, piece by piece, while everything else waits.

A `Carrier` runs a call until the call invokes `pause`, which returns control to the carrier's owner. `resume` continues
the call. Exactly one of the two runs at any time, so nothing depends on how the system schedules threads. Threads are
reused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_idle: list[Carrier] = []


class Carrier:
    """A thread that runs one call at a time, piece by piece."""

    def __init__(self) -> None:
        self._call: Callable[[], None] | None = None
        self._go_on = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        threading.Thread(target=self._carry, name="simulated", daemon=True).start()

    def resume(self) -> bool:
        """Continue the call until it pauses (return True) or has ended (return False)."""
        self._go_on.release()
        self._back.acquire()
        if self._call is not None:
            return True
        _idle.append(self)
        return False

    def pause(self) -> None:
        """Return control to the owner until it resumes the call. Only the call itself may use this method."""
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
    """Return a carrier for a call that catches all of its exceptions. The first `resume` begins the call."""
    carrier = _idle.pop() if _idle else Carrier()
    carrier._call = call
    return carrier
