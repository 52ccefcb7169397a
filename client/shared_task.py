"""`outcome_of`: waits for a task that several callers share. `BEGIN_AGAIN_S`: the pause before a cancelled task begins
again.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from .errors import IllegalStateError

T = TypeVar("T")

BEGIN_AGAIN_S: Final = 0.1
"""Seconds after which a client begins a task again that other code has cancelled.

The pause is a timer of the event loop and not a task. So a program that cancels tasks until none is left ends. An event
loop that closes within the pause after it has cancelled all tasks, like that of asyncio.run, leaves no new task behind.
If it takes longer to close, because a task cleans up, the task of a client that was left open begins again, and asyncio
logs "Task was destroyed but it is pending!".
"""


class SharedTaskCancelledError(IllegalStateError):
    """The task was cancelled: by closing the client, or by other code, for example at the end of asyncio.run."""


async def outcome_of(task: asyncio.Future[T]) -> T:
    """Return the task's result. Cancelling one of its waiters does not cancel the task.

    Raises SharedTaskCancelledError if the task is cancelled. A CancelledError would end the waiters silently, as if
    they had been cancelled themselves (a TaskGroup ignores it). If the client is still open, the caller begins again.
    """
    await asyncio.wait({task})  # raises CancelledError only if the waiter itself is cancelled
    if task.cancelled():
        raise SharedTaskCancelledError("the client was closed while the call waited")
    return task.result()
