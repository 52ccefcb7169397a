"""Limit the memory that the broker's connections use for responses that their peers have not read yet.

A connection's unsent bytes are the bytes that its socket has not accepted yet, plus the responses that are waiting for
an earlier response that is not ready. `allowance` is half of the memory that is left: a Fetch response is made no
larger than that, and the client asks for the rest in its next request. Other responses cannot be made smaller.

When more than `queued.max.response.bytes` is in use, connections whose peers read nothing are closed, beginning with
the one that has been stalled longest. A peer may be stalled for at most `connection.write.stall.ms`; the further the
limit is exceeded, the shorter this time becomes.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

COUNTED_BYTES: Final = 16_384
"""Connections with fewer unsent bytes than this are not counted."""

CHECK_S: Final = 0.5
REFRESH_S: Final = 0.005


class Debtor(Protocol):
    """A connection with responses that its peer has not read yet."""

    @property
    def unsent(self) -> int:
        """The number of response bytes that the peer has not read yet."""

    def evict(self, reason: str) -> None:
        """Close the connection at once and discard the responses that are not sent yet."""


class AnswerMemory:
    """The unsent response bytes of the broker's connections, and the limit for their total.

    While the limit is exceeded, a connection is closed if its peer has read nothing for `stall_s` seconds. The further
    the limit is exceeded, the shorter this time becomes.
    """

    def __init__(self, limit: int, stall_s: float) -> None:
        self._limit = limit
        self._stall_s = stall_s
        self._unsent: dict[Debtor, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._refreshed = 0.0
        self.used = 0

    def owes(self, debtor: Debtor, unsent: int) -> None:
        """Record that the connection `debtor` now has `unsent` response bytes that its peer has not read."""
        before, since = self._unsent.get(debtor, (0, 0.0))
        if not before:
            since = asyncio.get_running_loop().time()
        self._unsent[debtor] = unsent, since
        self.used += unsent - before
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._check)

    def leave(self, debtor: Debtor) -> None:
        """Forget the unsent bytes of a closed connection."""
        if debtor in self._unsent:
            self.used -= self._unsent.pop(debtor)[0]

    def stop(self) -> None:
        """Stop the periodic check for stalled connections."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def allowance(self) -> int:
        """The number of bytes that the next response may use: half of the memory that is left."""
        if self.used > self._limit // 4 and asyncio.get_running_loop().time() - self._refreshed > REFRESH_S:
            self._refresh()
        return max(0, (self._limit - self.used) // 2)

    def _refresh(self) -> None:
        """Update the unsent bytes of all connections, because sockets do not report what they have sent."""
        now = self._refreshed = asyncio.get_running_loop().time()
        for debtor, (before, since) in list(self._unsent.items()):
            unsent = debtor.unsent
            if unsent < COUNTED_BYTES:
                self.leave(debtor)
            elif unsent < before:
                self._unsent[debtor] = unsent, now
                self.used += unsent - before
            else:
                self._unsent[debtor] = before, since

    def _check(self) -> None:
        self._timer = None
        self._refresh()
        if self.used > self._limit:
            now = asyncio.get_running_loop().time()
            for debtor, (_, since) in sorted(self._unsent.items(), key=lambda item: item[1][1]):
                if self.used <= self._limit or now - since < self._stall_s * self._limit / self.used:
                    break
                self.leave(debtor)
                debtor.evict("queued.max.response.bytes is exceeded, and its peer reads no responses")
        if self._unsent:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._check)
