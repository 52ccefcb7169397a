"""`Calls`: calls the methods of connectors and tasks, coroutines in the event loop and plain functions in a thread.

Each `Calls` has its own thread, so the plain functions that it calls never run at the same time. The thread is a
daemon: a method that never returns cannot keep the process from ending.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_Job = tuple[Callable[..., Any], tuple[Any, ...], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Calls:
    """Calls the methods of one connector or task."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call the method; return its result or raise its exception."""
        if inspect.iscoroutinefunction(method):
            return await method(*arguments)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._jobs.put((method, arguments, loop, done))
        result = await done
        return await result if inspect.isawaitable(result) else result

    def close(self, last: Callable[[], Any] | None = None) -> None:
        """End the thread after it has run its pending calls and `last`. If there is no thread, call `last` directly."""
        if self._thread is not None:
            if last is not None:
                loop = asyncio.get_running_loop()
                self._jobs.put((last, (), loop, loop.create_future()))
            self._jobs.put(None)
        elif last is not None:
            last()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            method, arguments, loop, done = job
            try:
                result, error = method(*arguments), None
            except BaseException as raised:
                result, error = None, raised
            with suppress(RuntimeError):  # raised if the loop is closed: no caller waits any more
                loop.call_soon_threadsafe(_settle, done, result, error)


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(result)
    elif isinstance(error, StopIteration):  # a future cannot hold a StopIteration
        done.set_exception(RuntimeError(f"StopIteration was raised: {error}"))
    else:
        done.set_exception(error)
