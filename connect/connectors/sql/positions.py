"""Positions in a table as source offsets: JSON that keeps the type of each value.

Numbers and texts are written as they are; other types have a name: {"datetime": "2026-01-02T03:04:05.678901"}.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from ...errors import ConnectError

_TYPES: Final[dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]]] = {
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
    "decimal": (Decimal, str, Decimal),
    "uuid": (uuid.UUID, str, uuid.UUID),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
}


def encode(value: Any) -> Any:
    """Return the JSON value for a value of a column; raises ConnectError for a type that has no order."""
    if isinstance(value, int | str | float):
        return value
    for name, (kind, write, _) in _TYPES.items():
        if isinstance(value, kind):
            return {name: write(value)}
    raise ConnectError(f"a {type(value).__name__} cannot be the position in a table: name another column")


def decode(value: Any) -> Any:
    """Return the value of a column for its JSON value; raises ConnectError."""
    if isinstance(value, int | str | float):
        return value
    try:
        ((name, text),) = value.items()
        return _TYPES[name][2](text)
    except (AttributeError, ValueError, KeyError, TypeError, ArithmeticError):
        raise ConnectError(
            f"{value!r} in a source offset is no position: give a number, a text, or one of "
            f'{", ".join(_TYPES)} as {{"datetime": "2026-01-02T03:04:05"}}'
        ) from None
