"""Waiting for a task that several wait for: `outcome_of`."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from .errors import IllegalStateError

T = TypeVar("T")


async def outcome_of(task: asyncio.Future[T]) -> T:
    """Return what the task does; who waits may be cancelled without ending it for the others.

    The other way round, closing the client cancels the task, which is no cancellation of those who wait: taken for one,
    it would end them without an error (a TaskGroup ignores it). They get IllegalStateError.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if task.cancelled() and (current is None or not current.cancelling()):
            raise IllegalStateError("the client was closed meanwhile") from None
        raise
