"""The memory that the connections of a listener share for requests on their way in (`queued.max.request.bytes`).

A connection reserves what its buffer needs for a frame when the frame's size is known, before it is read any further,
so that frames which have memory can always be finished. Small frames (up to 1/32 of all memory) may take whatever is
free, and a quarter of it is theirs alone; large ones share the rest, and one of them is let through whatever its size.

When memory is short, connections first give back buffers that they only keep for speed. Then frames wait: those of
connections that were answered before come first, then smaller ones, then earlier ones. While any waits, frames that
stopped arriving lose their connections, and else the slowest one does, once it is `GRACE_S` old.
"""

from __future__ import annotations

import asyncio
import itertools
from bisect import bisect_left, insort
from typing import Final, Protocol

GRACE_S: Final = 0.5
"""A frame is given so long to arrive before it is compared with others."""

CHECK_S: Final = 0.1
"""How often the rates of frames are compared while others wait."""

SMALL_SHARE: Final = 4
SMALL_FRAMES: Final = 32


class MemoryHolder(Protocol):
    """A connection that holds memory or waits for it."""

    @property
    def answered(self) -> bool:
        """Whether it has ever been sent an answer."""

    def memory_available(self) -> None:
        """The reservation that was waited for is made: go on reading."""

    def give_back(self) -> None:
        """Release what is only kept for speed."""

    def frame_rate(self, now: float) -> float | None:
        """Bytes a second of the frame on its way, 0 if it stopped; None for no frame, or one younger than `GRACE_S`."""

    def evict(self, reason: str) -> None:
        """Close the connection, without waiting for anything."""


_Waiting = tuple[bool, int, int, MemoryHolder]
"""A place in the line: never answered, bytes, number, holder."""


class RequestMemory:
    """Reservations by holder. `limit` in bytes; 0 or less: no limit, every reservation succeeds."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._small = limit // SMALL_FRAMES
        self._held: dict[MemoryHolder, int] = {}
        self._used = {True: 0, False: 0}
        self._waiting: dict[bool, list[_Waiting]] = {True: [], False: []}
        self._places: dict[MemoryHolder, _Waiting] = {}
        self._numbers = itertools.count()
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
            first = not self._waiting[small] or (not holder.answered, count) < self._waiting[small][0][:2]
            if not first or not self._fits(held, count):
                place = (not holder.answered, count, next(self._numbers), holder)
                insort(self._waiting[small], place)
                self._places[holder] = place
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
        if (place := self._places.pop(holder, None)) is not None:
            waiting = self._waiting[place[1] <= self._small]
            del waiting[bisect_left(waiting, place)]
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
                _, count, _, holder = waiting[0]
                held = self._held.get(holder, 0)
                if not self._fits(held, count):
                    break
                del waiting[0]
                del self._places[holder]
                self._set(holder, held, count)
                holder.memory_available()

    def _relieve(self) -> None:
        self._timer = None
        if self._places:
            for holder in list(self._held):
                holder.give_back()
            self._serve()
        now = asyncio.get_running_loop().time()
        for small, waiting in self._waiting.items():
            if waiting:
                self._make_room(small, sum(place[1] for place in waiting), now)
        if self._places:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._relieve)

    def _make_room(self, small: bool, wanted: int, now: float) -> None:
        """Close what stopped arriving, as far as others want its memory; or else the slowest frame."""
        rates = sorted(
            (rate, -count, number, holder)
            for number, (holder, count) in enumerate(self._held.items())
            if (count <= self._small) is small and (rate := holder.frame_rate(now)) is not None
        )
        for number, (rate, negative_count, _, holder) in enumerate(rates):
            if wanted <= 0 or (rate and number):
                break
            wanted += negative_count
            holder.evict("queued.max.request.bytes is used up, and its request arrives most slowly")
