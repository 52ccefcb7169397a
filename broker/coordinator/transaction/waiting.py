"""Waiting for the previous transaction instead of answering CONCURRENT_TRANSACTIONS.

Owns the bounds: how long one request waits and how many wait at a time. They are woken by `TransactionEntry.wake`,
which the state manager calls after each transition. A waiter that is cancelled (its connection closed) leaves no
trace.
"""

from __future__ import annotations

import asyncio

from ....protocol.errors import ErrorCode, KafkaError
from .entry import TransactionEntry


class PendingWaits:
    """The requests that are parked."""

    def __init__(self, max_ms: int, max_requests: int) -> None:
        self._max_s = max_ms / 1000
        self._max_requests = max_requests
        self.parked = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._closed = False

    def close(self) -> None:
        """The broker stops: nobody waits any more."""
        self._closed = True
        for future in list(self._waiting):
            _expire(future)

    def deadline(self) -> float:
        """Until when a request that arrives now may wait, in the event loop's time."""
        return asyncio.get_running_loop().time() + self._max_s

    async def until_change(self, entry: TransactionEntry, deadline: float) -> None:
        """Return when a transition of `entry` is complete: not more than a hint, the caller checks everything anew.

        Raises KafkaError CONCURRENT_TRANSACTIONS at the deadline, at once when too many are waiting already, and when
        the broker stops.
        """
        loop = asyncio.get_running_loop()
        if self._closed or self.parked >= self._max_requests or loop.time() >= deadline:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        future: asyncio.Future[None] = loop.create_future()
        entry.waiters.append(future)
        self._waiting.add(future)
        timer = loop.call_at(deadline, _expire, future)
        self.parked += 1
        try:
            await future
        finally:
            self.parked -= 1
            self._waiting.discard(future)
            timer.cancel()
            if future in entry.waiters:
                entry.waiters.remove(future)


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS))
