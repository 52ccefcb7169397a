"""Let Fetch requests wait until there is enough data (`fetch.min.bytes`).

A wait ends at the first of these events: enough data is available, its time is up, a later response of its connection
waits for it, its connection closes, or the broker is stopping. The handler reads the records only when the response can
be sent. When a log advances, the cost per wait does not depend on how many other logs the wait watches.

Usually the waits of a log are checked as soon as the log advances. If very many waits must be checked at the same
time, only some are checked immediately. The others are postponed: they are checked in the next turns of the event loop,
a few of each log at a time. When a wait on many logs ends, it needs several turns to stop watching them. So even very
many waits and logs do not delay other clients.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from ..log import Log
from .connection_info import ConnectionInfo

LOOKED_AT_PER_TURN: Final = 100
"""How many waits are checked in one turn of the event loop. A wait that ends takes about 25 µs, with its response."""

_SHARE: Final = 20
"""How many waits of one log are checked before the waits of the next log, if waits of several logs are postponed."""

UNWATCHED_PER_TURN: Final = 500
"""The number of logs from which ended waits are removed in one turn of the event loop.

Each removal takes about half a microsecond.
"""

_FEW_LOGS: Final = 100
"""A wait that watches at most this many logs stops watching all of them at once."""


class FetchWait:
    """One waiting Fetch request. Its future `done` has no result and only signals the end of the wait."""

    __slots__ = ("_connection", "_is_enough", "_purgatory", "_timer", "done", "logs")

    def __init__(
        self,
        purgatory: FetchPurgatory,
        is_enough: Callable[[Log], bool],
        max_wait_s: float,
        connection: ConnectionInfo,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        self.logs: list[Log] = []
        self._purgatory = purgatory
        self._is_enough = is_enough
        self._connection = connection
        self._timer = loop.call_later(max_wait_s, purgatory.end, self)
        connection.closed.add_done_callback(self._closed)

    def watch(self, log: Log) -> None:
        """Check whether there is enough data whenever this log advances."""
        if not self.done.done():
            self.logs.append(log)
            log.add_listener(self._advanced)

    def unwatch(self, count: int) -> int:
        """Stop watching `count` of the logs, or all if there are fewer. Return how many logs were removed."""
        count = min(count, len(self.logs))
        for _ in range(count):
            self.logs.pop().remove_listener(self._advanced)
        return count

    def _advanced(self, log: Log) -> None:
        if self.done.done():
            return
        if self._purgatory.may_look():
            self.look_at(log)
        else:
            self._purgatory.look_later(self, log)

    def look_at(self, log: Log) -> None:
        """End the wait if it has enough data now that `log` has advanced."""
        if not self.done.done() and self._is_enough(log):
            self.release()

    def _closed(self, closed: asyncio.Future[None]) -> None:
        self._purgatory.end(self)

    def release(self) -> None:
        """End the wait: complete `done` and stop watching the logs and the connection."""
        if self.done.done():
            return
        self.done.set_result(None)
        self._timer.cancel()
        self._connection.closed.remove_done_callback(self._closed)
        self._purgatory.ended(self)


class FetchPurgatory:
    """All waiting Fetch requests of the broker."""

    def __init__(self) -> None:
        self.waiting: dict[FetchWait, None] = {}
        self._closed = False
        self._left = LOOKED_AT_PER_TURN
        """The number of waits that may still be checked before the next `_turn`."""
        self._due: dict[Log | None, deque[FetchWait]] = {}
        """The waits to check in the next turns, by the log that has advanced. Under None: waits that must end."""
        self._due_logs: deque[Log | None] = deque()
        """The keys of `_due`, in the order in which their waits are checked."""
        self._postponed: set[tuple[FetchWait, Log | None]] = set()
        self._watching_still: deque[FetchWait] = deque()
        """The waits that have ended, but have not yet stopped watching all of their logs."""
        self._turn_is_due = False

    def wait(self, is_enough: Callable[[Log], bool], max_wait_s: float, connection: ConnectionInfo) -> FetchWait:
        """Return a new wait. The caller then passes it the logs to watch.

        The wait ends after `max_wait_s` seconds, or when one of these logs advances and `is_enough(log)` is true.
        """
        wait = FetchWait(self, is_enough, 0 if self._closed else max_wait_s, connection)
        self.waiting[wait] = None
        return wait

    def release_all(self) -> None:
        """End all present and future waits, because the broker is stopping."""
        self._closed = True
        for wait in list(self.waiting):
            self.end(wait)

    def end(self, wait: FetchWait) -> None:
        """End a wait, even if the logs that it watches do not have enough data.

        If too many waits have been checked in this turn of the event loop, `wait` ends in one of the next.
        """
        if self.may_look():
            wait.release()
        else:
            self.look_later(wait, None)

    # --- for waits

    def may_look(self) -> bool:
        """Return whether one more wait may be checked in this turn of the event loop. If so, count the check.

        If the result is False, the caller must call `look_later`.
        """
        if self._left == 0:
            return False
        self._left -= 1
        if self._left <= LOOKED_AT_PER_TURN // 2 and not self._turn_is_due:
            self._request_turn()
        return True

    def look_later(self, wait: FetchWait, log: Log | None) -> None:
        """Check the wait in one of the next turns of the event loop.

        The wait is checked only once, even if the log advances several times before then.
        """
        if (wait, log) in self._postponed:
            return
        self._postponed.add((wait, log))
        waits = self._due.get(log)
        if waits is None:
            waits = self._due[log] = deque()
            self._due_logs.append(log)
        waits.append(wait)
        if not self._turn_is_due:
            self._request_turn()

    def ended(self, wait: FetchWait) -> None:
        """Forget a wait that has ended."""
        self.waiting.pop(wait, None)
        if len(wait.logs) <= _FEW_LOGS:
            wait.unwatch(_FEW_LOGS)
        else:
            self._watching_still.append(wait)
            if not self._turn_is_due:
                self._request_turn()

    def _request_turn(self) -> None:
        self._turn_is_due = True
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Check the next postponed waits, and let some of the ended waits stop watching their logs."""
        self._turn_is_due = False
        left = LOOKED_AT_PER_TURN
        self._left = 0  # waits of logs that advance meanwhile come after the others
        try:
            while self._due_logs and left > 0:
                left -= self._look_at_some(min(_SHARE, left))
            unwatched = 0
            while self._watching_still and unwatched < UNWATCHED_PER_TURN:
                wait = self._watching_still[0]
                unwatched += wait.unwatch(UNWATCHED_PER_TURN - unwatched)
                if not wait.logs:
                    self._watching_still.popleft()
        finally:
            self._left = 0 if self._due else left
            if (self._due or self._watching_still or left <= LOOKED_AT_PER_TURN // 2) and not self._turn_is_due:
                self._request_turn()

    def _look_at_some(self, count: int) -> int:
        """Check up to `count` of the postponed waits of the first log in the queue; return how many were checked.

        If more waits of this log are postponed, the log moves to the end of the queue.
        """
        log = self._due_logs.popleft()
        waits = self._due[log]
        count = min(count, len(waits))
        try:
            for _ in range(count):
                wait = waits.popleft()
                self._postponed.discard((wait, log))
                if log is None:
                    wait.release()
                else:
                    wait.look_at(log)
        finally:
            if waits:
                self._due_logs.append(log)
            else:
                del self._due[log]
        return count
