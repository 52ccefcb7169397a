"""Limit the waits of a run. Each wait has a name and a limit. Long waits are reported, and a wait fails at its limit.

Blocking calls run in daemon threads. A daemon thread that hangs ends with the process, while a thread of asyncio's pool
would prevent the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from .observer import JobFailed, Observer

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of each kind of wait, in seconds. `JobOptions.time_limit_s` limits the whole run."""

    notice_s: float = 30.0
    """Interval at which a long wait is reported."""
    processes_s: float = 120.0
    """Limit for processes to start or to end. Each process also has a shorter limit."""
    topics_s: float = 90.0
    """Limit for the creation of topics."""
    transform_s: float = 300.0
    """Limit for the next flight that the transformers commit."""
    pipeline_s: float = 600.0
    """Limit for the next micro-batch that the pipeline finishes, and after the last one, for its driver to end."""
    compute_s: float = 600.0
    """Limit for the computation of the expected results, in memory."""
    read_s: float = 900.0
    """Limit for reading a topic, or the Parquet files, to the end."""
    record_s: float = 60.0
    """Limit for the next record of a topic that has more records."""


class Wait:
    """A wait that `Waits.upto` has started."""

    def __init__(self, name: Callable[[], str], limit_s: float) -> None:
        self.name = name
        self.limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._at: object = None
        self.scope = asyncio.timeout(limit_s)

    @property
    def waited_s(self) -> float:
        """Seconds since the wait began, or since its last progress."""
        return self._loop.time() - self._begun

    def stands_at(self, at: object) -> None:
        """Report progress: if the position `at` differs from that of the last call, the wait's limit starts again."""
        if at != self._at:
            self._at = at
            self._begun = self._loop.time()
            self.scope.reschedule(self._begun + self.limit_s)


class Waits:
    """Limits the waits of a run: `upto` and `thread` raise JobFailed at the limit of a wait.

    Long waits are reported to `observer`.
    """

    def __init__(self, observer: Observer, limits: Limits) -> None:
        self.limits = limits
        self._observer = observer
        self._cancelled: list[str] = []

    @contextlib.asynccontextmanager
    async def upto(self, limit_s: float, name: str | Callable[[], str]) -> AsyncIterator[Wait]:
        """Limit the time spent in the context. Raise JobFailed, which names the wait, when the limit is exceeded.

        `name` completes "waiting for ...". A TimeoutError that is raised inside the context is passed on.
        """
        wait = Wait(name if callable(name) else lambda: name, limit_s)
        notices = asyncio.create_task(self._show(wait))
        try:
            async with wait.scope:
                yield wait
        except asyncio.CancelledError:
            self._cancelled.append(f"was waiting {wait.waited_s:.0f} s for {wait.name()}")
            raise
        except TimeoutError:
            if not wait.scope.expired():
                raise
            raise JobFailed(f"waited {limit_s:g} s for {wait.name()}") from None
        finally:
            notices.cancel()

    async def thread(
        self,
        limit_s: float,
        name: str | Callable[[], str],
        function: Callable[P, T],
        *arguments: P.args,
        **keywords: P.kwargs,
    ) -> T:
        """Run a blocking function in a new thread, and return its result.

        Raise the function's error, or JobFailed as `upto` does.
        """
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()

        def run() -> None:
            try:
                outcome.set_result(function(*arguments, **keywords))
            except BaseException as error:
                outcome.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        async with self.upto(limit_s, name):
            return await asyncio.wrap_future(outcome)

    def state(self) -> list[str]:
        """Return the waits that were cancelled, innermost first, for the message of a failure."""
        return self._cancelled

    async def _show(self, wait: Wait) -> None:
        notice_s, shown_s = self.limits.notice_s, 0.0
        while True:
            if wait.waited_s < shown_s:  # there was progress meanwhile
                shown_s = 0.0
            if (left := shown_s + notice_s - wait.waited_s) > 0:
                await asyncio.sleep(left)
                continue
            shown_s = wait.waited_s
            self._observer.event(f"waiting for {wait.name()}: {shown_s:.0f} s of at most {wait.limit_s:g} s")
