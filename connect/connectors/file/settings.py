"""The settings of `FileStreamSourceConnector`, named as in Kafka Connect."""

from __future__ import annotations

from ...config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyString, Type

SETTINGS = ConfigDef(
    ConfigKey("file", Type.STRING, None, Importance.HIGH, "The file to read; by default standard input."),
    ConfigKey("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic to write to.", NonEmptyString()),
    ConfigKey("batch.size", Type.INT, 2000, Importance.LOW, "Most lines that one poll returns; one, if this is less."),
)
