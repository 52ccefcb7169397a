"""The memory that the connections of a listener share for requests on their way in (`queued.max.request.bytes`).

A connection reserves what its buffer needs for a frame when the frame's size is known, before it is read any further,
so that frames which have memory can always be finished. Small frames (up to 1/32 of all memory) may take whatever is
free, and a quarter of it is theirs alone; large ones share the rest, and one of them is let through whatever its size.

When memory is short, connections first give back buffers that they only keep for speed. Then frames wait, in the order
in which they came. While any waits, the frame that arrives most slowly loses its connection, once it is `GRACE_S` old.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

GRACE_S: Final = 1.0
"""A frame is given so long to arrive before it is compared with others."""

CHECK_S: Final = 0.25
"""How often the rates of frames are compared while others wait."""

SMALL_SHARE: Final = 4
SMALL_FRAMES: Final = 32


class MemoryHolder(Protocol):
    """A connection that holds memory or waits for it."""

    def memory_available(self) -> None:
        """The reservation that was waited for is made: go on reading."""

    def give_back(self) -> None:
        """Release what is only kept for speed."""

    def frame_rate(self, now: float) -> float | None:
        """Bytes a second of the frame that is on its way; None when there is none or it is younger than `GRACE_S`."""

    def close(self, reason: str) -> None:
        """Close the connection."""


class RequestMemory:
    """Reservations by holder. `limit` in bytes; 0 or less: no limit, every reservation succeeds."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._small = limit // SMALL_FRAMES
        self._held: dict[MemoryHolder, int] = {}
        self._used = {True: 0, False: 0}
        self._waiting: dict[bool, deque[tuple[MemoryHolder, int]]] = {True: deque(), False: deque()}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def used(self) -> int:
        """Bytes reserved."""
        return self._used[True] + self._used[False]

    def reserve(self, holder: MemoryHolder, count: int) -> bool:
        """Set the holder's reservation to `count` bytes; False when it must wait for `memory_available`.

        A smaller reservation than before always succeeds.
        """
        held = self._held.get(holder, 0)
        if self._limit <= 0:
            return True
        if count > held:
            small = count <= self._small
            if self._waiting[small] or not self._fits(held, count):
                self._waiting[small].append((holder, count))
                if self._timer is None:
                    # Not at once: the reservation may be made in the middle of another holder's work.
                    self._timer = asyncio.get_running_loop().call_later(0, self._relieve)
                return False
        self._set(holder, held, count)
        if count < held:
            self._serve()
        return True

    def leave(self, holder: MemoryHolder) -> None:
        """The holder is gone: take back what it has, and forget what it waits for."""
        held = self._held.get(holder, 0)
        for waiting in self._waiting.values():
            for item in [item for item in waiting if item[0] is holder]:
                waiting.remove(item)
        self._set(holder, held, 0)
        self._serve()

    def stop(self) -> None:
        """Compare no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fits(self, held: int, count: int) -> bool:
        small = count <= self._small
        used = {**self._used}
        if held:
            used[held <= self._small] -= held
        total = used[True] + used[False] + count
        if small:
            return total <= self._limit or used[True] + count <= self._limit // SMALL_SHARE
        large = used[False] + count
        return not used[False] or (total <= self._limit and large <= self._limit - self._limit // SMALL_SHARE)

    def _set(self, holder: MemoryHolder, held: int, count: int) -> None:
        if held:
            self._used[held <= self._small] -= held
        if count:
            self._held[holder] = count
            self._used[count <= self._small] += count
        else:
            self._held.pop(holder, None)

    def _serve(self) -> None:
        """Let those go on who wait and whose memory is there."""
        for waiting in self._waiting.values():
            while waiting:
                holder, count = waiting[0]
                held = self._held.get(holder, 0)
                if not self._fits(held, count):
                    break
                waiting.popleft()
                self._set(holder, held, count)
                holder.memory_available()

    def _relieve(self) -> None:
        self._timer = None
        if self._waiting[True] or self._waiting[False]:
            for holder in list(self._held):
                holder.give_back()
            self._serve()
        now = asyncio.get_running_loop().time()
        for small, waiting in self._waiting.items():
            if waiting and (slowest := self._slowest(small, now)) is not None:
                slowest.close("queued.max.request.bytes is used up, and its request arrives most slowly")
        if self._waiting[True] or self._waiting[False]:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._relieve)

    def _slowest(self, small: bool, now: float) -> MemoryHolder | None:
        rates = [
            (rate, -count, number, holder)
            for number, (holder, count) in enumerate(self._held.items())
            if (count <= self._small) is small and (rate := holder.frame_rate(now)) is not None
        ]
        return min(rates)[-1] if rates else None
