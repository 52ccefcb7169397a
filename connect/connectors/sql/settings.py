"""The settings of `SqlSourceConnector`, named as in Confluent's JDBC connector where that has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyString, OneOf, Type, at_least
from ...errors import ConfigValueError

BULK, INCREMENTING, TIMESTAMP, BOTH = "bulk", "incrementing", "timestamp", "timestamp+incrementing"

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _time_zone(name: str, value: Any) -> None:
    try:
        ZoneInfo(value or "")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigValueError(name, value, "is no time zone: give a name such as UTC or Europe/Berlin") from None


SETTINGS = ConfigDef(
    ConfigKey(
        "connection.url", Type.STRING, REQUIRED, _HIGH,
        "SQLAlchemy's URL of the database: sqlite:////path, postgresql+psycopg://host/database, mysql+pymysql://…",
        NonEmptyString(), "Database",
    ),
    ConfigKey("connection.user", Type.STRING, None, _HIGH, "User, where the URL names none.", None, "Database"),
    ConfigKey("connection.password", Type.PASSWORD, None, _HIGH, "Password of the user.", None, "Database"),
    ConfigKey(
        "connection.attempts", Type.INT, 3, _LOW,
        "Attempts at a query that the database does not answer; then the task fails.", at_least(1), "Database",
    ),
    ConfigKey(
        "connection.backoff.ms", Type.LONG, 10_000, _LOW, "Time between these attempts.", at_least(0), "Database"
    ),
    ConfigKey("schema.pattern", Type.STRING, None, _HIGH, "Schema of the tables; by default the user's.", None,
              "Database"),
    ConfigKey(
        "table.whitelist", Type.LIST, [], _MEDIUM,
        "Tables to read; by default, and without a query, all of the schema, new ones as well.", None, "Database",
    ),
    ConfigKey(
        "query", Type.STRING, "", _MEDIUM, "A SELECT to read in place of tables; it may have a WHERE.", None, "Mode"
    ),
    ConfigKey(
        "mode", Type.STRING, REQUIRED, _HIGH,
        "How new rows are recognised. bulk: all rows in each poll. incrementing: by a column that grows with each new "
        "row. timestamp: by the time of the last change. timestamp+incrementing: by both, for new and changed rows.",
        OneOf(BULK, INCREMENTING, TIMESTAMP, BOTH), "Mode",
    ),
    ConfigKey("incrementing.column.name", Type.STRING, "", _MEDIUM, "The column that grows.", None, "Mode"),
    ConfigKey(
        "timestamp.column.name", Type.LIST, [], _MEDIUM,
        "The column with the time of the last change; of several the first that is not null.", None, "Mode",
    ),
    ConfigKey(
        "validate.non.null", Type.BOOLEAN, True, _LOW,
        "Refuse tables whose columns of the mode can be null. Otherwise rows with a null timestamp are read by their "
        "incrementing column, and in mode timestamp as soon as they have one; rows with a null in the incrementing "
        "column are never read.", None, "Mode",
    ),
    ConfigKey(
        "timestamp.delay.interval.ms", Type.LONG, 0, _HIGH,
        "How old a timestamp must be before its row is read: as long as the longest transaction, as its rows appear "
        "with the times at which they were written.", at_least(0), "Mode",
    ),
    ConfigKey("db.timezone", Type.STRING, "UTC", _MEDIUM, "Time zone of timestamps without one.", _time_zone, "Mode"),
    ConfigKey("topic.prefix", Type.STRING, REQUIRED, _HIGH,
              "Put before the name of a table to give the topic; with a query the whole name.", None, "Connector"),
    ConfigKey("poll.interval.ms", Type.INT, 5_000, _HIGH, "Time between two polls of a table.", at_least(1),
              "Connector"),
    ConfigKey("batch.max.rows", Type.INT, 100, _LOW, "Most rows of a batch.", at_least(1), "Connector"),
    ConfigKey("table.poll.interval.ms", Type.LONG, 60_000, _LOW,
              "Time between two looks for new and dropped tables.", at_least(1), "Connector"),
    ConfigKey(
        "equal.timestamps.max.rows", Type.INT, 100_000, _LOW,
        "Most rows with equal timestamps in a table without a primary key: they make one batch.", at_least(1),
        "Connector",
    ),
)  # fmt: skip


def check_mode(values: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with the parsed settings as a whole, by the setting to change."""
    problems = {}
    mode, tables, query = values.get("mode"), values.get("table.whitelist"), values.get("query")
    if mode in (INCREMENTING, BOTH) and not values.get("incrementing.column.name"):
        problems["incrementing.column.name"] = f"must name a column in mode {mode}"
    if mode in (TIMESTAMP, BOTH) and not values.get("timestamp.column.name"):
        problems["timestamp.column.name"] = f"must name a column in mode {mode}"
    if tables and query:
        problems["query"] = "cannot be combined with table.whitelist: a connector reads tables or one query"
    if query and not values.get("topic.prefix"):
        problems["topic.prefix"] = "must name the topic of the query"
    return problems
