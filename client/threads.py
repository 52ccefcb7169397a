"""`OwnThread` refuses calls from a thread other than that of the client's event loop.

asyncio is not safe to use from several threads: such a call would work most of the time, and now and then wait forever
or break the order of records.
"""

from __future__ import annotations

from threading import get_ident

from .errors import IllegalStateError


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
