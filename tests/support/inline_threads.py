"""Threads whose jobs run on the event loop, one after another, so that the n-th operation on a file is always the same.

`PowerFailure` counts the operations of a file system and fails it at one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from oncelog.broker.system.ports import Lane, Threads

from .faulty_filesystem import FaultyFileSystem

T = TypeVar("T")


class PowerCut(BaseException):
    """Raised at the operation at which the power fails. After it, nothing more happens."""


class InlineThreads(Threads):
    """The `Threads` of one life of a manager. A job in which the power fails never ends."""

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        loop.call_soon(self._do, job, future)
        return future

    def _do(self, job: Callable[[], T], future: asyncio.Future[T]) -> None:
        try:
            result = job()
        except PowerCut:
            return
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None: ...


class PowerFailure:
    """Lets the power fail at operation `after` (None: never) of `fs`, and then sets `failed`.

    `count` is the number of operations that have been executed.
    """

    def __init__(self, fs: FaultyFileSystem, after: int | None) -> None:
        self.count = 0
        self.failed = asyncio.Event()
        self._after = after
        fs.before = self._operation

    def _operation(self, name: str, path: str) -> None:
        if self.count == self._after:
            self.failed.set()
            raise PowerCut
        self.count += 1

    async def end_of(self, work: asyncio.Task[None]) -> None:
        """Return when the work is done, or when the power has failed. Raises what the work raises."""
        failing = asyncio.ensure_future(self.failed.wait())
        await asyncio.wait({work, failing}, return_when=asyncio.FIRST_COMPLETED)
        failing.cancel()
        if not self.failed.is_set():
            await work
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
