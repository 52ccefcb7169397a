"""`is_cancelling` recognises the cancellation of a client's task. `grace_s` and `ClosingBound` bound how long a client
that is closed by a cancellation waits for the broker.

`asyncio.timeout` and `TaskGroup` cancel a task once. They do not cancel it again while `__aexit__` awaits, so
`__aexit__` must bound its own waits: a broker that does not respond must not hold up the caller.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from .config import ClientConfig


def is_cancelling() -> bool:
    """Return whether the current task has been asked to cancel.

    If not, a CancelledError in the task comes from a future that other code has cancelled. If that error left the task,
    it would end the task silently.
    """
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def grace_s(config: ClientConfig, error: BaseException | None) -> float | None:
    """Return the bound for closing after `error`, in seconds, or None if `error` is not a cancellation."""
    return config.cancel_grace_ms / 1000 if isinstance(error, asyncio.CancelledError) else None


class ClosingBound:
    """The time that is left for closing a client in several steps. A cancellation in one step shortens the time for all
    others.

    Each step runs in a `with` block of this object. After a cancellation, at most cancel.grace.ms remain.
    """

    def __init__(self, config: ClientConfig, timeout_s: float | None) -> None:
        self._config = config
        self._now = asyncio.get_running_loop().time
        self._deadline = None if timeout_s is None else self._now() + timeout_s

    def left_s(self) -> float | None:
        """Return the seconds that are left, at least 0, or None if there is no bound."""
        return None if self._deadline is None else max(self._deadline - self._now(), 0.0)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        grace = grace_s(self._config, error)
        if grace is not None:
            by = self._now() + grace
            self._deadline = by if self._deadline is None else min(self._deadline, by)
