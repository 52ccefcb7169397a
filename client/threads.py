"""Which thread or task calls a client.

`OwnThread` refuses calls from a thread other than that of the client's event loop. asyncio is not safe to use from
several threads: such a call would work most of the time, and now and then wait forever or break the order of records.

`current_caller` names the task or thread that makes a call. The task that runs the call may be another one.
"""

from __future__ import annotations

import asyncio
from threading import Thread, current_thread, get_ident
from typing import Any

from .errors import IllegalStateError

Caller = asyncio.Task[Any] | Thread
"""A task, or a thread that calls from outside of tasks, as a program with a blocking client does."""


def current_caller() -> Caller:
    """Return the current task or, outside of tasks, the current thread."""
    try:
        return asyncio.current_task() or current_thread()
    except RuntimeError:  # no event loop runs in this thread
        return current_thread()


def has_succeeded(caller: Caller) -> bool:
    """Whether the task has ended without an exception, or the thread has ended.

    Python does not tell whether an exception ended a thread.
    """
    if isinstance(caller, Thread):
        return not caller.is_alive()
    return caller.done() and not caller.cancelled() and caller.exception() is None


class OwnThread:
    """The thread in which this object was made."""

    __slots__ = ("_ident", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._ident = get_ident()

    def check(self) -> None:
        """Raise IllegalStateError in any other thread."""
        if get_ident() != self._ident:
            raise IllegalStateError(
                f"{self._what} can be used only in the thread of its event loop: call it in that thread (from another"
                " thread, use asyncio.run_coroutine_threadsafe() or loop.call_soon_threadsafe()), or use oncelog.sync"
            )
