"""Finds out which thread or task calls a client.

`OwnThread` refuses calls from a thread other than that of the client's event loop. asyncio must not be used from
several threads. A call from another thread would work most of the time, but sometimes it would wait forever or break
the order of records.

`current_caller` returns the task or thread that makes a call, which may differ from the task that runs it. `call_for`
makes a call for another thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from threading import Thread, current_thread, get_ident
from typing import Any, Final, TypeVar

from .errors import IllegalStateError

T = TypeVar("T")

Caller = asyncio.Task[Any] | Thread
"""A task, or a thread that makes a call outside of any task, as in a program with a blocking client."""


_CALLED_FOR: Final[ContextVar[Caller | None]] = ContextVar("called_for", default=None)


def call_for(caller: Caller, function: Callable[[], T]) -> T:
    """Call a plain function for another thread or task, which `current_caller` returns during the call."""
    token = _CALLED_FOR.set(caller)
    try:
        return function()
    finally:
        _CALLED_FOR.reset(token)


def current_caller() -> Caller:
    """Return the current task or, outside of tasks, the current thread. Within `call_for`, return its `caller`."""
    called_for = _CALLED_FOR.get()
    if called_for is not None:
        return called_for
    try:
        return asyncio.current_task() or current_thread()
    except RuntimeError:  # no event loop runs in this thread
        return current_thread()


def has_succeeded(caller: Caller) -> bool:
    """Return whether a task has ended without an exception, or whether a thread has ended.

    Python does not report whether an exception ended a thread.
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
