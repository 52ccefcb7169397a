"""The waits of a run: each has a name and a limit, is shown while it is long, and fails the run when the limit is over.

Owns: the limits, and threads for blocking calls. Such a thread is a daemon: one that hangs ends with the process, where
a thread of asyncio's own pool would keep the process from ending.
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
    """How long a run waits for each kind of thing, in seconds; `JobOptions.time_limit_s` bounds all of it together."""

    notice_s: float = 30.0
    """A wait that lasts so long is shown, and again after as long."""
    processes_s: float = 120.0
    """For processes to start, or to end; each of them has a shorter limit of its own."""
    topics_s: float = 90.0
    """For topics to be created."""
    transform_s: float = 300.0
    """For the transformers to commit one more flight."""
    pipeline_s: float = 600.0
    """For the pipeline to finish one more micro-batch, and in the end to stop."""
    compute_s: float = 600.0
    """For the plain computation of the right result."""
    read_s: float = 900.0
    """For one topic, or the Parquet files, to be read to the end."""
    record_s: float = 60.0
    """For the next record of a topic that has more."""


class Wait:
    """A wait under way, from `Waits.upto`."""

    def __init__(self, name: Callable[[], str], limit_s: float) -> None:
        self.name = name
        self.limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._at: object = None
        self.scope = asyncio.timeout(limit_s)

    @property
    def waited_s(self) -> float:
        """Seconds since the wait began, or since it last got on."""
        return self._loop.time() - self._begun

    def stands_at(self, at: object) -> None:
        """Begin the wait anew if `at` is another value than last time: what is waited for gets on."""
        if at != self._at:
            self._at = at
            self._begun = self._loop.time()
            self.scope.reschedule(self._begun + self.limit_s)


class Waits:
    """The waits of one run; `observer` is told of those that are long."""

    def __init__(self, observer: Observer, limits: Limits) -> None:
        self.limits = limits
        self._observer = observer
        self._cancelled: list[str] = []

    @contextlib.asynccontextmanager
    async def upto(self, limit_s: float, name: str | Callable[[], str]) -> AsyncIterator[Wait]:
        """Bound what is awaited inside: JobFailed says what was waited for when the limit is over.

        `name` completes "waiting for ...". A TimeoutError of what is awaited passes through.
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
        """Run a blocking function in a thread of its own. Raises what it raises, and JobFailed as `upto` does."""
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
        """What the run was waiting for when it was cancelled, innermost first; failure messages name it."""
        return self._cancelled

    async def _show(self, wait: Wait) -> None:
        notice_s, shown_s = self.limits.notice_s, 0.0
        while True:
            if wait.waited_s < shown_s:  # it has got on meanwhile
                shown_s = 0.0
            if (left := shown_s + notice_s - wait.waited_s) > 0:
                await asyncio.sleep(left)
                continue
            shown_s = wait.waited_s
            self._observer.event(f"waiting for {wait.name()}: {shown_s:.0f} s of at most {wait.limit_s:g} s")
