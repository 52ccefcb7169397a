"""Timers that fire only after the requests already waiting in the sockets have been executed.

A timeout means that a client sent nothing in time. The process may not run for a while (a stopped process, a paused
machine, a blocked event loop). Requests that arrived in time may then still be in the sockets, but the event loop runs
due timers before it reads the sockets. Therefore a due timer does not fire until the event loop has read all sockets
once. If the timer is late, requests may still be on their way to the sockets, so the timer waits somewhat longer.

The process may also stand still while the sockets are read, or before the timer's action runs. Requests that arrive
during this time are executed after the action. Therefore the action gets a time that was taken before the sockets were
read, and only deadlines up to this time count as passed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

TimeT = TypeVar("TimeT")

LATE_S: Final = 0.05
"""A timer that fires more than this many seconds after it was due is late."""

AFTER_DELAY_S: Final = 0.1
"""Seconds for which the timers wait if one of them is late."""

STANDSTILL_S: Final = 1.0
"""If a timer is more than this many seconds late, the process did not run for a while. This standstill is logged."""

AFTER_STANDSTILL_S: Final = 0.5
"""Seconds for which the timers wait after a standstill."""

MOST_WAITS: Final = 3
"""The maximum number of waits of a timer. Without it, a timer would never fire if the process often stands still.

Waits of at most LATE_S do not count. They are the remainders of earlier waits, because event loops run timers slightly
early.
"""


class PatientTimers:
    """The timers of one event loop. All of them wait if one of them fires late."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._read_at = -math.inf
        """The event loop time by which all sockets have been or will have been read after the last late timer."""

    def call_at(self, at: float, read_clock: Callable[[], TimeT], action: Callable[[TimeT], object]) -> PatientTimer:
        """Call `action` when the running event loop's time has reached `at` and the sockets have been read after that.

        `action` gets the time that `read_clock` returned before the sockets were read. All requests that had arrived by
        then have been executed.
        """
        return PatientTimer(self, at, read_clock, action)

    def _wait_s(self, due: float, now: float) -> float:
        """Return how many seconds a timer that was due at `due` must still wait; 0 if it need not wait.

        A timer waits once if it is late. After that, it waits again only if it is more than STANDSTILL_S late again, so
        that it also fires in a slow event loop.
        """
        if now < self._read_at:
            return self._read_at - now
        late = now - max(due, self._read_at)
        if late > STANDSTILL_S:
            self._stood_still(late, now)
        elif late > LATE_S and due > self._read_at:
            self._read_at = now + AFTER_DELAY_S
        else:
            return 0.0
        return self._read_at - now

    def _have_read(self, began: float, now: float) -> None:
        self._read_at = max(self._read_at, began)
        if now - self._read_at > STANDSTILL_S:
            self._stood_still(now - self._read_at, now)

    def _stood_still(self, seconds: float, now: float) -> None:
        self._logger.warning("process_stood_still", seconds=round(seconds, 1))
        self._read_at = now + AFTER_STANDSTILL_S


class PatientTimer:
    """A timer returned by `PatientTimers.call_at`."""

    __slots__ = ("_action", "_due", "_handle", "_loop", "_read_clock", "_timers", "_waits")

    def __init__(
        self, timers: PatientTimers, due: float, read_clock: Callable[[], Any], action: Callable[[Any], object]
    ) -> None:
        self._timers = timers
        self._due = due
        self._read_clock = read_clock
        self._action = action
        self._waits = 0
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_at(due, self._fire)

    def cancel(self) -> None:
        """Cancel the timer, unless its action has already been called."""
        self._handle.cancel()

    def _fire(self) -> None:
        now = self._loop.time()
        wait_s = self._timers._wait_s(self._due, now) if self._waits < MOST_WAITS else 0.0
        if wait_s:
            self._waits += wait_s > LATE_S
            self._handle = self._loop.call_at(now + wait_s, self._fire)
        else:
            self._handle = self._loop.call_soon(self._before_reading, now, self._read_clock())

    def _before_reading(self, began: float, time: Any) -> None:
        # The next callback runs in the next turn of the event loop, and the sockets are read between two turns.
        self._handle = self._loop.call_soon(self._after_reading, began, time)

    def _after_reading(self, began: float, time: Any) -> None:
        self._timers._have_read(began, self._loop.time())
        self._action(time)
