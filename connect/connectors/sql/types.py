"""Maps the columns of a database to schemas, and converts their values."""

from __future__ import annotations

import contextlib
import datetime
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from ...data.logical import date_schema, decimal_schema, time_schema, timestamp_schema
from ...data.schema import BOOLEAN, BYTES, FLOAT64, INT16, INT32, INT64, STRING, Schema, array, struct
from ...data.struct import Struct
from ...errors import ConnectError, DataError


class Column(NamedTuple):
    """The schema of a column, and the function that converts the driver's values to the schema's type."""

    name: str
    schema: Schema
    convert: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


class JsonText(str):
    """A JSON document in the notation of the database."""

    __slots__ = ()


def json_text(value: Any) -> JsonText:
    """Keep a JSON document as the text that a driver has received; SQLite may have stored a number instead."""
    return JsonText(bytes(value).decode() if isinstance(value, bytes | bytearray | memoryview) else value)


def _json(value: Any) -> str:
    """Return a document as text. The elements of a list may be documents, too."""
    if isinstance(value, JsonText):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_json, value))}]"
    return json.dumps(value, ensure_ascii=False, default=str)


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return _json(value)
    if isinstance(value, set | frozenset):
        return ",".join(sorted(value))
    if isinstance(value, bytes | bytearray | memoryview):
        raise ValueError("it is binary data in a column of another type: cast it to a binary type in a query")
    return value.name if hasattr(value, "name") and not isinstance(value, str) else str(value)


def _in(zone: ZoneInfo) -> Callable[[datetime.datetime], datetime.datetime]:
    return lambda value: value if value.tzinfo is not None else value.replace(tzinfo=zone)


def _bytes(value: Any) -> bytes:
    return bytes(value)


_ANY_DAY: Final = datetime.date(2000, 1, 1)
_FLOAT_DIGITS: Final = 15
"""The number of decimal digits that a float always holds."""
_EXACT: Final = Context(prec=10_000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact, InvalidOperation])


def _number(value: Any) -> Decimal:
    """Return a number with the digits in which Python prints it: drivers without decimal numbers return floats."""
    return Decimal(repr(value) if isinstance(value, float) else value)


def _plain(value: Any) -> str:
    return format(_number(value), "f")


def _plain_or_text(value: Any) -> str:
    """Return a number as text. SQLite also keeps other text in a column for numbers."""
    return _plain(value) if isinstance(value, int | float) else str(value)


def _integer(value: Any) -> int:
    number = int(value)
    if isinstance(value, float) and number != value:
        raise ValueError("it is not a whole number: cast it to another type in a query")
    return number


def _of_set(members: Sequence[str]) -> Callable[[Any], str]:
    """Return a function that converts a MySQL SET to text: its members in the type's order, joined by commas."""
    return lambda value: value if isinstance(value, str) else ",".join(sorted(value, key=list(members).index))


def _time_of_day(value: Any) -> datetime.time:
    """Return a time of day, in UTC if the database has sent its zone."""
    if isinstance(value, datetime.time):
        offset = value.utcoffset()
        if offset is None:
            return value
        return (datetime.datetime.combine(_ANY_DAY, value.replace(tzinfo=None)) - offset).time()
    if not isinstance(value, datetime.timedelta) or not datetime.timedelta() <= value < datetime.timedelta(days=1):
        raise ValueError("a time of day is from 00:00:00 to 23:59:59.999999: cast it to text in a query")
    return (datetime.datetime.min + value).time()


def _decimal(scale: int) -> Callable[[Any], Decimal]:
    unit = Decimal((0, (1,), -scale))

    def convert(value: Any) -> Decimal:
        number = _number(value)
        if not number.is_finite():
            raise ValueError(f"{number} is not a Decimal: set decimal.handling.mode to string or double")
        # A float such as 0.30000000000000004 is the result of a calculation: all digits that a float holds are 0.3.
        for each in [number, Decimal(f"{value:.{_FLOAT_DIGITS}g}")] if isinstance(value, float) else [number]:
            with contextlib.suppress(Inexact):
                return _EXACT.quantize(each, unit)
        raise ValueError(
            f"it has more than {scale} digits after the point: set decimal.handling.mode to string or double"
        )

    return convert


