"""Lets requests wait for the previous transaction, instead of refusing them with CONCURRENT_TRANSACTIONS at once.

Defines the limits: how long a request waits, and how many requests wait at the same time. The state manager wakes
waiting requests after each transition with `TransactionEntry.wake`. A request that is cancelled because its connection
was closed stops waiting, and its wait is logged.
"""

from __future__ import annotations

import asyncio

from ....protocol.errors import ErrorCode, KafkaError
from .entry import TransactionEntry
from .events import UNKNOWN_CALLER, Caller, TransactionEvents


class PendingWaits:
    """The requests that wait until a transactional id is settled, and the limits for them."""

    def __init__(self, max_ms: int, max_requests: int, events: TransactionEvents) -> None:
        self._max_s = max_ms / 1000
        self._max_requests = max_requests
        self._events = events
        self.parked = 0
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._closed = False

    def close(self) -> None:
        """End all waits with CONCURRENT_TRANSACTIONS, and refuse new ones, because the broker is stopping."""
        self._closed = True
        for future in list(self._waiting):
            _expire(future)

    def deadline(self) -> float:
        """Return the event loop time until which a request that arrives now may wait."""
        return asyncio.get_running_loop().time() + self._max_s

    async def until_settled(
        self, entry: TransactionEntry, deadline: float | None, by: Caller = UNKNOWN_CALLER, *, counted: bool = True
    ) -> None:
        """Return when `entry` is settled: no transition is pending, and the current state is not PREPARE_*.

        This is only a hint: the caller must check the state again. Raise KafkaError CONCURRENT_TRANSACTIONS at the
        deadline (None: no deadline), when the broker is stopping, or immediately if too many requests wait already.
        `by.while_waiting` sets a separate limit for large requests. A wait that is not `counted`, such as that of
        fencing, does not count towards the limit of waiting requests, and is not refused because of it.
        """
        if entry.is_settled:
            return  # settled since the caller decided to wait, so no transition would wake the caller
        metadata, outcome = entry.metadata, "closed"
        reason = "a transition is under way" if entry.pending is not None else f"{metadata.state.label} is incomplete"
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with by.while_waiting():
                while True:
                    await self._until_woken(entry, deadline, counted)
                    if entry.is_settled:
                        break
            outcome = "done"
        except KafkaError:
            outcome = "gave_up"
            raise
        finally:
            self._events.waited(metadata, by, loop.time() - began, outcome, reason)

    async def _until_woken(self, entry: TransactionEntry, deadline: float | None, counted: bool) -> None:
        loop = asyncio.get_running_loop()
        full = counted and self.parked >= self._max_requests
        if self._closed or full or (deadline is not None and loop.time() >= deadline):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        future: asyncio.Future[None] = loop.create_future()
        if entry.waiters is None:
            entry.waiters = []
        entry.waiters.append(future)
        self._waiting[future] = None
        timer = None if deadline is None else loop.call_at(deadline, _expire, future)
        self.parked += counted
        try:
            await future
        finally:
            self.parked -= counted
            self._waiting.pop(future, None)
            if timer is not None:
                timer.cancel()
            if entry.waiters is not None and future in entry.waiters:
                entry.waiters.remove(future)


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS))
