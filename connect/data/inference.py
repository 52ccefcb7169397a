"""Infers a value and its schema from text, for headers and for the literals of transforms.

The rules are those of Kafka Connect (Values.parseString): whole numbers get the smallest type that can hold them,
fractions are floats, and ISO 8601 dates and times are logical types. JSON-like arrays and maps are parsed if all their
elements can be parsed. Any other text stays a string.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from decimal import Decimal
from typing import Any, Final

from .floats import shortest_float32
from .logical import date_schema, decimal_schema, time_schema, timestamp_schema
from .schema import (
    BOOLEAN,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Schema,
    array,
    mapping,
)

_NUMBER: Final = re.compile(r"([+-]?[0-9]+\.?[0-9]*|[+-]\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_WHOLE_TYPES: Final = ((8, INT8), (16, INT16), (32, INT32), (64, INT64))
_NUMERIC: Final = (INT8, INT16, INT32, INT64, FLOAT32, FLOAT64)
_MAX_DIGITS: Final = 1_000


def parse_text(text: str) -> tuple[Schema | None, Any]:
    """Return the (schema, value) of a string; (None, None) for the string null."""
    if not text:
        return STRING, ""
    literals: dict[str, tuple[Schema | None, Any]] = {"null": (None, None), "true": (BOOLEAN, True)}
    literals["false"] = (BOOLEAN, False)
    stripped = text.strip()
    if stripped in literals:
        return literals[stripped]
    if stripped[:1] in ("[", "{"):
        return _container(stripped) or (STRING, text)
    return _temporal(stripped) or _number(stripped) or (STRING, text)


def _number(text: str) -> tuple[Schema, Any] | None:
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number == number.to_integral_value():
        whole = int(number)
        for bits, schema in _WHOLE_TYPES:
            if -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1):
                return schema, whole
    _, _, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if exponent == 0:
        return decimal_schema(0), number
    value = float(number)
    narrow = shortest_float32(value)
    if math.isfinite(narrow):
        return FLOAT32, narrow
    return (FLOAT64, value) if math.isfinite(value) else (decimal_schema(-exponent), number)


def _temporal(text: str) -> tuple[Schema, Any] | None:
    text = text.replace("\\:", ":")
    try:
        match len(text):
            case 10:
                return date_schema(), datetime.datetime.strptime(text, "%Y-%m-%d").date()
            case 13:
                return time_schema(), datetime.datetime.strptime(text, "%H:%M:%S.%fZ").time()
            case 24:
                at = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
                return timestamp_schema(), at.replace(tzinfo=datetime.UTC)
    except ValueError:
        return None
    return None


def _container(text: str) -> tuple[Schema | None, Any] | None:
    try:
        return _typed(json.loads(text, parse_float=_Digits, parse_int=_Digits, parse_constant=_no_number))
    except (ValueError, RecursionError):
        return None


class _Digits(str):
    """A number in its original notation."""

    __slots__ = ()


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number")


def _typed(value: Any) -> tuple[Schema | None, Any]:
    """Return (schema, value). Raises ValueError for a number that no type can hold."""
    match value:
        case _Digits():
            number = _number(value)
            if number is None:
                raise ValueError(value)
            return number
        case bool():
            return BOOLEAN, value
        case str():
            return _temporal(value) or (STRING, value)
        case list():
            schema, values = _aligned(value)
            return None if schema is None else array(schema), values
        case dict():
            keys, names = _aligned(list(value))
            schema, values = _aligned(list(value.values()))
            pairs = dict(zip(names, values, strict=True))
            return None if keys is None or schema is None else mapping(keys, schema), pairs
    return None, value


def _aligned(values: list[Any]) -> tuple[Schema | None, list[Any]]:
    """Return the common schema of all values, or None, and the values converted to that schema."""
    typed = [_typed(value) for value in values]
    plain = [value for _, value in typed]
    schemas = [schema for schema, value in typed if value is not None]
    common = schemas[0] if schemas else None
    for schema in schemas:
        if common is None or schema is None:
            return None, plain
        if schema != common:
            if schema not in _NUMERIC or common not in _NUMERIC:
                return None, plain
            common = max(common, schema, key=_NUMERIC.index)
    if common in (FLOAT32, FLOAT64):
        plain = [None if value is None else float(value) for value in plain]
    if common is not None and None in plain:
        common = common.as_optional()
    return common, plain
