"""Limit the memory that the broker's connections use for incoming requests (`queued.max.request.bytes`).

A connection learns a frame's size from the frame's first bytes. It reserves the memory for the frame before it reads
on, so that a frame with a reservation can always be completed. Small frames (up to 1/32 of the limit) may use all free
memory, and a quarter of the limit is reserved for them. Large frames share the rest. If all large frames wait, one of
them is admitted regardless of its size: otherwise the bytes that the waiting frames already hold could make all of them
wait forever.

When memory is short, connections first give back buffers that they keep only for speed. Then frames wait. Frames of
connections that have already been sent a response come first, then smaller frames, then earlier ones. After every
OVERTAKEN large frames, the frame that has waited longest is admitted, even beyond the limit, because otherwise smaller
frames could keep it waiting forever. Here, too, connections that have been sent a response come first. Only one frame
at a time exceeds the limit in this way. While frames wait, connections whose frames have stopped arriving are closed.
If there are none, the connection whose frame arrives most slowly is closed, once that frame is `GRACE_S` old.
"""

from __future__ import annotations

import asyncio
import itertools
from bisect import bisect_left, insort
from typing import Final, Protocol

GRACE_S: Final = 0.5
"""Seconds for which a frame may arrive before its rate is compared with the rates of other frames."""

CHECK_S: Final = 0.1
"""Seconds between two comparisons of the frames' rates while other frames wait for memory."""

OVERTAKEN: Final = 16
"""After this many large frames, the frame that has waited longest is admitted, even if it does not fit."""

SMALL_SHARE: Final = 4
SMALL_FRAMES: Final = 32


class MemoryHolder(Protocol):
    """A connection that holds memory for a request or waits for it."""

    @property
    def answered(self) -> bool:
        """Whether a response has ever been sent on the connection."""

    def memory_available(self) -> None:
        """Continue reading, because the memory for which the connection waited is now reserved."""

    def give_back(self) -> None:
        """Release the buffer memory that is kept only for speed."""

    def frame_rate(self, now: float) -> float | None:
        """Return the rate in bytes per second at which the current frame arrives, or 0 if it has stopped arriving.

        Return None if no frame is arriving or if the frame began to arrive less than `GRACE_S` ago.
        """

    def evict(self, reason: str) -> None:
        """Close the connection at once, without waiting for requests or responses."""


_Waiting = tuple[bool, int, int, MemoryHolder]
"""A place in the queue: (whether the connection was never sent a response, bytes, sequence number, connection)."""


class RequestMemory:
    """The memory reservations of the broker's connections.

    `limit` is in bytes; with 0 or less there is no limit, and every reservation succeeds.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._small = limit // SMALL_FRAMES
        self._held: dict[MemoryHolder, int] = {}
        self._used = {True: 0, False: 0}
        self._large: set[MemoryHolder] = set()
        """The connections whose reservation is larger than a small frame."""
        self._admitted = 0
        """The number of large frames admitted while others waited, since the longest-waiting frame was admitted."""
        self._beyond: MemoryHolder | None = None
        """The connection whose large frame was admitted after the longest wait, even if the limit was exceeded."""
        self._waiting: dict[bool, list[_Waiting]] = {True: [], False: []}
        self._places: dict[MemoryHolder, _Waiting] = {}
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def used(self) -> int:
        """The total of all reservations in bytes."""
        return self._used[True] + self._used[False]

    def reserve(self, holder: MemoryHolder, count: int) -> bool:
        """Set the holder's reservation to `count` bytes. Return False if the holder must wait for `memory_available`.

        Reducing a reservation always succeeds.
        """
        held = self._held.get(holder, 0)
        if self._limit <= 0:
            return True
        if count > held:
            small = count <= self._small
            first = not self._waiting[small] or (not holder.answered, count) < self._waiting[small][0][:2]
            if not first or not self._fits(holder, held, count):
                place = (not holder.answered, count, next(self._numbers), holder)
                insort(self._waiting[small], place)
                self._places[holder] = place
                if self._timer is None:
                    # Not called directly: the reservation may be made in the middle of another connection's work.
                    self._timer = asyncio.get_running_loop().call_later(0, self._relieve)
                return False
        self._set(holder, held, count)
        if count < held:
            self._serve()
        return True

    def leave(self, holder: MemoryHolder) -> None:
        """Release the reservation of a closed connection and remove the connection from the queue."""
        held = self._held.get(holder, 0)
        if (place := self._places.pop(holder, None)) is not None:
            waiting = self._waiting[place[1] <= self._small]
            del waiting[bisect_left(waiting, place)]
        self._set(holder, held, 0)
        self._serve()

    def stop(self) -> None:
        """Stop the periodic comparison of the frames' rates."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fits(self, holder: MemoryHolder, held: int, count: int) -> bool:
        small = count <= self._small
        used = {**self._used}
        if held:
            used[held <= self._small] -= held
        total = used[True] + used[False] + count
        if small:
            return total <= self._limit or used[True] + count <= self._limit // SMALL_SHARE
        large = used[False] + count
        if total <= self._limit and large <= self._limit - self._limit // SMALL_SHARE:
            return True
        return all(other is holder or other in self._places for other in self._large)

    def _set(self, holder: MemoryHolder, held: int, count: int) -> None:
        if held:
            self._used[held <= self._small] -= held
        if count:
            self._held[holder] = count
            self._used[count <= self._small] += count
        else:
            self._held.pop(holder, None)
        if count > self._small:
            self._large.add(holder)
            if count > held and self._waiting[False]:
                self._admitted += 1
        else:
            self._large.discard(holder)
            if holder is self._beyond:
                self._beyond = None

    def _serve(self) -> None:
        """Grant the waiting reservations that now fit, in each queue's order, and resume their connections."""
        for waiting in self._waiting.values():
            while waiting:
                _, count, _, holder = waiting[0]
                held = self._held.get(holder, 0)
                if not self._fits(holder, held, count):
                    break
                self._admit(waiting[0])
        if not self._waiting[False]:
            self._admitted = 0
        elif self._admitted >= OVERTAKEN and self._beyond is None:
            place = min(self._waiting[False], key=lambda place: (place[0], place[2]))
            self._admitted, self._beyond = 0, place[3]
            self._admit(place)

    def _admit(self, place: _Waiting) -> None:
        """Grant a waiting reservation and resume its connection."""
        _, count, _, holder = place
        waiting = self._waiting[count <= self._small]
        del waiting[bisect_left(waiting, place)]
        del self._places[holder]
        self._set(holder, self._held.get(holder, 0), count)
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
        """Free `wanted` bytes by closing connections whose frames have stopped arriving.

        If there are none, close the connection whose frame arrives most slowly.
        """
        rates = sorted(
            (rate, -count, number, holder)
            for number, (holder, count) in enumerate(self._held.items())
            if (count <= self._small) is small and (rate := holder.frame_rate(now)) is not None
        )
        for number, (rate, negative_count, _, holder) in enumerate(rates):
            if wanted <= 0 or (rate and number):
                break
            wanted += negative_count
            holder.evict("queued.max.request.bytes is used up, and its request arrives more slowly than others")
