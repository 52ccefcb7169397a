"""A wall clock for expiry that ignores a jump ahead until the clock has stayed ahead for some time.

Objects that have not been used for days may be removed. If the wall clock jumps ahead by days and back again (a wrong
time server, a virtual machine that is moved), the days in between must not count as idleness. The monotonic clock shows
how much time has really passed. A jump back needs no special treatment, because it only delays the expiry.
"""

from __future__ import annotations

from typing import Any, Final

from .ports import Clock

TOLERATED_JUMP_MS: Final = 60_000
"""How far the wall clock may run ahead of the monotonic clock between two calls before it counts as a jump."""


class SettledClock:
    """The wall clock of `clock`. A jump ahead that was first seen less than `settle_ms` ago is not counted.

    Each reader keeps an instance of its own. An instance sees jumps only when it is read, so it should be read at least
    once every `settle_ms`. If the clock is already wrong when the broker starts, its time is used.
    """

    def __init__(self, clock: Clock, settle_ms: int, logger: Any, purpose: str) -> None:
        """Start from the present time. `purpose` says in the log what the time is used for."""
        self._clock = clock
        self._settle_ms = settle_ms
        self._logger = logger
        self._purpose = purpose
        self._wall_ms = clock.now_ms()
        self._monotonic = clock.monotonic()
        self._jump: tuple[int, float] | None = None
        """By how many ms the wall clock is ahead, and since when, in seconds of the monotonic clock."""

    def now_ms(self) -> int:
        """Return the time in ms since the epoch, without a jump ahead that is younger than `settle_ms`."""
        wall_ms, now = self._clock.now_ms(), self._clock.monotonic()
        expected_ms = self._wall_ms + round((now - self._monotonic) * 1000)
        ahead_ms = wall_ms - expected_ms
        if ahead_ms > TOLERATED_JUMP_MS and not self._has_settled(ahead_ms, now):
            return expected_ms
        self._wall_ms, self._monotonic, self._jump = wall_ms, now, None
        return wall_ms

    def _has_settled(self, ahead_ms: int, now: float) -> bool:
        if self._jump is None or abs(ahead_ms - self._jump[0]) > TOLERATED_JUMP_MS:
            self._jump = ahead_ms, now
            if self._settle_ms:
                self._logger.warning(
                    "clock_jumped_ahead",
                    ahead_ms=ahead_ms,
                    delayed=self._purpose,
                    settle_ms=self._settle_ms,
                    remedy="correct the clock; if it is right, expiry uses its time after settle_ms",
                )
        return (now - self._jump[1]) * 1000 >= self._settle_ms
