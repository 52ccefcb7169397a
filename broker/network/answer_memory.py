"""The memory that the connections of a listener share for answers which their peers have not taken yet.

Counted is what a socket did not take, and what waits behind an answer that is not ready. Past half of the memory left,
a Fetch is answered with less (`allowance`), and its client asks for the rest; other answers cannot be made smaller.
When `queued.max.response.bytes` is used up, peers that take nothing lose their connections, the longest stalled first:
after `connection.write.stall.ms`, and sooner the further the bound is passed.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

COUNTED_BYTES: Final = 16_384
"""A connection that owes its peer less is not counted."""

CHECK_S: Final = 0.5
REFRESH_S: Final = 0.005


class Debtor(Protocol):
    """A connection that has answers for its peer."""

    @property
    def unsent(self) -> int:
        """Answer bytes that the peer has not taken."""

    def evict(self, reason: str) -> None:
        """Close the connection, and drop what is not sent."""


class AnswerMemory:
    """Unsent bytes by connection; `limit` in bytes."""

    def __init__(self, limit: int, stall_s: float) -> None:
        self._limit = limit
        self._stall_s = stall_s
        self._unsent: dict[Debtor, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._refreshed = 0.0
        self.used = 0

    def owes(self, debtor: Debtor, unsent: int) -> None:
        """`debtor` has `unsent` bytes for its peer, after one more answer."""
        before, since = self._unsent.get(debtor, (0, 0.0))
        if not before:
            since = asyncio.get_running_loop().time()
        self._unsent[debtor] = unsent, since
        self.used += unsent - before
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._check)

    def leave(self, debtor: Debtor) -> None:
        """The connection is gone."""
        if debtor in self._unsent:
            self.used -= self._unsent.pop(debtor)[0]

    def stop(self) -> None:
        """Check no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def allowance(self) -> int:
        """Bytes that one more answer may take: half of what is left."""
        if self.used > self._limit // 4 and asyncio.get_running_loop().time() - self._refreshed > REFRESH_S:
            self._refresh()
        return max(0, (self._limit - self.used) // 2)

    def _refresh(self) -> None:
        """Look at what the sockets have taken; they do not say so by themselves."""
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
                debtor.evict("queued.max.response.bytes is used up, and its peer takes no answers")
        if self._unsent:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._check)
