"""Store what the demo reports."""

from __future__ import annotations


class Notes:
    """An `Observer` of the demo that stores all reports. `events` has the lines that a user would see."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def progress(self, fed: int, done: int) -> None:
        pass

    def pipeline(self, done: int) -> None:
        pass

    def event(self, text: str) -> None:
        self.events.append(text)
