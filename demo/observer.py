"""What both halves of the demo share: who is told how it goes, how it fails, and how often it looks."""

from __future__ import annotations

from typing import Final, Protocol

WATCH_INTERVAL_S: Final = 0.1
AIM_INTERVAL_S: Final = 0.005


class Observer(Protocol):
    """Is told how the job goes; called on the event loop, must return at once."""

    def progress(self, fed: int, done: int) -> None: ...

    def pipeline(self, done: int) -> None: ...

    def event(self, text: str) -> None: ...


class JobFailed(RuntimeError):
    """The job did not come to its end; the text says where it stood and what the processes said last."""
