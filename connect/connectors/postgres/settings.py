"""The settings of `PostgresSourceConnector`. Settings that Debezium's connector also has share its names."""

from __future__ import annotations

import re
from typing import Any, Final

from ...config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyString, OneOf, Type, at_least, between
from ...config.java_regex import compiled
from ...errors import ConfigValueError

BATCH_BYTES: Final = 4 << 20
"""The size, in bytes, after which a batch of rows or changes ends."""

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _identifier(name: str, value: Any) -> None:
    if not re.fullmatch(r"[a-z0-9_]{1,63}", value or ""):
        raise ConfigValueError(name, value, "must have 1 to 63 lower-case letters, digits and underscores")


def _expressions(name: str, value: Any) -> None:
    text = ""
    try:
        for text in value or ():
            compiled(text)
    except re.error as error:
        raise ConfigValueError(name, text, f"is not a regular expression: {error}") from None


SETTINGS = ConfigDef(
    ConfigKey("database.hostname", Type.STRING, "127.0.0.1", _HIGH, "Host, or directory of a Unix socket.", None,
              "Database"),
    ConfigKey("database.port", Type.INT, 5432, _HIGH, "Port.", between(1, 65535), "Database"),
    ConfigKey(
        "database.user", Type.STRING, REQUIRED, _HIGH,
        "User with the attribute REPLICATION, and SELECT on the tables.", NonEmptyString(), "Database",
    ),
    ConfigKey("database.password", Type.PASSWORD, None, _HIGH, "Password of the user.", None, "Database"),
    ConfigKey("database.dbname", Type.STRING, REQUIRED, _HIGH, "Name of the database.", NonEmptyString(), "Database"),
    ConfigKey("database.sslmode", Type.STRING, "prefer", _LOW, "As in PostgreSQL: disable, prefer, verify-full, …",
              None, "Database"),
    ConfigKey("topic.prefix", Type.STRING, REQUIRED, _HIGH, "Topics are PREFIX.SCHEMA.TABLE.", NonEmptyString(),
              "Connector"),
    ConfigKey(
        "table.include.list", Type.LIST, [r"public\..*"], _HIGH,
        "Java's regular expressions for SCHEMA.TABLE; tables that match one of them are read.", _expressions,
        "Connector",
    ),
    ConfigKey("slot.name", Type.STRING, "oncelog", _MEDIUM,
              "Name of the replication slot; each connector needs its own.", _identifier, "Connector"),
    ConfigKey("publication.name", Type.STRING, "oncelog", _MEDIUM,
              "Name of the publication; connectors may share it.", _identifier, "Connector"),
    ConfigKey(
        "publication.autocreate.mode", Type.STRING, "filtered", _MEDIUM,
        "filtered: create the publication, or add missing tables of table.include.list to it (the user must own "
        "them). disabled: the publication must exist with these tables.",
        OneOf("filtered", "disabled"), "Connector",
    ),
    ConfigKey(
        "snapshot.mode", Type.STRING, "initial", _MEDIUM,
        "initial: first the existing rows, then changes. never: only changes from now on, or from the slot's position "
        "if the slot exists.", OneOf("initial", "never"), "Connector",
    ),
    ConfigKey(
        "value.format", Type.STRING, "envelope", _MEDIUM,
        "envelope: Debezium's before, after, source, op and ts_ms. row: the row alone, null for a deletion.",
        OneOf("envelope", "row"), "Connector",
    ),
    ConfigKey("tombstones.on.delete", Type.BOOLEAN, True, _MEDIUM,
              "With value.format=envelope: whether a tombstone follows each deletion, for compacted topics.", None,
              "Connector"),
    ConfigKey(
        "truncate.handling.mode", Type.STRING, "include", _MEDIUM,
        "include: a TRUNCATE becomes a record with op t; with value.format=row, the task fails. skip: a TRUNCATE is "
        "ignored.", OneOf("include", "skip"), "Connector",
    ),
    ConfigKey(
        "unavailable.value.placeholder", Type.STRING, "__debezium_unavailable_value", _LOW,
        "Placeholder for a large value that an update did not change; the server sends such values only if the table "
        "has REPLICA IDENTITY FULL.", None, "Connector",
    ),
    ConfigKey(
        "decimal.handling.mode", Type.STRING, "precise", _MEDIUM,
        "Type of numeric columns with a scale: precise (Decimal), string or double. Without a scale: string, or "
        "double in mode double.", OneOf("precise", "string", "double"), "Connector",
    ),
    ConfigKey(
        "time.precision.mode", Type.STRING, "adaptive", _MEDIUM,
        "adaptive: Debezium's types, with microseconds. connect: Kafka Connect's types, with milliseconds.",
        OneOf("adaptive", "connect"), "Connector",
    ),
    ConfigKey("poll.interval.ms", Type.LONG, 500, _LOW, "Maximum wait of one poll for changes, in ms.", at_least(1),
              "Connector"),
    ConfigKey("max.batch.size", Type.INT, 2048, _MEDIUM, "Maximum records of a batch.", at_least(1), "Connector"),
    ConfigKey("snapshot.fetch.size", Type.INT, 2048, _LOW, "Maximum rows of the snapshot in a batch.",
              at_least(1), "Connector"),
    ConfigKey("status.update.interval.ms", Type.INT, 10_000, _LOW,
              "Time between two reports of the confirmed log position, in ms.", at_least(1), "Connector"),
    ConfigKey(
        "connection.attempts", Type.INT, 100, _LOW,
        "Connection attempts, about one second apart, before the task fails.", at_least(1),
        "Database",
    ),
)  # fmt: skip
