"""Timers that fire only after the requests already waiting in the sockets have been executed.

A timeout means that a client sent nothing in time. If the process was not running for a while (a stopped process, a
paused machine, a blocked event loop), requests that arrived in time may still be in the sockets, and the event loop
runs due timers before it reads them. Therefore a due timer does not fire until the event loop has read all sockets
once. If it fires late, requests may also still be on their way, so it waits somewhat longer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final

LATE_S: Final = 0.05
"""If a timer fires more than this many seconds late, the process was held up."""

AFTER_DELAY_S: Final = 0.1
"""Seconds for which the timers wait if one of them fires late."""

STANDSTILL_S: Final = 1.0
"""If a timer fires more than this many seconds late, the process stood still. This is logged."""

AFTER_STANDSTILL_S: Final = 0.5
"""Seconds for which the timers wait after a standstill."""


class PatientTimers:
    """The timers of one event loop. All of them wait if one of them fires late."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._read_at = -math.inf
        """The event loop time at which all sockets have been, or will have been, read after the last late timer."""

    def call_at(self, at: float, action: Callable[[], object]) -> PatientTimer:
        """Call `action` when the running event loop's time has reached `at` and the sockets have been read since."""
        return PatientTimer(self, at, action)

    def _wait_s(self, due: float, now: float) -> float:
        """Return the seconds that a timer that was due at `due` must still wait.

        A timer waits once, however slow the event loop is: it waits again only after another standstill.
        """
        if now < self._read_at:
            return self._read_at - now
        late = now - max(due, self._read_at)
        if late > STANDSTILL_S:
            self._logger.warning("process_stood_still", seconds=round(late, 1))
            self._read_at = now + AFTER_STANDSTILL_S
        elif late > LATE_S and due > self._read_at:
            self._read_at = now + AFTER_DELAY_S
        else:
            return 0.0
        return self._read_at - now

    def _have_read(self, now: float) -> None:
        self._read_at = max(self._read_at, now)


class PatientTimer:
    """A timer returned by `PatientTimers.call_at`."""

    __slots__ = ("_action", "_due", "_handle", "_loop", "_timers")

    def __init__(self, timers: PatientTimers, due: float, action: Callable[[], object]) -> None:
        self._timers = timers
        self._due = due
        self._action = action
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_at(due, self._fire)

    def cancel(self) -> None:
        """Cancel the timer, unless its action has already been called."""
        self._handle.cancel()

    def _fire(self) -> None:
        now = self._loop.time()
        wait_s = self._timers._wait_s(self._due, now)
        if wait_s:
            self._handle = self._loop.call_at(now + wait_s, self._fire)
        else:
            self._handle = self._loop.call_soon(self._before_reading)

    def _before_reading(self) -> None:
        # The next callback runs in the next turn of the event loop, and the sockets are read between two turns.
        self._handle = self._loop.call_soon(self._after_reading)

    def _after_reading(self) -> None:
        self._timers._have_read(self._loop.time())
        self._action()
