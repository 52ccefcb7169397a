"""Check whether the disk of a data directory accepts writes: write and sync a small file when a health check asks.

This module decides when a probe begins and what its result means. At most one probe runs at a time, and at most one
begins per interval. Health checks between two probes share the last result. A probe runs in the flush lane, like the
syncs of logs, never on the event loop. A failed probe is not treated like a failed write of log data: it affects only
the response to the health check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from ..system.descriptors import OUT_OF_DESCRIPTORS
from ..system.ports import Lane, Threads

logger = structlog.get_logger(__name__)


class DiskProbe:
    """The probes of the data directory at `path`, for use on one event loop.

    `write` writes a few bytes and returns when they are on disk; it raises OSError. `interval_ms`: minimum time between
    the beginnings of two probes. `timeout_ms`: a probe that takes longer counts as failed until it ends.
    """

    def __init__(
        self, path: str, write: Callable[[], None], threads: Threads, *, interval_ms: int, timeout_ms: int
    ) -> None:
        self._path = path
        self._write = write
        self._threads = threads
        self._interval_s = interval_ms / 1000
        self._timeout_ms = timeout_ms
        self._begun: float | None = None
        self._under_way = False
        self._problem: str | None = None
        self._waiting: dict[asyncio.Future[str | None], asyncio.TimerHandle] = {}
        self._failing = False

    def check(self) -> asyncio.Future[str | None]:
        """Return a future. Its result is the reason why the disk does not accept writes, or None if it does.

        The future is done at the latest when the probe's time limit has passed.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str | None] = loop.create_future()
        if not self._under_way:
            if self._begun is not None and loop.time() - self._begun < self._interval_s:
                answer.set_result(self._problem)
                return answer
            self._begun = loop.time()
            self._under_way = True
            self._threads.run(Lane.FLUSH, self._write).add_done_callback(self._ended)
        assert self._begun is not None
        left_s = self._begun + self._timeout_ms / 1000 - loop.time()
        if left_s <= 0:
            self._give_up(answer)
        else:
            self._waiting[answer] = loop.call_later(left_s, self._give_up, answer)
        return answer

    def _ended(self, run: asyncio.Future[None]) -> None:
        """Record the result of the probe `run` and answer the checks that wait for it."""
        self._under_way = False
        error = run.exception()
        self._problem = None
        if isinstance(error, OSError):
            if error.errno not in OUT_OF_DESCRIPTORS:  # a lack of descriptors says nothing about the disk
                self._problem = f"The data directory {self._path} does not accept writes: {error}. Check its disk."
        elif error is not None:
            self._problem = f"The data directory {self._path} could not be written to: {error!r}. Check its disk."
        self._note(self._problem)
        waiting, self._waiting = self._waiting, {}
        for answer, timer in waiting.items():
            timer.cancel()
            if not answer.done():
                answer.set_result(self._problem)

    def _give_up(self, answer: asyncio.Future[str | None]) -> None:
        """Answer a check with a failure because the probe has not ended within its time limit."""
        self._waiting.pop(answer, None)
        problem = (
            f"The data directory {self._path} has not finished a small write and its sync within"
            f" health.probe.timeout.ms = {self._timeout_ms}. Check whether its disk responds."
        )
        self._note(problem)
        if not answer.done():
            answer.set_result(problem)

    def _note(self, problem: str | None) -> None:
        """Log the result if it is the first failure, or the first success after a failure."""
        if problem is not None and not self._failing:
            logger.warning("disk probe failed", directory=self._path, reason=problem)
        elif problem is None and self._failing:
            logger.info("disk probe succeeded again", directory=self._path)
        self._failing = problem is not None
