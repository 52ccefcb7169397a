"""The memory that all connections of a listener share for requests on their way in."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from .receive_buffer import INITIAL_BYTES, KEPT_BYTES


class MemoryWaiter(Protocol):
    """Who waits for memory."""

    def memory_available(self) -> None:
        """Some became free: try again."""


class RequestMemory:
    """The bytes that all connections together may hold for requests being received (`queued.max.request.bytes`).

    Like Kafka's pool it hands out the last bytes generously: a reservation succeeds while anything is left, so that one
    request larger than the whole limit can still pass.
    """

    __slots__ = ("_left", "_waiting", "free_bytes", "kept_bytes", "limited")

    def __init__(self, limit: int) -> None:
        self.limited = limit > 0
        self.free_bytes = INITIAL_BYTES
        self.kept_bytes = INITIAL_BYTES if self.limited else KEPT_BYTES
        self._left = limit
        self._waiting: deque[MemoryWaiter] = deque()

    def reserve(self, count: int) -> bool:
        """Take `count` bytes; False when nothing is left."""
        if self._left <= 0:
            return False
        self._left -= count
        return True

    def wait(self, waiter: MemoryWaiter) -> None:
        """Call `waiter.memory_available` when bytes come back."""
        self._waiting.append(waiter)

    def release(self, count: int) -> None:
        """Give `count` bytes back, and let those who wait try again."""
        if not count:
            return
        self._left += count
        for _ in range(len(self._waiting)):
            if self._left <= 0:
                return
            self._waiting.popleft().memory_available()
