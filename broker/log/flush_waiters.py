"""Keep the futures of the callers that wait until the batches of one log are on disk.

There is one future for the flush that is under way, and one for the next flush: all callers that wait for the same
flush share its future. This module does not know what a flush covers: `LogFiles` chooses the flush to wait for.
"""

from __future__ import annotations

import asyncio

from ...protocol.errors import KafkaError


class FlushWaiters:
    """The waiters for the current flush of one log, and those for its next flush."""

    __slots__ = ("_current", "_next")

    def __init__(self) -> None:
        self._current: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None

    def for_current(self) -> asyncio.Future[None]:
        """Return the future of the current flush. Callers must shield it, because other callers may await it, too."""
        if self._current is None:
            self._current = _future()
        return self._current

    def for_next(self) -> asyncio.Future[None]:
        """Return the future of the next flush. Callers must shield it, because other callers may await it, too."""
        if self._next is None:
            self._next = _future()
        return self._next

    @property
    def is_next_awaited(self) -> bool:
        """Whether a caller waits for the next flush."""
        return self._next is not None

    def begin(self) -> None:
        """Record that the next flush has begun and is now the current one."""
        self._current, self._next = self._next, None

    def succeed(self) -> None:
        """Complete the future of the current flush, which has ended."""
        current, self._current = self._current, None
        if current is not None and not current.done():
            current.set_result(None)

    def put_back(self) -> None:
        """Let the callers that wait for the current flush wait for the next one, which covers the current one, too."""
        current, self._current = self._current, None
        if self._next is None:
            self._next = current
        elif current is not None:
            self._next.add_done_callback(lambda done: _copy_outcome(done, current))

    def fail(self, failure: KafkaError) -> None:
        """Fail the futures of both flushes."""
        for waiting in (self._current, self._next):
            if waiting is not None and not waiting.done():
                waiting.set_exception(failure)
        self._current = self._next = None


def _copy_outcome(done: asyncio.Future[None], waiting: asyncio.Future[None]) -> None:
    """Complete the future `waiting` with the result or error of the future `done`."""
    if waiting.done() or done.cancelled():
        return
    error = done.exception()
    if error is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(error)


def _future() -> asyncio.Future[None]:
    """Return a new future. If nobody retrieves its error, asyncio does not report this."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # callers need not wait for it
    return future
