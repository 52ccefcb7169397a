"""`RegexRouter` and `TimestampRouter`, which change a record's topic, and `Filter`, which drops records."""

from __future__ import annotations

import re
from typing import Any, Final

from ..api.records import SourceRecord
from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, RegularExpression, Type
from ..config.java_regex import compiled
from ..data.logical import from_milliseconds
from ..errors import ConfigValueError, DataError
from .date_patterns import DatePattern
from .transformation import Transformation

_GROUP: Final = re.compile(r"\\(.)|\$([0-9]+)|\$\{(\w+)\}|[$\\]", re.DOTALL)
"""Matches an escaped character, a group's number or name, or a $ or backslash that begins none of these."""


class RegexRouter(Transformation):
    """Renames a topic whose whole name matches a regular expression; `$1` in the replacement is the first group."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        high = Importance.HIGH
        return ConfigDef(
            ConfigKey(
                "regex",
                Type.STRING,
                REQUIRED,
                high,
                "Regular expression of Java that a topic's whole name must match.",
                RegularExpression(),
            ),
            ConfigKey("replacement", Type.STRING, REQUIRED, high, "The topic's new name; $1 is the first group."),
        )

    def configure(self, config: Any) -> None:
        """Apply the settings. Raises ConfigValueError."""
        super().configure(config)
        self._regex = compiled(self.settings["regex"])

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with its new topic, or unchanged if the topic's name does not match."""
        match = self._regex.search(record.topic)
        if match is None or self._regex.fullmatch(record.topic) is None:
            return record
        try:
            new = _GROUP.sub(lambda part: _part(part, match), self.settings["replacement"])
        except IndexError:
            raise DataError(
                f"replacement {self.settings['replacement']!r} refers to a group that regex does not have"
            ) from None
        # Java replaces the first match, which may be shorter than the whole name.
        return record.replace(topic=record.topic[: match.start()] + new + record.topic[match.end() :])


def _part(part: re.Match[str], match: re.Match[str]) -> str:
    escaped, number, name = part.groups()
    if escaped is not None:
        return str(escaped)
    if name is not None:
        return match[name] or ""
    if number is None:
        raise IndexError(part[0])
    used = 1
    while used < len(number) and int(number[: used + 1]) <= match.re.groups:  # take more digits while they name a group
        used += 1
    return (match[int(number[:used])] or "") + str(number[used:])


class TimestampRouter(Transformation):
    """Builds the topic's name from the topic and the timestamp of a record."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        high = Importance.HIGH
        return ConfigDef(
            ConfigKey("topic.format", Type.STRING, "${topic}-${timestamp}", high, "The topic's new name."),
            ConfigKey("timestamp.format", Type.STRING, "yyyyMMdd", high, "Pattern of Java's SimpleDateFormat, in UTC."),
        )

    def configure(self, config: Any) -> None:
        """Apply the settings. Raises ConfigValueError for a pattern with an unsupported letter."""
        super().configure(config)
        given = self.settings["timestamp.format"]
        try:
            self._pattern = DatePattern(given)
        except ValueError as error:
            raise ConfigValueError("timestamp.format", given, str(error)) from None

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with the topic for its timestamp. Raises DataError for a record without a timestamp."""
        if record.timestamp_ms is None:
            raise DataError(f"Timestamp missing on record of topic {record.topic}")
        shown = self._pattern.format(from_milliseconds(record.timestamp_ms))
        name = self.settings["topic.format"].replace("${topic}", record.topic).replace("${timestamp}", shown)
        return record.replace(topic=name)


class Filter(Transformation):
    """Drops every record that it is applied to; use it with a predicate."""

    def apply(self, record: SourceRecord) -> SourceRecord | None:
        """Return None, which drops the record."""
        return None
