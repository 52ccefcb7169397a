"""`outcome_of` waits for a task that several callers share. `was_interrupted` and `BEGIN_AGAIN_S` say whether and when
a cancelled task begins again.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

from .errors import IllegalStateError

T = TypeVar("T")

BEGIN_AGAIN_S: Final = 0.1
"""Seconds after which a client again begins a task that other code has cancelled.

During the pause there is only a timer and no task, so that a program which cancels all tasks until none is left does
not run forever. asyncio.run cancels all tasks and then closes the event loop. If that takes less time than the pause,
no new task is left behind. If it takes longer, because a task cleans up, the task of a client that was left open begins
again, and asyncio logs "Task was destroyed but it is pending!".
"""


def was_interrupted(task: asyncio.Task[Any]) -> bool:
    """Return whether a finished task was cancelled, or was ended by SystemExit or KeyboardInterrupt.

    A function of the program may raise these exceptions, and the event loop may continue to run.
    """
    return task.cancelled() or not isinstance(task.exception(), Exception | None)


class SharedTaskCancelledError(IllegalStateError):
    """The task was cancelled: by closing the client, or by other code, for example at the end of asyncio.run."""


async def outcome_of(task: asyncio.Future[T]) -> T:
    """Wait for the task, and return its result. Cancelling one of its waiters does not cancel the task.

    If the task is cancelled, raises SharedTaskCancelledError in place of CancelledError. A CancelledError would end the
    waiters silently, as if they themselves had been cancelled; a TaskGroup, for example, ignores it. If the client is
    still open, the caller begins a new task.
    """
    await asyncio.wait({task})  # raises CancelledError only if the waiter itself is cancelled
    if task.cancelled():
        raise SharedTaskCancelledError("the client was closed while the call waited")
    return task.result()
