"""Waiting that a stop ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StoppedError(Exception):
    """The stop came first, and what was under way has been cancelled."""


async def unless_stopped(doing: Coroutine[Any, Any, T], stopping: asyncio.Event, name: str | None = None) -> T:
    """Return what `doing` returns, or raise what it raises, in a task of that name.

    When `stopping` is set first, the task is cancelled and has ended before this raises StoppedError. A task that ends
    otherwise all the same decides the outcome itself.
    """
    task = asyncio.create_task(doing, name=name)
    stop = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        task.cancel()  # without effect where it is done
        await asyncio.gather(task, return_exceptions=True)
    if task.cancelled():
        raise StoppedError
    return task.result()