class Arrays:
    """Converts the arrays of one column, which all have the same number of dimensions.

    Databases do not declare this number. A column starts with one dimension, and gets more dimensions when a value has
    more. With `fixed`, the number never changes: elements that are lists do not count as a dimension.
    """

    def __init__(self, item: Schema, convert: Callable[[Any], Any], *, fixed: bool, dimensions: int = 1) -> None:
        self._item, self._convert = item, convert
        self._fixed, self._dimensions = fixed, dimensions

    @property
    def schema(self) -> Schema:
        """The schema of the arrays."""
        schema = array(self._item)
        for _ in range(self._dimensions - 1):
            schema = array(schema.as_optional())
        return schema

    def __call__(self, values: Any) -> list[Any]:
        """Return an array with converted elements. Raises ValueError for an array with another number of dimensions."""
        dimensions = self._dimensions_of(values)
        if dimensions not in (0, self._dimensions):
            raise ValueError(
                f"an array of {dimensions} dimension{'s' if dimensions > 1 else ''} follows arrays of"
                f" {self._dimensions} dimensions: cast it to text in a query"
            )
        return self._converted(values, self._dimensions)

    def fitting(self, values: Any) -> Arrays:
        """Return this object, or a new one for more dimensions if `values` has more dimensions."""
        dimensions = self._dimensions_of(values)
        if dimensions <= self._dimensions:
            return self
        return Arrays(self._item, self._convert, fixed=False, dimensions=dimensions)

    def _converted(self, values: Any, dimensions: int) -> list[Any]:
        if dimensions == 1:
            return [None if value is None else self._convert(value) for value in values]
        return [self._converted(value, dimensions - 1) for value in values]

    def _dimensions_of(self, values: Any) -> int:
        """Return the number of dimensions; 0 for an empty array, which has none."""
        if self._fixed:
            return self._dimensions
        dimensions = 0
        while isinstance(values, list) and values:
            dimensions, values = dimensions + 1, values[0]
        return dimensions


def column_of(
    name: str, kind: sa.types.TypeEngine[Any], nullable: bool, dialect: str, zone: ZoneInfo, decimals: str = "precise"
) -> Column:
    """Return the `Column` for a column of the database type `kind`.

    Values of a type without a counterpart in Connect become text. `decimals` is the setting decimal.handling.mode.
    """
    schema, convert = _type_of(kind, dialect, zone, decimals)
    return Column(name, schema.as_optional() if nullable else schema, convert)


def _type_of(
    kind: sa.types.TypeEngine[Any], dialect: str, zone: ZoneInfo, decimals: str
) -> tuple[Schema, Callable[[Any], Any]]:
    match kind:
        case sa.Boolean():
            return BOOLEAN, bool
        case mysql.BIGINT(unsigned=True):
            return _decimal_type(0, decimals)
        case mysql.INTEGER(unsigned=True):
            return INT64, _integer
        case mysql.SMALLINT(unsigned=True):
            return INT32, _integer
        case sa.BigInteger():
            return INT64, _integer
        case sa.SmallInteger():
            return INT16, _integer
        case sa.Integer():
            return (INT64 if dialect == "sqlite" else INT32), _integer
        case sa.Float():  # a subclass of Numeric
            return FLOAT64, float
        case sa.Numeric():
            return _decimal_type(kind.scale, decimals)
        case sa.DateTime():
            return timestamp_schema(), _in(zone)
        case sa.Date():
            return date_schema(), _same
        case sa.Time():
            return time_schema(), _time_of_day
        case mysql.SET():
            return STRING, _of_set(kind.values)
        case sa.JSON():
            return STRING, _json
        case sa.ARRAY():
            item, convert = _type_of(kind.item_type, dialect, zone, decimals)
            arrays = Arrays(item.as_optional(), convert, fixed=isinstance(kind.item_type, sa.JSON))
            return arrays.schema, arrays
    base = getattr(kind, "data_type", None)
    if isinstance(base, sa.types.TypeEngine):  # the base type of a domain
        return _type_of(base, dialect, zone, decimals)
    return (BYTES, _bytes) if _is_binary(kind) else (STRING, _text)


