"""Formats values as text, as Kafka Connect's header converter and string converter do."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ..config.types import java_double
from ..errors import DataError
from .floats import shortest_float32
from .schema import Schema, SchemaType
from .struct import Struct


def header_text(value: Any, schema: Schema | None = None, embedded: bool = False) -> str:
    """Return a value as the text of a header, as Java's Values.convertToString does. Raises DataError.

    Containers are JSON-like, bytes in base64, times in ISO 8601. A string is quoted only if it is `embedded` in a
    container.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _number_text(value, schema)
        case Decimal():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return _quoted(base64.b64encode(value).decode(), embedded)
        case datetime.datetime():
            return _time_text(value if value.tzinfo is None else value.astimezone(datetime.UTC))
        case datetime.date():
            return value.isoformat()
        case datetime.time():
            return f"{value:%H:%M:%S}.{value.microsecond // 1000:03}Z"
        case Mapping():
            keys, values = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
            members = (
                f"{header_text(key, keys, True)}:{header_text(each, values, True)}" for key, each in value.items()
            )
            return f"{{{','.join(members)}}}"
        case list() | tuple():
            values = None if schema is None else schema.value_schema
            return f"[{','.join(header_text(each, values, True) for each in value)}]"
        case Struct():
            members = (
                f"{_quoted(each.name, True)}:{header_text(value[each.name], each.schema, True)}"
                for each in value.schema.fields
            )
            return f"{{{','.join(members)}}}"
        case str():
            return _quoted(value, embedded)
    raise DataError(f"a value of the type {type(value).__name__} cannot be converted to text")


def java_text(value: Any, schema: Schema | None = None) -> str:
    """Return a value as Java's toString prints it, and dates and times in ISO 8601. Raises DataError.

    The string converter uses this for values that are not text.
    """
    match value:
        case None:
            return "null"
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _number_text(value, schema)
        case Decimal():
            return str(value)
        case datetime.date() | datetime.time():
            return header_text(value)
        case Mapping():
            keys, values = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
            pairs = (f"{java_text(key, keys)}={java_text(each, values)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
        case list() | tuple():
            values = None if schema is None else schema.value_schema
            return f"[{', '.join(java_text(each, values) for each in value)}]"
        case Struct():
            given = [(each, value.values[each.index]) for each in value.schema.fields]
            shown = (f"{each.name}={java_text(one, each.schema)}" for each, one in given if one is not None)
            return f"Struct{{{','.join(shown)}}}"
    raise DataError(
        f"a value of the type {type(value).__name__} cannot be converted to text: use a converter that keeps its"
        " type, such as ByteArrayConverter"
    )


def _number_text(value: float, schema: Schema | None) -> str:
    if schema is not None and schema.type is SchemaType.FLOAT32:
        return java_double(shortest_float32(value))
    if isinstance(value, float) or (schema is not None and schema.type is SchemaType.FLOAT64):
        return java_double(float(value))
    return str(value)


def _time_text(at: datetime.datetime) -> str:
    """Return a datetime as Kafka Connect writes it.

    Up to and including 1970-01-01, this is the time alone. On later days, it is the date alone if the time is
    midnight, else the date and the time.
    """
    time = f"{at:%H:%M:%S}.{at.microsecond // 1000:03}Z"
    if (at.year, at.month, at.day) <= (1970, 1, 1):
        return time
    day = f"{at.year:04}-{at:%m-%d}"
    return day if time == "00:00:00.000Z" else f"{day}T{time}"


def _quoted(text: str, embedded: bool) -> str:
    if not embedded:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
