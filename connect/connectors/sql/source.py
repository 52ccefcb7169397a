"""`Source`: a table or a query whose rows have an order, so that a position defines which rows have been read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from ...errors import ConnectError
from .settings import BOTH, BULK, INCREMENTING, TIMESTAMP
from .types import RowType, column_of

_POSITION: Final = "oncelog_position_"
"""The prefix of the columns that are added to a query for the position of each row."""

_UTC_NOW: Final = {
    "mysql": "UTC_TIMESTAMP(6)",
    "mariadb": "UTC_TIMESTAMP(6)",
    "mssql": "SYSUTCDATETIME()",
    "oracle": "SYS_EXTRACT_UTC(SYSTIMESTAMP)",
}
"""The functions for the current UTC time, for databases whose CURRENT_TIMESTAMP has no time zone and is not UTC."""


@dataclass(frozen=True)
class Row:
    """A row, and its position: the values of the columns that order the rows."""

    values: Mapping[str, Any]
    position: tuple[Any, ...]


@dataclass(frozen=True)
class Source:
    """Rows sorted by the columns in `order`, whose values are a row's position.

    A source offset stores each value of a position under the name in `names`. The order is `unique` if no two rows have
    the same position. In the modes with a timestamp, `timestamp` is the first column of the order. With
    `null_timestamps`, it is not in the order: only rows whose timestamp is null are selected, in the order of their
    `incrementing` column. Rows whose `incrementing` column is null are never selected.
    """

    columns: tuple[Any, ...]
    selectable: Any
    order: tuple[Any, ...]
    names: tuple[str, ...]
    unique: bool
    row_type: RowType
    timestamp: Any = None
    null_timestamps: bool = False
    incrementing: Any = None

    def rows(
        self, connection: sa.Connection, after: Sequence[Any] | None, before: Any, limit: int, *, equal: bool = False
    ) -> list[Row]:
        """Return, in order, up to `limit` rows whose position is after `after` or, with `equal`, is exactly `after`.

        In the modes with a timestamp, rows must also meet the condition `before`. With `null_timestamps`, their
        timestamp must be null instead.
        """
        statement = self.select()
        if self.incrementing is not None:
            statement = statement.where(self.incrementing.is_not(None))  # a row without a value has no position
        if self.timestamp is not None:
            statement = statement.where(self.timestamp.is_(None) if self.null_timestamps else before)
        if after is not None and connection.dialect.name == "postgresql":
            after = [_INFINITY if _is_last(value) else value for value in after]
        if after is not None:
            statement = statement.where(_equal(self.order, after) if equal else _behind(self.order, after))
        return [self.row(row) for row in connection.execute(statement.order_by(*self.order).limit(limit)).mappings()]

    def select(self) -> sa.Select[Any]:
        """Return the statement that selects all rows, without an order."""
        added = (part.label(f"{_POSITION}{index}") for index, part in enumerate(self.order))
        return sa.select(*self.columns, *added).select_from(self.selectable)

    def row(self, mapping: Mapping[Any, Any]) -> Row:
        """Turn a row of the result of `select` into a `Row`."""
        values = {str(name): value for name, value in mapping.items()}
        position = tuple(values.pop(f"{_POSITION}{index}") for index in range(len(self.order)))
        return Row(values, position)


def table_source(
    engine: sa.Engine, schema: str | None, name: str, settings: Mapping[str, Any], null_timestamps: bool = False
) -> Source:
    """Return the source that reads a table in the mode of `settings`.

    Raises ConnectError if the columns do not allow this mode.
    """
    table = _reflected(engine, schema, name)
    dialect, zone = engine.dialect.name, ZoneInfo(settings["db.timezone"])
    decimals = settings["decimal.handling.mode"]
    columns = [column_of(each.name, each.type, bool(each.nullable), dialect, zone, decimals) for each in table.columns]
    row_type = RowType(table.name, columns, zone)
    mode = settings["mode"]

    def column(wanted: str) -> Any:
        if wanted not in table.c:
            raise ConnectError(f"table {name} has no column {wanted}; it has {', '.join(table.c.keys())}")
        return table.c[wanted]

    incrementing = column(settings["incrementing.column.name"]) if mode in (INCREMENTING, BOTH) else None
    stamps = [column(each) for each in settings["timestamp.column.name"]] if mode in (TIMESTAMP, BOTH) else []
    if settings["validate.non.null"]:
        if incrementing is not None and incrementing.nullable:
            raise _nullable(name, "incrementing", [incrementing.name])
        if stamps and all(each.nullable for each in stamps):
            raise _nullable(name, "timestamp", [each.name for each in stamps])
    raw = [_comparable(each, name, dialect) for each in stamps]
    keys = tuple(table.primary_key.columns)
    return _source(
        mode, read_columns(table, dialect), table, incrementing, raw, keys, row_type, null_timestamps=null_timestamps
    )


def _reflected(engine: sa.Engine, schema: str | None, name: str) -> sa.Table:
    try:
        table = sa.Table(name, sa.MetaData(), schema=schema, autoload_with=engine, resolve_fks=False)
    except sa.exc.NoSuchTableError:
        raise ConnectError(f"table {name} does not exist: create it, or change table.whitelist") from None
    if engine.dialect.name != "sqlite":
        return table
    for column in table.columns:
        if isinstance(column.type, sa.Numeric) and not isinstance(column.type, sa.Float):
            column.type = _StoredNumber(column.type.precision, column.type.scale)
    keys = list(table.primary_key.columns)
    if len(keys) == 1 and keys[0].nullable:
        # Only a column declared as INTEGER PRIMARY KEY has no index of its own: it is the row's number, and never null.
        with engine.connect() as connection:
            keys[0].nullable = connection.scalar(_SQLITE_KEYS, {"name": name, "schema": schema or "main"}) > 0
    return table


class _StoredNumber(sa.Numeric[Any]):
    """A decimal number of SQLite, which is stored and read as an integer or a float; SQLAlchemy always uses a float."""

    cache_ok = True

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> None:
        """Return None, because values are read as they are stored."""

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], Any]:
        """Return a function that converts Decimals, which an offset may have as a position."""
        return lambda value: value if not isinstance(value, Decimal) else int(value) if value % 1 == 0 else float(value)


_SQLITE_KEYS: Final = sa.text("SELECT count(*) FROM pragma_index_list(:name, :schema) WHERE origin = 'pk'")


def read_columns(table: sa.Table, dialect: str) -> tuple[Any, ...]:
    """Return the columns to select.

    A TIME of MySQL is read as the driver returns it, because SQLAlchemy turns 25:00:00 into 01:00:00.
    """
    if dialect not in ("mysql", "mariadb"):
        return tuple(table.columns)
    raw = sa.types.NullType()
    return tuple(
        sa.type_coerce(each, raw).label(each.name) if isinstance(each.type, sa.Time) else each for each in table.columns
    )


def query_source(query: str, settings: Mapping[str, Any], null_timestamps: bool = False) -> Source:
    """Return the source that reads a query in the mode of `settings`.

    In the mode with a timestamp column and an incrementing column, `null_timestamps` selects only the rows whose
    timestamp is null.
    """
    mode = settings["mode"]
    inner = sa.text(query.strip().rstrip(";").replace(":", r"\:")).columns().subquery("q")
    incrementing: Any = None
    if mode in (INCREMENTING, BOTH):
        incrementing = sa.literal_column(f"q.{settings['incrementing.column.name']}")
    stamps: list[Any] = []
    if mode in (TIMESTAMP, BOTH):
        stamps = [sa.literal_column(f"q.{each}") for each in settings["timestamp.column.name"]]
    columns: tuple[Any, ...] = (sa.literal_column("q.*"),)
    row_type = RowType(None, None, ZoneInfo(settings["db.timezone"]))
    return _source(mode, columns, inner, incrementing, stamps, (), row_type, null_timestamps=null_timestamps)


def _source(
    mode: str,
    columns: tuple[Any, ...],
    selectable: Any,
    incrementing: Any,
    stamps: list[Any],
    keys: tuple[Any, ...],
    row_type: RowType,
    *,
    null_timestamps: bool,
) -> Source:
    timestamp = None if not stamps else stamps[0] if len(stamps) == 1 else sa.func.coalesce(*stamps)
    names: tuple[str, ...]
    match mode:
        case "bulk":
            return Source(columns, selectable, keys, ("key",) * len(keys), bool(keys), row_type)
        case "incrementing":
            return Source(
                columns, selectable, (incrementing,), ("incrementing",), True, row_type, incrementing=incrementing
            )
        case "timestamp":
            names = ("timestamp",) + ("key",) * len(keys)
            return Source(columns, selectable, (timestamp, *keys), names, bool(keys), row_type, timestamp)
    if null_timestamps:
        return Source(
            columns, selectable, (incrementing,), ("incrementing",), True, row_type, timestamp, True, incrementing
        )
    names = ("timestamp", "incrementing")
    return Source(
        columns, selectable, (timestamp, incrementing), names, True, row_type, timestamp, incrementing=incrementing
    )


def has_time_zone(connection: sa.Connection, source: Source) -> bool | None:
    """Return whether the values in a source's timestamp column have a time zone; None if no row has a value yet.

    The result comes from a stored value, not from the type of the column: the columns of a query have no declared
    type, and some declared types do not say whether their values have a time zone.
    """
    filled = source.timestamp.is_not(None)
    value = connection.scalar(sa.select(source.timestamp).select_from(source.selectable).where(filled).limit(1))
    return None if value is None else isinstance(value, datetime) and value.tzinfo is not None


def before_now(connection: sa.Connection, timestamp: Any, delay_ms: int, zone: ZoneInfo, *, zoned: bool) -> Any:
    """Return the condition that a timestamp is older than the current time of the database minus a delay.

    Timestamps without a time zone (not `zoned`) are in `zone`. Rows with the current time are left for a later poll,
    because other rows with the same timestamp may still be written.
    """
    dialect = connection.dialect.name
    delay = timedelta(milliseconds=delay_ms)
    if dialect == "sqlite":  # SQLite runs in this process, and keeps timestamps as text
        end = (datetime.now(zone) - delay).replace(tzinfo=None)
        return sa.func.julianday(timestamp) < sa.func.julianday(end.isoformat(" "))
    now = connection.scalar(sa.text(f"SELECT {_UTC_NOW[dialect]}") if dialect in _UTC_NOW else sa.select(_CURRENT))
    if not isinstance(now, datetime):
        raise ConnectError(
            f"the database returns its time as {now!r}, which is not a timestamp: use mode {INCREMENTING}"
        )
    end = (now if now.tzinfo is not None else now.replace(tzinfo=UTC)) - delay
    return timestamp < (end if zoned else end.astimezone(zone).replace(tzinfo=None))


_CURRENT: Final = sa.func.current_timestamp()


def _comparable(column: Any, table: str, dialect: str) -> Any:
    """Return a timestamp column in the form in which its values are compared. Raises ConnectError for other types."""
    if dialect == "sqlite" and isinstance(column.type, sa.DateTime | sa.String | sa.types.NullType):
        # Compared as written: another notation of the same time would not be equal.
        return sa.type_coerce(column, sa.String)
    if not isinstance(column.type, sa.DateTime):
        raise ConnectError(
            f"column {column.name} of table {table} is of type {column.type}, which is not a timestamp: name another "
            f"column in timestamp.column.name, or use mode {INCREMENTING} or {BULK}"
        )
    return column


_INFINITY: Final[sa.ColumnElement[Any]] = sa.literal_column("'infinity'")


def _is_last(value: Any) -> bool:
    """Return whether a part of a position stands for PostgreSQL's infinity (infinity.py)."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None) == datetime.max
    return isinstance(value, date) and value == date.max


def _nullable(table: str, kind: str, columns: list[str]) -> ConnectError:
    listed = ", ".join(columns)
    return ConnectError(
        f"{kind}.column.name of table {table}: {listed} can be null, and rows without a value have no place in the "
        "order: declare the column NOT NULL, name another column, or set validate.non.null=false"
    )


def _behind(order: Sequence[Any], position: Sequence[Any]) -> Any:
    cases = [
        sa.and_(*(part == value for part, value in zip(order[:index], position, strict=False)), order[index] > at)
        for index, at in enumerate(position)
    ]
    return sa.or_(*cases)


def _equal(order: Sequence[Any], position: Sequence[Any]) -> Any:
    return sa.and_(*(part == value for part, value in zip(order, position, strict=True)))
