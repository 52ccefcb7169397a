"""The settings of `DirectorySourceConnector`."""

from __future__ import annotations

from ...config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyString, Type, at_least

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

SETTINGS = ConfigDef(
    ConfigKey("directory", Type.STRING, REQUIRED, _HIGH, "The directory to watch.", NonEmptyString()),
    ConfigKey("topic", Type.STRING, REQUIRED, _HIGH, "The topic to write to.", NonEmptyString()),
    ConfigKey(
        "include", Type.LIST, ["*"], _MEDIUM,
        "Patterns of file names, such as *.log* or, below subdirectories, app/*.log. Name rotated files as well.",
    ),
    ConfigKey("exclude", Type.LIST, [], _MEDIUM, "Patterns of file names to leave out."),
    ConfigKey("recursive", Type.BOOLEAN, False, _MEDIUM, "Watch subdirectories as well."),
    ConfigKey("batch.size", Type.INT, 2000, _LOW, "Most lines that one poll returns.", at_least(1)),
    ConfigKey("poll.interval.ms", Type.INT, 500, _LOW, "Time between two looks at the directory.", at_least(1)),
    ConfigKey(
        "max.line.bytes", Type.INT, 1 << 20, _LOW, "Longest line; a file with a longer one makes the task fail.",
        at_least(1),
    ),
    ConfigKey(
        "max.open.files", Type.INT, 100, _LOW,
        "Files that are kept open, so that they are read to their end when they are deleted.", at_least(1),
    ),
)  # fmt: skip
