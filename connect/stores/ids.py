"""`ConnectorTaskId`: identifies a task by its connector and number."""

from __future__ import annotations

from typing import Final, NamedTuple

_DIGITS: Final = 10
"""The digits of the greatest task number, which has 32 bits in Kafka Connect."""


class ConnectorTaskId(NamedTuple):
    """A task: its connector's name, and its number, counted from 0."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


def parse_task_id(text: str) -> ConnectorTaskId | None:
    """Parse a string such as "name-0"; return None for any other format. Connector names may contain dashes."""
    connector, dash, number = text.rpartition("-")
    if not dash or not number.isdecimal() or not number.isascii() or len(number) > _DIGITS:
        return None
    return ConnectorTaskId(connector, int(number))
