"""Runs actions at deadlines, with at most one deadline per key. Reads the time only through the Clock.

Has no event loop of its own: the caller reads `next_deadline` and calls `run_due`. A test can therefore reach every
timeout of the group protocol by moving a clock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable
from typing import Final, TypeAlias

from ...system.ports import Clock

Action: TypeAlias = Callable[[], None]

MOST_STALE: Final = 1000
"""The heap may hold this number of entries plus two for each deadline.

When it holds more, the entries of cancelled and changed deadlines are removed, a few at a time.
"""

SWEPT_AT_ONCE: Final = 8
"""How many entries are examined for each new or cancelled deadline while stale entries are being removed.

Examining the entries of 200,000 deadlines at once would stop the event loop for 0.1 s.
"""

_Entry: TypeAlias = "tuple[float, int, Hashable]"


class DeadlineTimer:
    """A set of deadlines on the monotonic clock.

    `on_earlier` is called when a new deadline is earlier than all others.
    """

    def __init__(self, clock: Clock, on_earlier: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._on_earlier = on_earlier
        self._deadlines: dict[Hashable, tuple[float, Action]] = {}
        # Cancelled and rescheduled entries stay in the heap until they are due, or until there are too many of them. A
        # heartbeat, which only extends a deadline, therefore needs no heap push.
        self._heap: list[_Entry] = []
        # While stale entries are being removed: the former heap. Its other entries are moved to the new heap, from the
        # last to the first.
        self._unswept: list[_Entry] = []
        self._queued: dict[Hashable, float] = {}
        self._counter = 0

    def schedule(self, key: Hashable, delay_ms: float, action: Action) -> None:
        """Schedule `action` to run in `delay_ms`, replacing the previous action of `key`."""
        self._schedule_at(self._clock.monotonic() + delay_ms / 1000, key, action)

    def schedule_soon(self, key: Hashable, action: Action) -> None:
        """Schedule `action` to run in the next call of `run_due`, replacing the previous action of `key`.

        Use this method to continue long work after other tasks have run. A timeout of 0 needs `schedule` instead,
        because its action must run after the requests that have already arrived.
        """
        self._schedule_at(-math.inf, key, action)

    def _schedule_at(self, deadline: float, key: Hashable, action: Action) -> None:
        self._deadlines[key] = (deadline, action)
        queued = self._queued.get(key)
        if queued is None or deadline < queued:
            self._push(key, deadline)

    def cancel(self, key: Hashable) -> None:
        """Cancel the action of `key`; do nothing if no action is scheduled."""
        self._deadlines.pop(key, None)
        self._drop_stale()

    def is_scheduled(self, key: Hashable) -> bool:
        """Whether the key has a scheduled action."""
        return key in self._deadlines

    def next_deadline(self) -> float | None:
        """Return when to call `run_due`, in seconds of the monotonic clock; None if no action is scheduled.

        The returned time is never later than the next deadline. It is -inf after `schedule_soon`.
        """
        earlier = self._earlier()
        return earlier[0][0] if earlier else None

    def run_due(self, most: int = 1 << 30, due_by: float = math.inf) -> None:
        """Take at most `most` due entries, and run their actions.

        The caller must call this method again while `next_deadline` is in the past. Entries whose deadline is after
        `due_by`, in seconds of the monotonic clock, are left for later.

        The entries of cancelled actions and of extended deadlines also count towards `most`, because very many of them
        may become due together, for example if many sessions began together and are kept alive. Actions that are
        scheduled meanwhile run in the next call.

        If any action failed, raise ExceptionGroup after all of them have run.
        """
        due_by = min(due_by, self._clock.monotonic())
        due: list[Hashable] = []
        taken = 0
        while (heap := self._earlier()) and heap[0][0] <= due_by and taken < most:
            taken += 1
            at, _, key = heapq.heappop(heap)
            if self._queued.get(key) != at:
                continue
            del self._queued[key]
            entry = self._deadlines.get(key)
            if entry is None:
                continue
            if entry[0] > due_by:
                self._push(key, entry[0])
            else:
                due.append(key)
        failures: list[Exception] = []
        for key in due:
            entry = self._deadlines.get(key)
            # An earlier action may have cancelled or rescheduled this one.
            if entry is not None and entry[0] <= due_by and key not in self._queued:
                del self._deadlines[key]
                try:
                    entry[1]()
                except Exception as error:
                    failures.append(error)  # a bug in one group must not stop the timers of other groups
        if failures:
            raise ExceptionGroup("timed actions failed", failures)

    def clear(self) -> None:
        """Cancel all actions."""
        self._deadlines.clear()
        self._heap.clear()
        self._unswept.clear()
        self._queued.clear()

    def _push(self, key: Hashable, deadline: float) -> None:
        earliest = self.next_deadline()
        self._counter += 1
        self._queued[key] = deadline
        heapq.heappush(self._heap, (deadline, self._counter, key))
        self._drop_stale()
        if earliest is None or deadline < earliest:
            self._on_earlier()

    def _earlier(self) -> list[_Entry]:
        """Return the heap whose first entry is due earlier. It is empty only if both heaps are empty."""
        heap, unswept = self._heap, self._unswept
        return unswept if unswept and not (heap and heap[0] < unswept[0]) else heap

    def _drop_stale(self) -> None:
        """If there are too many stale entries (cancelled keys and changed deadlines), drop a few of them."""
        if not self._unswept:
            if len(self._heap) <= 2 * len(self._deadlines) + MOST_STALE:
                return
            self._heap, self._unswept = self._unswept, self._heap
        for _ in range(min(SWEPT_AT_ONCE, len(self._unswept))):
            entry = self._unswept.pop()  # a heap without its last entries is still a heap
            at, _, key = entry
            if self._queued.get(key) != at:
                continue
            if key in self._deadlines:
                heapq.heappush(self._heap, entry)
            else:
                del self._queued[key]
