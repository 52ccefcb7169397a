"""The settings of `DirectorySourceConnector`."""

from __future__ import annotations

from ...config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyString, Type, at_least

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

SETTINGS = ConfigDef(
    ConfigKey("directory", Type.STRING, REQUIRED, _HIGH, "The directory to watch.", NonEmptyString()),
    ConfigKey("topic", Type.STRING, REQUIRED, _HIGH, "The topic to write to.", NonEmptyString()),
    ConfigKey(
        "include", Type.LIST, ["*"], _MEDIUM,
        "Patterns of file names, such as *.log*, or app/*.log in subdirectories. They must also match rotated files.",
    ),
    ConfigKey("exclude", Type.LIST, [], _MEDIUM, "Patterns of file names to ignore."),
    ConfigKey("recursive", Type.BOOLEAN, False, _MEDIUM, "Whether subdirectories are watched too."),
    ConfigKey("batch.size", Type.INT, 2000, _LOW, "Maximum lines that one poll returns.", at_least(1)),
    ConfigKey("poll.interval.ms", Type.INT, 500, _LOW, "Time between two scans, in ms.", at_least(1)),
    ConfigKey(
        "max.line.bytes", Type.INT, 1 << 20, _LOW,
        "Maximum length of a line in bytes; a longer line makes the task fail.", at_least(1),
    ),
    ConfigKey(
        "max.open.files", Type.INT, 100, _LOW,
        "Maximum number of files kept open, so that deleted files can be read to their end. A gz file that is being "
        "read does not count.", at_least(1),
    ),
)  # fmt: skip
