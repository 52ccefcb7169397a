"""Maps the server's types to schemas, and converts values from the text that the server sends.

Types without a counterpart, including arrays, become strings in PostgreSQL's notation.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from ...data.logical import date_schema, decimal_schema, time_schema, timestamp_schema
from ...data.schema import BOOLEAN, BYTES, FLOAT32, FLOAT64, INT16, INT32, INT64, STRING, Schema, SchemaType
from ...errors import DataError


class ColumnType(NamedTuple):
    """The schema of a column, and the function that converts its values from text."""

    schema: Schema
    read: Callable[[str], Any]


_TEMPORAL: Final = re.compile(
    r"(?:(\d+)-(\d\d)-(\d\d))?(?: ?(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?([+-]\d\d(?::?\d\d)*)?( BC)?"
)
_DEBEZIUM: Final = "io.debezium.time."
_DATE: Final = Schema(SchemaType.INT32, name=f"{_DEBEZIUM}Date", version=1)
_TIME: Final = Schema(SchemaType.INT64, name=f"{_DEBEZIUM}MicroTime", version=1)
_TIMESTAMP: Final = Schema(SchemaType.INT64, name=f"{_DEBEZIUM}MicroTimestamp", version=1)
_ZONED: Final = Schema(SchemaType.STRING, name=f"{_DEBEZIUM}ZonedTimestamp", version=1)
_ZONED_TIME: Final = Schema(SchemaType.STRING, name=f"{_DEBEZIUM}ZonedTime", version=1)
_DAY_MICROS: Final = 86_400_000_000

_INFINITE_DATE: Final = {"infinity": 2**31 - 1, "-infinity": -(2**31)}
_INFINITE_MICROS: Final = {"infinity": 9_223_372_036_825_200_000, "-infinity": -9_223_372_036_832_400_000}
"""The values that Debezium uses for infinite times."""


def column_type(oid: int, modifier: int, settings: Mapping[str, Any]) -> ColumnType:
    """Return the schema and the conversion function for a column with this type OID and modifier."""
    if oid == 1700:
        return _numeric(modifier, settings["decimal.handling.mode"])
    table = _CONNECT_TIMES if settings["time.precision.mode"] == "connect" else _ADAPTIVE_TIMES
    return table.get(oid) or _TYPES.get(oid) or ColumnType(STRING, str)


def placeholder_of(schema: Schema, text: str) -> Any:
    """Return the placeholder for a value that was not sent: the text, as bytes for a bytes column.

    Raises DataError for a number, which has no placeholder: null would be a wrong value.
    """
    if schema.type is SchemaType.STRING:
        return text
    if schema.type is SchemaType.BYTES and schema.name is None:
        return text.encode()
    raise DataError(
        "the server does not send a number with thousands of digits that an update did not change: set"
        " decimal.handling.mode=string, which has a placeholder for it. For later updates, REPLICA IDENTITY FULL of the"
        " table also helps"
    )


def _numeric(modifier: int, mode: str) -> ColumnType:
    if mode == "double":
        return ColumnType(FLOAT64, float)
    if mode == "string" or modifier < 4:
        return ColumnType(STRING, str)
    scale = ((modifier - 4) & 0x7FF ^ 1024) - 1024  # a signed number of eleven bits
    if scale < 0:
        return ColumnType(STRING, str)
    unit = Decimal((0, (1,), -scale))

    def read(text: str) -> Decimal:
        value = Decimal(text)
        if not value.is_finite():
            raise DataError(f"{text} is not a Decimal: set decimal.handling.mode to string or double")
        return value if value.as_tuple().exponent == -scale else value.quantize(unit)

    return ColumnType(decimal_schema(scale), read)


def _boolean(text: str) -> bool:
    return text == "t"


def _bytea(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _parts(text: str) -> tuple[int, int]:
    """Return the days since 1970-01-01 and the microseconds of the day, in UTC if the text has a time zone."""
    match = _TEMPORAL.fullmatch(text)
    if match is None:
        raise DataError(f"{text!r} is not a date or time in PostgreSQL's DateStyle ISO")
    year, month, day, hour, minute, second, fraction, zone, before = match.groups()
    days = 0 if year is None else _days(1 - int(year) if before else int(year), int(month), int(day))
    seconds = (int(hour or 0) * 60 + int(minute or 0)) * 60 + int(second or 0)
    if zone:
        parts = [int(part) for part in re.findall(r"\d\d", zone)]
        offset = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
        seconds -= -offset if zone[0] == "-" else offset
    return days, seconds * 1_000_000 + int((fraction or "").ljust(6, "0"))


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 in the Gregorian calendar, for any year. Year 0 is the year before year 1."""
    eras, rest = divmod(year, 400)
    return datetime.date(rest + 400, month, day).toordinal() + (eras - 1) * 146_097 - 719_163


def _date(text: str) -> int:
    return _INFINITE_DATE[text] if text in _INFINITE_DATE else _parts(text)[0]


def _time(text: str) -> int:
    return _parts(text)[1]


def _micros(text: str) -> int:
    if text in _INFINITE_MICROS:
        return _INFINITE_MICROS[text]
    days, micros = _parts(text)
    return days * _DAY_MICROS + micros


def _zoned(text: str) -> str:
    return text if "infinity" in text or text.endswith("BC") else f"{text.removesuffix('+00').replace(' ', 'T', 1)}Z"


def _zoned_time(text: str) -> str:
    micros = _parts(text)[1]
    seconds, fraction = divmod(micros if micros == _DAY_MICROS else micros % _DAY_MICROS, 1_000_000)
    part = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{part}Z"


def _connect_timestamp(text: str) -> datetime.datetime:
    try:
        return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=_micros(text))
    except OverflowError:
        raise _beyond(text) from None


def _connect_date(text: str) -> datetime.date:
    try:
        return datetime.date.fromordinal(_date(text) + 719_163)
    except (OverflowError, ValueError):
        raise _beyond(text) from None


def _connect_time(text: str) -> datetime.time:
    try:
        return (datetime.datetime.min + datetime.timedelta(microseconds=_time(text) % _DAY_MICROS)).time()
    except OverflowError:
        raise _beyond(text) from None


def _beyond(text: str) -> DataError:
    return DataError(
        f"{text} is outside the years 1 to 9999 of Kafka Connect's types: set time.precision.mode=adaptive"
    )


_TYPES: Final = {
    16: ColumnType(BOOLEAN, _boolean),
    17: ColumnType(BYTES, _bytea),
    20: ColumnType(INT64, int),
    21: ColumnType(INT16, int),
    23: ColumnType(INT32, int),
    26: ColumnType(INT64, int),  # oid
    700: ColumnType(FLOAT32, float),
    701: ColumnType(FLOAT64, float),
    1266: ColumnType(_ZONED_TIME, _zoned_time),
}
_ADAPTIVE_TIMES: Final = {
    1082: ColumnType(_DATE, _date),
    1083: ColumnType(_TIME, _time),
    1114: ColumnType(_TIMESTAMP, _micros),
    1184: ColumnType(_ZONED, _zoned),
}
_CONNECT_TIMES: Final = {
    1082: ColumnType(date_schema(), _connect_date),
    1083: ColumnType(time_schema(), _connect_time),
    1114: ColumnType(timestamp_schema(), _connect_timestamp),
    1184: ColumnType(timestamp_schema(), _connect_timestamp),
}
