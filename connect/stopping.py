"""Cancels an operation when a stop is requested."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StoppedError(Exception):
    """A stop was requested, and the operation in progress has been cancelled."""


async def unless_stopped(doing: Coroutine[Any, Any, T], stopping: asyncio.Event, name: str | None = None) -> T:
    """Run `doing` in a task named `name`, and return its result or raise its exception.

    If `stopping` is set first, the task is cancelled. This function waits for the task to end and raises StoppedError.
    If the task returns or fails despite the cancellation, its outcome is returned or raised instead.
    """
    task = asyncio.create_task(doing, name=name)
    stop = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        task.cancel()  # no effect on a task that is done
        await asyncio.gather(task, return_exceptions=True)
    if task.cancelled():
        raise StoppedError
    return task.result()
