"""An Observer of the demo that keeps what it is told."""

from __future__ import annotations


class Notes:
    """`events` has the lines that a user would see."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def progress(self, fed: int, done: int) -> None:
        pass

    def pipeline(self, done: int) -> None:
        pass

    def event(self, text: str) -> None:
        self.events.append(text)
