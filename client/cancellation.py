"""Recognises cancellations, and bounds how long a cancelled client waits for the broker while it closes.

`asyncio.timeout` and `TaskGroup` cancel a task once. They do not cancel it again while the client's `__aexit__` awaits.
So `__aexit__` must bound its own waits; otherwise a broker that does not respond would hold up the caller.

In a program with blocking clients, Ctrl-C cancels no task, but raises KeyboardInterrupt. So the waits are bounded after
this exception, too.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from .config import ClientConfig


def is_cancelling() -> bool:
    """Return whether the current task has been asked to cancel.

    If it has not, a CancelledError in the task comes from a future that other code has cancelled. Such an error must be
    caught, because otherwise it would end the task silently.
    """
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def is_cancellation(error: BaseException | None) -> bool:
    """Return whether the error that ended a block is a cancellation or a KeyboardInterrupt."""
    return isinstance(error, asyncio.CancelledError | KeyboardInterrupt)


def grace_s(config: ClientConfig, error: BaseException | None) -> float | None:
    """Return the maximum seconds for closing a client after `error`, or None if `error` is not a cancellation."""
    return config.cancel_grace_ms / 1000 if is_cancellation(error) else None


class ClosingBound:
    """Bounds the time for closing a client in several steps, each of which runs in a `with` block of this object.

    If a step is cancelled, the remaining steps together have at most cancel.grace.ms. `timeout_s` bounds all steps
    together; None means no bound unless a step is cancelled.
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
