"""The settings of `SqlSourceConnector`. Where Confluent's JDBC connector has the same setting, the name is the same."""

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
        raise ConfigValueError(name, value, "is not a time zone: give a name such as UTC or Europe/Berlin") from None


SETTINGS = ConfigDef(
    ConfigKey(
        "connection.url", Type.STRING, REQUIRED, _HIGH,
        "SQLAlchemy URL of the database: sqlite:////path, postgresql+psycopg://host/database, mysql+pymysql://…",
        NonEmptyString(), "Database",
    ),
    ConfigKey("connection.user", Type.STRING, None, _HIGH, "User, unless the URL names one.", None, "Database"),
    ConfigKey("connection.password", Type.PASSWORD, None, _HIGH, "Password of the user.", None, "Database"),
    ConfigKey(
        "connection.attempts", Type.INT, 3, _LOW,
        "Attempts at a query before the task fails, if the database does not answer.", at_least(1), "Database",
    ),
    ConfigKey(
        "connection.backoff.ms", Type.LONG, 10_000, _LOW, "Time between attempts at a query, in ms.", at_least(0),
        "Database",
    ),
    ConfigKey("schema.pattern", Type.STRING, None, _HIGH,
              "Schema of the tables; by default the user's default schema.", None, "Database"),
    ConfigKey(
        "table.whitelist", Type.LIST, [], _MEDIUM,
        "Tables to read. With neither tables nor a query, all tables of the schema are read, including new tables.",
        None, "Database",
    ),
    ConfigKey(
        "query", Type.STRING, "", _MEDIUM, "A SELECT to read instead of tables; it may have a WHERE.", None, "Mode"
    ),
    ConfigKey(
        "mode", Type.STRING, REQUIRED, _HIGH,
        "How new rows are recognised. bulk: every poll reads all rows. incrementing: by a column that grows with each "
        "new row. timestamp: by the time of the last change. timestamp+incrementing: by both.",
        OneOf(BULK, INCREMENTING, TIMESTAMP, BOTH), "Mode",
    ),
    ConfigKey("incrementing.column.name", Type.STRING, "", _MEDIUM,
              "The column that grows with each new row.", None, "Mode"),
    ConfigKey(
        "timestamp.column.name", Type.LIST, [], _MEDIUM,
        "Columns with the time of the last change; the first that is not null is used.", None, "Mode",
    ),
    ConfigKey(
        "validate.non.null", Type.BOOLEAN, True, _LOW,
        "Whether a table is refused if its incrementing or timestamp columns can be null. If false, rows with a null "
        "timestamp are read by their incrementing column or, in mode timestamp, once they have a timestamp. Rows with "
        "a null incrementing column are never read.", None, "Mode",
    ),
    ConfigKey(
        "timestamp.delay.interval.ms", Type.LONG, 0, _HIGH,
        "Minimum age, in ms, of a row's timestamp before the row is read. Set it to the duration of the longest "
        "transaction, because a transaction's rows appear when it commits, with the times at which they were written.",
        at_least(0), "Mode",
    ),
    ConfigKey("db.timezone", Type.STRING, "UTC", _MEDIUM,
              "Time zone of timestamps that have none.", _time_zone, "Mode"),
    ConfigKey(
        "decimal.handling.mode", Type.STRING, "precise", _MEDIUM,
        "Type of numeric columns of tables: precise (Decimal, or text for a column without a scale), string or double. "
        "Only string and double have NaN and infinities.", OneOf("precise", "string", "double"), "Connector",
    ),
    ConfigKey("topic.prefix", Type.STRING, REQUIRED, _HIGH,
              "Prefix of topics: the topic of a table is the prefix and the table's name. With a query, the name of "
              "the topic.", None, "Connector"),
    ConfigKey("poll.interval.ms", Type.INT, 5_000, _HIGH, "Time between two polls of a table, in ms.", at_least(1),
              "Connector"),
    ConfigKey("batch.max.rows", Type.INT, 100, _LOW, "Maximum rows of a batch.", at_least(1), "Connector"),
    ConfigKey("table.poll.interval.ms", Type.LONG, 60_000, _LOW,
              "Time between two checks for new and dropped tables, in ms.", at_least(1), "Connector"),
    ConfigKey(
        "equal.timestamps.max.rows", Type.INT, 100_000, _LOW,
        "Maximum rows with equal timestamps in a table without a primary key; they form one batch.", at_least(1),
        "Connector",
    ),
)  # fmt: skip


def check_mode(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the errors of settings that contradict each other. The keys are the names of the settings to change."""
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
