"""`ConnectorTaskId`: which task of which connector."""

from __future__ import annotations

from typing import NamedTuple


class ConnectorTaskId(NamedTuple):
    """A task: its connector's name, and its number from 0."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


def parse_task_id(text: str) -> ConnectorTaskId | None:
    """Return the task for "name-0"; names may have dashes. None for other texts."""
    connector, dash, number = text.rpartition("-")
    if not dash or not number.isdecimal() or not number.isascii():
        return None
    return ConnectorTaskId(connector, int(number))
