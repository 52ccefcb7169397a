"""How much work the connections of a listener do in one turn of the event loop.

Work is counted in bytes, received and executed, and `REQUEST_WORK` for each request; a unit takes about half a
nanosecond. A connection that is alone takes long turns. Connections that compete share `ROUND_WORK`, so that a request
of another client waits for about one round of theirs, however many they are. What a turn did beyond its share is taken
from the next ones: a large request cannot be divided.
"""

from __future__ import annotations

from typing import Final

REQUEST_WORK: Final = 64 * 1024
"""What a small request costs beside its bytes."""

ROUND_WORK: Final = 1024 * 1024
"""Shared by all connections that compete."""

LEAST_SHARE: Final = 64 * 1024
"""A connection does at least so much in a turn, or turns would cost more than the work."""

LONE_TURN_WORK: Final = 2 * 1024 * 1024
"""A turn of a connection where no other one has been active for `CONTENTION_S`."""

CONTENTION_S: Final = 0.1

ROUND_S: Final = 0.002
"""A connection that does nothing for so long pays for one round of what it did too much."""


class Turns:
    """The turns of one listener's connections, which are known by their ids."""

    def __init__(self) -> None:
        self._last = 0
        self._contended_until = 0.0
        self._busy: set[int] = set()
        self._busy_before = 0
        self._counted_until = 0.0

    def begin(self, connection_id: int, left: int, since: float, now: float) -> int:
        """Begin a turn at loop time `now`; returns the work that it may do, 0 or less if it has to wait for the next.

        `left`: work that the turn before, which began at `since`, did not do, or did too much (negative).
        """
        if self._last != connection_id:
            self._last, self._contended_until = connection_id, now + CONTENTION_S
        if now >= self._contended_until:
            return LONE_TURN_WORK
        if now >= self._counted_until:
            self._count_anew(now)
        share = max(ROUND_WORK // max(len(self._busy), self._busy_before, 1), LEAST_SHARE)
        return min(left + share * int((now - since) / ROUND_S), 0) + share

    def used_up(self, connection_id: int) -> None:
        """The connection has more to do than its turn allowed."""
        self._busy.add(connection_id)

    def _count_anew(self, now: float) -> None:
        recent = now < self._counted_until + CONTENTION_S
        self._busy_before = len(self._busy) if recent else 0
        self._busy.clear()
        self._counted_until = now + CONTENTION_S
