"""Define what both halves of the demo share: the observer, the error of a failed job, and intervals in seconds."""

from __future__ import annotations

from typing import Final, Protocol

WATCH_INTERVAL_S: Final = 0.1
AIM_INTERVAL_S: Final = 0.005


class Observer(Protocol):
    """A receiver of the job's progress. Its methods are called on the event loop, and must return at once."""

    def progress(self, fed: int, done: int) -> None: ...

    def pipeline(self, done: int) -> None: ...

    def event(self, text: str) -> None: ...


class JobFailed(RuntimeError):
    """The job failed. The message contains the state of the job and the last log lines of its processes."""
