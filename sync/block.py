"""`Block`: a context manager that notices if an interrupt keeps `__exit__` from running.

Python calls the handlers of signals when a function begins, and not before. If a signal arrives in the last instruction
of a `with` block, KeyboardInterrupt is therefore raised in `__exit__` before its first line. No `try` can catch it
there, and the block ends as if it had no `__exit__`.

But a `with` statement looks `__exit__` up before the block, and drops it when the block and `__exit__` are over. So the
look-up returns a new object, to which nothing else refers, and a weak reference shows when the statement has ended.
This object is not a bound method, because Python may drop a bound method already at the call.
"""

from __future__ import annotations

import functools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

F = TypeVar("F", bound=Callable[..., None])


class Block(ABC):
    """A context manager whose `__exit__` is decorated with `noticed`."""

    _exit: weakref.ref[object] | None = None
    """The `__exit__` that was looked up last."""
    _held_exit: weakref.ref[object] | None = None
    """The `__exit__` that the `with` statement holds. None if there is no such statement or `__exit__` has begun."""

    def _entered(self) -> None:
        """Note that the block has begun; `__enter__` calls this."""
        self._held_exit = self._exit

    def _leaving(self) -> None:
        """Note that `__exit__` has begun, and does the rest itself."""
        self._held_exit = None

    @abstractmethod
    def _abandoned(self) -> None:
        """End what the block has begun, without waiting. Called if its `with` statement has ended without `__exit__`.

        May be called in any thread.
        """

    def _look_up(self, exit: Callable[..., None]) -> Callable[..., None]:
        """Return `exit` as method of this object."""
        method = functools.partial(exit, self)
        if self._exit is None or self._exit() is None:  # else a `with` statement may hold the one of before
            self._exit = weakref.ref(method, self._dropped)
        return method

    def _dropped(self, exit: weakref.ref[object]) -> None:
        if exit is self._held_exit:
            self._abandoned()


class _Noticed:
    """The attribute `__exit__` of a Block."""

    def __init__(self, exit: Callable[..., None]) -> None:
        self._function: Final = exit

    def __get__(self, block: Block | None, owner: type[Any] | None = None) -> Callable[..., None]:
        return self._function if block is None else block._look_up(self._function)


def noticed(exit: F) -> F:
    """Decorate `__exit__` so that its Block notices when a `with` statement has ended."""
    return cast(F, _Noticed(exit))
