"""Whether the disk of a data directory takes writes: a small file is written and synced when a health check asks.

Owns when a probe begins and what its outcome means. One probe is under way at most, and one begins per interval at
most: checks that come in between share its outcome. It runs in the flush lane, as the syncs of logs do, never on the
event loop. A probe that fails is no failed write of log data; nothing but the answer depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from ..descriptors import OUT_OF_DESCRIPTORS
from ..ports import Lane, Threads

logger = structlog.get_logger(__name__)


class DiskProbe:
    """The probes of the data directory at `path`. Used on one event loop.

    `write` does a small write and returns when it is on disk; it raises OSError. `interval_ms`: from the beginning of
    one probe to that of the next, at least. `timeout_ms`: a probe that takes longer counts as failed until it ends.
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
        """What keeps the disk from taking a write, None if nothing does; known when the time limit is over at last."""
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
        self._under_way = False
        error = run.exception()
        self._problem = None
        if isinstance(error, OSError):
            if error.errno not in OUT_OF_DESCRIPTORS:  # which says nothing about the disk
                self._problem = f"The data directory {self._path} does not take writes: {error}. See to its disk."
        elif error is not None:
            self._problem = f"The data directory {self._path} could not be written to: {error!r}."
        self._note(self._problem)
        waiting, self._waiting = self._waiting, {}
        for answer, timer in waiting.items():
            timer.cancel()
            if not answer.done():
                answer.set_result(self._problem)

    def _give_up(self, answer: asyncio.Future[str | None]) -> None:
        """Answer though the probe has not ended."""
        self._waiting.pop(answer, None)
        problem = (
            f"The data directory {self._path} has not finished a small write and its sync for more than"
            f" health.probe.timeout.ms = {self._timeout_ms}. See whether its disk answers."
        )
        self._note(problem)
        if not answer.done():
            answer.set_result(problem)

    def _note(self, problem: str | None) -> None:
        """Log the first failure, and the first success after it."""
        if problem is not None and not self._failing:
            logger.warning("disk probe failed", directory=self._path, reason=problem)
        elif problem is None and self._failing:
            logger.info("disk probe succeeded again", directory=self._path)
        self._failing = problem is not None
