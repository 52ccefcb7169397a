"""`Requests`: what others ask of a distributed herder; its tick loop does it, one thing at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ..errors import ConnectError

T = TypeVar("T")


class Requests:
    """Actions in the order of their arrival. An action must not call `run` itself: it would wait for its own end."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: deque[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]]] = deque()
        self._closed = False

    async def run(self, action: Callable[[], Awaitable[T]]) -> T:
        """Have the tick loop run an action; returns what it returns, raises what it raises."""
        if self._closed:
            raise ConnectError("Worker is shutting down")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((action, done))
        self._wake()
        return await done

    async def run_waiting(self) -> None:
        """Run what waits now; an action that nobody waits for any more is left out."""
        for _ in range(len(self._waiting)):
            action, done = self._waiting.popleft()
            if done.done():
                continue
            try:
                result = await action()
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            except BaseException:
                if not done.done():
                    done.set_exception(ConnectError("Worker is shutting down"))
                raise
            else:
                if not done.done():
                    done.set_result(result)
        if self._waiting:
            self._wake()

    def close(self) -> None:
        """Refuse what waits, and all that comes later."""
        self._closed = True
        while self._waiting:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_exception(ConnectError("Worker is shutting down"))
