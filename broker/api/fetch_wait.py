"""Let Fetch requests wait for data; an advancing log wakes them, so that they never poll.

A wait ends exactly once: when enough data is available, when its time is up, when its connection closes, or when the
broker stops. The handler reads the records only when the response can be sent. When a log advances, the cost per wait
does not depend on how many other logs the wait watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..log import Log
from .connection_info import ConnectionInfo


class FetchWait:
    """One waiting Fetch request. Its future `done` has no result and only signals the end of the wait."""

    __slots__ = ("_connection", "_is_enough", "_logs", "_purgatory", "_timer", "done")

    def __init__(
        self,
        purgatory: FetchPurgatory,
        is_enough: Callable[[Log], bool],
        max_wait_s: float,
        connection: ConnectionInfo,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        self._purgatory = purgatory
        self._logs: list[Log] = []
        self._is_enough = is_enough
        self._connection = connection
        self._timer = loop.call_later(max_wait_s, self.release)
        connection.closed.add_done_callback(self._closed)

    def watch(self, log: Log) -> None:
        """Check whether there is enough data whenever this log advances."""
        if not self.done.done():
            self._logs.append(log)
            log.add_listener(self._advanced)

    def _advanced(self, log: Log) -> None:
        if not self.done.done() and self._is_enough(log):
            self.release()

    def _closed(self, closed: asyncio.Future[None]) -> None:
        self.release()

    def release(self) -> None:
        """End the wait: complete `done` and stop watching the logs and the connection."""
        if self.done.done():
            return
        self.done.set_result(None)
        self._timer.cancel()
        for log in self._logs:
            log.remove_listener(self._advanced)
        self._connection.closed.remove_done_callback(self._closed)
        self._purgatory.waiting.pop(self, None)


class FetchPurgatory:
    """All waiting Fetch requests of the broker."""

    def __init__(self) -> None:
        self.waiting: dict[FetchWait, None] = {}
        self._closed = False

    def wait(self, is_enough: Callable[[Log], bool], max_wait_s: float, connection: ConnectionInfo) -> FetchWait:
        """Return a wait that ends after `max_wait_s` seconds, or when a log advances and `is_enough(log)` is true."""
        wait = FetchWait(self, is_enough, 0 if self._closed else max_wait_s, connection)
        self.waiting[wait] = None
        return wait

    def release_all(self) -> None:
        """End all present and future waits, because the broker is stopping."""
        self._closed = True
        for wait in list(self.waiting):
            wait.release()
