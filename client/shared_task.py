"""`outcome_of`: waits for a task that several callers share."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from .errors import IllegalStateError

T = TypeVar("T")


async def outcome_of(task: asyncio.Future[T]) -> T:
    """Return the task's result. Cancelling one of its waiters does not cancel the task.

    If closing the client cancels the task, waiters get IllegalStateError. A CancelledError would end them silently, as
    if they had been cancelled themselves (a TaskGroup ignores it).
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if task.cancelled() and (current is None or not current.cancelling()):
            raise IllegalStateError("the client was closed while the call waited") from None
        raise
