"""`Requests`: a queue of actions for a distributed herder; its tick loop runs them one at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ..errors import ConnectError

T = TypeVar("T")


class Requests:
    """Actions in the order of their arrival. An action must not call `run`, because it would wait for itself."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: deque[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]]] = deque()
        self._closed = False

    async def run(self, action: Callable[[], Awaitable[T]]) -> T:
        """Make the tick loop run an action; return its result or raise its exception.

        Raises ConnectError after `close`.
        """
        if self._closed:
            raise ConnectError("Worker is shutting down")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((action, done))
        self._wake()
        return await done

    async def run_waiting(self) -> None:
        """Run the actions that are queued now; skip an action whose caller no longer waits."""
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
        """Fail the queued actions and all later ones with ConnectError."""
        self._closed = True
        while self._waiting:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_exception(ConnectError("Worker is shutting down"))
