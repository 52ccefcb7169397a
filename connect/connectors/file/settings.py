"""The settings of `FileStreamSourceConnector`, with Kafka Connect's names."""

from __future__ import annotations

from ...config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyString, Type

SETTINGS = ConfigDef(
    ConfigKey("file", Type.STRING, None, Importance.HIGH, "The file to read; by default standard input."),
    ConfigKey("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic to write to.", NonEmptyString()),
    ConfigKey(
        "batch.size", Type.INT, 2000, Importance.LOW, "Maximum lines that one poll returns; values below 1 count as 1."
    ),
)
