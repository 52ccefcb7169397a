"""Schedules the scans for transactions past their timeout and for expired transactional ids.

There is one timer for each scan; the coordinator performs the scans. Timed-out transactions must be aborted soon, so
the timer of that scan is set to the earliest known deadline, and fires at least once per configured interval. However,
a scan visits all ids, and a transaction's timeout may be as short as 1 ms. Therefore a scan runs in slices, and the
next scan starts only after a pause of `_REST` times the duration of the previous one.

Before a scan, the requests that have already arrived in the sockets are executed, because one of them may end its
transaction in time. A transaction has timed out only if its deadline had passed before the sockets were read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ...scheduling.patient_timers import PatientTimer, PatientTimers
from ...scheduling.steps import Steps, run_slice
from ...system.ports import Clock
from ...system.settled_clock import SettledClock

_REST: Final = 9

_NEXT_PORTION_S: Final = 0.1
"""The delay in seconds before the next portion of expired transactional ids is removed."""


class TransactionTimers:
    """The timers of the transaction coordinator. Times are in ms since the epoch."""

    def __init__(
        self,
        clock: Clock,
        timers: PatientTimers,
        logger: Any,
        *,
        abort_interval_ms: int,
        expiry_interval_ms: int,
        clock_settle_ms: int,
        abort_timed_out: Callable[[int], Steps[int | None]],
        remove_expired: Callable[[int], bool],
    ) -> None:
        """Create the timers, without starting them.

        `abort_timed_out(now_ms)` returns the next deadline in ms since the epoch, or None if no transaction is ongoing.

        `remove_expired(now_ms)` returns whether more expired transactional ids may be left.
        """
        self._clock = clock
        self._timers = timers
        self._settled_clock = SettledClock(clock, clock_settle_ms, logger, "the expiry of transactional ids")
        self._logger = logger
        self._abort_interval_ms = abort_interval_ms
        self._expiry_interval_ms = expiry_interval_ms
        self._abort_timed_out = abort_timed_out
        self._look_under_way: Steps[int | None] | None = None
        self._worked_s = 0.0
        self._remove_expired = remove_expired
        self._next_ms = 0
        self._rest_until = 0.0
        """The earliest event loop time at which a scan for timeouts may start. The wall clock does not affect it."""
        self._timer: asyncio.Handle | PatientTimer | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._running = False

    def start(self) -> None:
        """Start the timers for timeouts and expiry on the running event loop."""
        self._running = True
        self._arm(self._clock.now_ms() + self._abort_interval_ms)
        self._arm_expiry()

    async def stop(self) -> None:
        """Stop the timers for timeouts and expiry."""
        self._running = False
        for timer in (self._timer, self._expiry):
            if timer is not None:
                timer.cancel()

    def expect(self, deadline_ms: int) -> None:
        """Make the next scan for timeouts start at the deadline of a new transaction, unless an earlier scan is due."""
        if not self._running or deadline_ms >= self._next_ms:
            return
        if self._look_under_way is None:
            self._arm(deadline_ms)
        else:
            self._next_ms = deadline_ms

    def _arm(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        # A transaction has timed out when the clock is past its deadline, not when it is at the deadline. The interval
        # bounds the delay even if the clock was set back.
        delay_ms = min(at_ms + 1 - self._clock.now_ms(), self._abort_interval_ms)
        at = max(loop.time() + max(0, delay_ms) / 1000, self._rest_until)
        self._next_ms = at_ms
        self._timer = self._timers.call_at(at, self._clock.now_ms, self._look)

    def _look(self, now_ms: int) -> None:
        self._next_ms = now_ms + self._abort_interval_ms
        self._worked_s = 0.0
        self._look_under_way = self._abort_timed_out(now_ms)
        self._look_on()

    def _look_on(self) -> None:
        if not self._running or self._look_under_way is None:
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = None
        try:
            finished = run_slice(self._look_under_way)
            if finished is None:
                self._worked_s += loop.time() - began
                self._timer = loop.call_soon(self._look_on)
                return
            deadline = finished.result
        except Exception:
            self._logger.exception("timeout_abort_failed")
        self._look_under_way = None
        self._worked_s += loop.time() - began
        self._rest_until = loop.time() + self._worked_s * _REST
        self._arm(self._next_ms if deadline is None else min(deadline, self._next_ms))

    def _arm_expiry(self, more: bool = False) -> None:
        loop = asyncio.get_running_loop()
        delay_s = self._expiry_interval_ms / 1000
        self._expiry = loop.call_later(min(delay_s, _NEXT_PORTION_S) if more else delay_s, self._expire)

    def _expire(self) -> None:
        if not self._running:
            return
        more = False
        try:
            more = self._remove_expired(self._settled_clock.now_ms())
        except Exception:
            self._logger.exception("expiry_failed")
        self._arm_expiry(more)
