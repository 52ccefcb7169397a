"""Encodes positions in a table as values of source offsets, which must be numbers or strings.

Numbers of up to 64 bits and strings are written unchanged. Values of other types are written with the type's name:
datetime(2026-01-02T03:04:05.678901).
"""

from __future__ import annotations

import datetime
import re
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
    "text": (str, str, str),
}
_NAMED: Final = re.compile(rf"({'|'.join(_TYPES)})\((.*)\)", re.DOTALL)


def encode(value: Any) -> Any:
    """Encode the value of a column for an offset. Raises ConnectError for a type without an order."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:  # an offset holds whole numbers of 64 bits
        value = Decimal(value)
    if isinstance(value, int | float) or (isinstance(value, str) and not _NAMED.fullmatch(value)):
        return value
    for name, (kind, write, _) in _TYPES.items():
        if isinstance(value, kind):
            return f"{name}({write(value)})"
    raise ConnectError(f"a {type(value).__name__} cannot be a position in a table: name another column")


def decode(value: Any) -> Any:
    """Decode the value of a column from an offset. Raises ConnectError."""
    if isinstance(value, int | float):
        return value
    try:
        named = _NAMED.fullmatch(value)
        return value if named is None else _TYPES[named[1]][2](named[2])
    except (ValueError, TypeError, ArithmeticError):
        raise ConnectError(
            f"{value!r} in a source offset is not a position: use a number, a string, or one of the "
            f"types {', '.join(_TYPES)} in the form datetime(2026-01-02T03:04:05)"
        ) from None
