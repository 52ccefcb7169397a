"""Reads PostgreSQL's infinite dates and timestamps, which Python cannot represent, with the driver psycopg.

infinity is read as Python's last date or timestamp, in the year 9999, and -infinity as the first, in the year 1. In the
position of a row, the last date or timestamp means infinity again, so that the row is not read twice.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from psycopg.abc import Buffer
from psycopg.types.datetime import DateLoader, TimestampLoader, TimestamptzLoader

_LATEST: Final = datetime.datetime.max
_EARLIEST: Final = datetime.datetime.min


def _value(data: Buffer, latest: Any, earliest: Any, load: Callable[[Buffer], Any]) -> Any:
    text = bytes(data)
    return latest if text == b"infinity" else earliest if text == b"-infinity" else load(data)


class _Date(DateLoader):
    def load(self, data: Buffer) -> datetime.date:
        date: datetime.date = _value(data, _LATEST.date(), _EARLIEST.date(), super().load)
        return date


class _Timestamp(TimestampLoader):
    def load(self, data: Buffer) -> datetime.datetime:
        at: datetime.datetime = _value(data, _LATEST, _EARLIEST, super().load)
        return at


class _Timestamptz(TimestamptzLoader):
    def load(self, data: Buffer) -> datetime.datetime:
        utc = datetime.UTC
        at: datetime.datetime = _value(data, _LATEST.replace(tzinfo=utc), _EARLIEST.replace(tzinfo=utc), super().load)
        return at


def read_infinity(engine: sa.Engine) -> None:
    """Make the connections of an engine read infinite dates and timestamps."""

    def connected(connection: psycopg.Connection[Any], record: object) -> None:
        connection.adapters.register_loader("date", _Date)
        connection.adapters.register_loader("timestamp", _Timestamp)
        connection.adapters.register_loader("timestamptz", _Timestamptz)

    sa.event.listen(engine, "connect", connected)