def _decimal_type(scale: int | None, decimals: str) -> tuple[Schema, Callable[[Any], Any]]:
    """Return the schema of decimal numbers and the function that converts them.

    If `scale` is None, each value has its own scale.
    """
    if decimals == "double":
        return FLOAT64, float
    if scale is None:
        return STRING, _plain_or_text
    return (STRING, _plain) if decimals == "string" else (decimal_schema(scale), _decimal(scale))


def _is_binary(kind: sa.types.TypeEngine[Any]) -> bool:
    """Return whether a type's values are bytes, even if the type does not derive from LargeBinary (such as BINARY)."""
    try:
        return kind.python_type is bytes
    except NotImplementedError:
        return False


_BY_VALUE: Final[tuple[tuple[type, Schema, Callable[[Any], Any]], ...]] = (
    (bool, BOOLEAN, _same),
    (int, INT64, _same),
    (float, FLOAT64, _same),
    (JsonText, STRING, str),
    (str, STRING, _same),
    (bytes, BYTES, _same),
    (bytearray, BYTES, _bytes),
    (memoryview, BYTES, _bytes),
    (datetime.date, date_schema(), _same),
    (datetime.time, time_schema(), _time_of_day),
    (Decimal, STRING, str),
    (uuid.UUID, STRING, str),
)


class RowType:
    """Turns rows into structs.

    The columns of a table are known. A column of a query gets the type of its first value that is not null; until then
    it is an optional string.
    """

    def __init__(self, name: str | None, columns: Iterable[Column] | None, zone: ZoneInfo) -> None:
        self._name, self._zone = name, zone
        self._open = columns is None
        self._columns = {column.name: column for column in columns or ()}
        self._schema = self._struct()

    def struct(self, row: Mapping[str, Any]) -> Struct:
        """Return a row as a struct. Raises ConnectError, which names the column, for a value of another type."""
        if self._open:
            self._learn(row)
        result = Struct(self._schema)
        for index, column in enumerate(self._columns.values()):
            value = row[column.name]
            if value is None:
                continue
            if isinstance(column.convert, Arrays) and (arrays := column.convert.fitting(value)) is not column.convert:
                return self._with(Column(column.name, _as(column.schema, arrays.schema), arrays)).struct(row)
            try:
                result.values[index] = column.convert(value)
            except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
                where = "the query" if self._name is None else f"table {self._name}"
                raise ConnectError(
                    f"{where}, column {column.name}: {value!r:.100} does not fit its type: {error}"
                ) from error
        try:
            result.check(self._name or "row")
        except DataError as error:
            raise ConnectError(f"{error}; the column has values of several types: cast it in a query") from error
        return result

    @property
    def schema(self) -> Schema:
        """The schema of the rows that `struct` returns now."""
        return self._schema

    def _with(self, column: Column) -> RowType:
        """Replace the column that has the same name, and return this object."""
        self._columns[column.name] = column
        self._schema = self._struct()
        return self

    def _learn(self, row: Mapping[str, Any]) -> None:
        known = self._columns
        if row.keys() == known.keys() and all(
            row[name] is None or column.convert is not _unknown for name, column in known.items()
        ):
            return
        self._columns = {
            name: known[name]
            if name in known and known[name].convert is not _unknown
            else _column_by_value(name, value, self._zone)
            for name, value in row.items()
        }
        self._schema = self._struct()

    def _struct(self) -> Schema:
        return struct([(column.name, column.schema) for column in self._columns.values()], name=self._name)


def _as(before: Schema, after: Schema) -> Schema:
    return after.as_optional() if before.optional else after


def _unknown(value: Any) -> Any:
    return value


def _column_by_value(name: str, value: Any, zone: ZoneInfo) -> Column:
    if value is None:
        return Column(name, STRING.as_optional(), _unknown)
    if isinstance(value, datetime.datetime):
        return Column(name, timestamp_schema(optional=True), _in(zone))
    for kind, schema, convert in _BY_VALUE:
        if isinstance(value, kind):
            return Column(name, schema.as_optional(), convert)
    return Column(name, STRING.as_optional(), _text)
