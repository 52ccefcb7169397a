"""Logical types: Decimal, Date, Time and Timestamp, which Kafka Connect represents as bytes or integers.

Their schemas are recognised by name. Their Python values are decimal.Decimal, datetime.date, datetime.time and
datetime.datetime in UTC; `encode` returns their representation in records.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Any, Final

from ..errors import DataError
from .schema import Schema, SchemaType

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DAY: Final = _EPOCH.date().toordinal()
_PYTHON_TYPES: Final[dict[str, type]] = {
    DECIMAL: decimal.Decimal,
    DATE: datetime.date,
    TIME: datetime.time,
    TIMESTAMP: datetime.datetime,
}


def decimal_schema(scale: int, **attributes: Any) -> Schema:
    """Return the schema of decimal numbers with `scale` digits after the decimal point."""
    return Schema(SchemaType.BYTES, name=DECIMAL, version=1, parameters={"scale": str(scale)}, **attributes)


def date_schema(**attributes: Any) -> Schema:
    """Return the schema of dates, represented as days since 1970-01-01."""
    return Schema(SchemaType.INT32, name=DATE, version=1, **attributes)


def time_schema(**attributes: Any) -> Schema:
    """Return the schema of times of day, represented as milliseconds since midnight."""
    return Schema(SchemaType.INT32, name=TIME, version=1, **attributes)


def timestamp_schema(**attributes: Any) -> Schema:
    """Return the schema of points in time, represented as milliseconds since 1970-01-01 UTC."""
    return Schema(SchemaType.INT64, name=TIMESTAMP, version=1, **attributes)


def python_type(name: str | None) -> type | None:
    """Return the Python type of the values of the logical type `name`, or None if there is no such logical type."""
    return None if name is None else _PYTHON_TYPES.get(name)


def scale_of(schema: Schema) -> int:
    """Return the scale of a decimal schema: the number of digits after the decimal point. Raises DataError."""
    text = schema.parameters.get("scale")
    if text is None:
        raise DataError("Invalid Decimal schema: scale parameter not found.")
    try:
        return int(text)
    except ValueError:
        raise DataError(f"Invalid scale parameter found in Decimal schema: {text!r}") from None


def encode(schema: Schema, value: Any) -> Any:
    """Return the bytes or integer that represents a logical value; return a value of any other schema unchanged."""
    match schema.name:
        case "org.apache.kafka.connect.data.Decimal":
            unscaled = unscaled_value(schema, value)
            return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
        case "org.apache.kafka.connect.data.Date":
            return value.toordinal() - _EPOCH_DAY
        case "org.apache.kafka.connect.data.Time":
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
        case "org.apache.kafka.connect.data.Timestamp":
            return milliseconds(value)
    return value


def decode(schema: Schema, value: Any) -> Any:
    """Return the logical value that bytes or an integer represent; return a value of any other schema unchanged."""
    match schema.name:
        case "org.apache.kafka.connect.data.Decimal":
            unscaled = int.from_bytes(value, "big", signed=True)
            sign, digits, _ = decimal.Decimal(unscaled).as_tuple()
            return decimal.Decimal((sign, digits, -scale_of(schema)))
        case "org.apache.kafka.connect.data.Date":
            return datetime.date.fromordinal(value + _EPOCH_DAY)
        case "org.apache.kafka.connect.data.Time":
            return (_EPOCH + datetime.timedelta(milliseconds=value)).time()
        case "org.apache.kafka.connect.data.Timestamp":
            return from_milliseconds(value)
    return value


def unscaled_value(schema: Schema, value: decimal.Decimal) -> int:
    """Return a decimal as an integer without its decimal point. Raises DataError if the scale is not the schema's."""
    sign, digits, exponent = value.as_tuple()
    scale = scale_of(schema)
    if not isinstance(exponent, int) or -exponent != scale:
        raise DataError("Decimal value has mismatching scale for given Decimal schema")
    number = int("".join(map(str, digits)) or "0")
    return -number if sign else number


def milliseconds(value: datetime.datetime) -> int:
    """Return a point in time as milliseconds since the epoch. A datetime without a time zone is taken as UTC."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
    return (aware - _EPOCH) // datetime.timedelta(milliseconds=1)


def from_milliseconds(value: int) -> datetime.datetime:
    """Return a point in time from milliseconds since the epoch. Raises DataError outside the years 1 to 9999."""
    try:
        return _EPOCH + datetime.timedelta(milliseconds=value)
    except OverflowError:
        raise DataError(f"timestamp {value} ms is outside the years 1 to 9999") from None
