"""The flush thread without a thread: each sync happens at a moment of simulated time, one after the other.

Between two syncs of a round the power may fail, so that one log is on disk and another, appended before it, is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from oncelog.broker.log import flusher
from oncelog.broker.log.flusher import LogFlusher
from oncelog.broker.ports import FileSystem

Work = list[Callable[[], Callable[[], None]]]


class _NoThreads:
    """In place of the module `threading`."""

    class Thread:
        def __init__(self, **_: object) -> None: ...

        def start(self) -> None: ...


class SimulatedFlusher(LogFlusher):
    """A LogFlusher whose rounds take `latency()` seconds for each log."""

    def __init__(self, fs: FileSystem, on_failure: Callable[[OSError], None], latency: Callable[[], float]) -> None:
        with mock.patch.object(flusher, "threading", _NoThreads):
            super().__init__(fs, on_failure)
        self._latency = latency
        self._queue = self  # type: ignore[assignment]

    async def stop(self) -> None:
        await self.drain()
        self.abandon()

    def put(self, work: Work | None) -> None:
        """A round begins."""
        if work is not None:
            self._loop.call_later(self._latency(), self._step, work, [])

    def _step(self, work: Work, outcomes: list[Any]) -> None:
        if self._failed:
            return
        outcomes.append(work[len(outcomes)]())
        if len(outcomes) < len(work):
            self._loop.call_later(self._latency(), self._step, work, outcomes)
        else:
            self._finish(outcomes)
