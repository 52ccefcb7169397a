"""`KeptTask`: a task that begins again if other code cancels or ends it, because an open client always needs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from .shared_task import BEGIN_AGAIN_S, was_interrupted

log = logging.getLogger(__name__)


class KeptTask:
    """A task that begins again BEGIN_AGAIN_S after other code has cancelled it.

    It also begins again after SystemExit or KeyboardInterrupt has ended it, because the event loop may continue to run.
    It ends permanently when its coroutine returns or fails.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._work = work
        self._name = name
        self._is_wanted = True
        self._task: asyncio.Task[None]
        self._begin()

    def cancel(self) -> asyncio.Task[None]:
        """Cancel the task for good, and return it."""
        self._is_wanted = False
        self._task.cancel()
        return self._task

    def _begin(self) -> None:
        if self._is_wanted:
            self._task = asyncio.create_task(self._work(), name=self._name)
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("the task %r failed", self._name, exc_info=failure)
        if was_interrupted(task):
            asyncio.get_running_loop().call_later(BEGIN_AGAIN_S, self._begin)
