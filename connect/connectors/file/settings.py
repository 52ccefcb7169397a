"""The settings of `FileStreamSourceConnector`, with Kafka Connect's names, and max.line.bytes."""

from __future__ import annotations

from ...config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyString, Type, at_least

SETTINGS = ConfigDef(
    ConfigKey("file", Type.STRING, None, Importance.HIGH, "The file to read; by default standard input."),
    ConfigKey("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic to write to.", NonEmptyString()),
    ConfigKey(
        "batch.size", Type.INT, 2000, Importance.LOW, "Maximum lines that one poll returns; values below 1 count as 1."
    ),
    ConfigKey(
        "max.line.bytes", Type.INT, 1 << 20, Importance.LOW,
        "Maximum length of a line in bytes; a longer line makes the task fail.", at_least(1),
    ),
)  # fmt: skip
