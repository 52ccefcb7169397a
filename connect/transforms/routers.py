"""`RegexRouter` and `TimestampRouter` choose another topic; `Filter` drops a record."""

from __future__ import annotations

import re
from typing import Any, Final

from ..api.records import SourceRecord
from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, RegularExpression, Type
from ..config.validators import compiled
from ..data.logical import from_milliseconds
from ..errors import ConfigValueError, DataError
from .date_patterns import DatePattern
from .transformation import Transformation

_GROUP: Final = re.compile(r"\\(.)|\$(\d)|\$\{(\w+)\}", re.DOTALL)


class RegexRouter(Transformation):
    """Renames a topic whose whole name matches; `$1` in the replacement is the first group."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the transform's settings."""
        high = Importance.HIGH
        return ConfigDef(
            ConfigKey(
                "regex",
                Type.STRING,
                REQUIRED,
                high,
                "Regular expression for the whole name of a topic.",
                RegularExpression(),
            ),
            ConfigKey("replacement", Type.STRING, REQUIRED, high, "The new name; $1 is the first group."),
        )

    def configure(self, config: Any) -> None:
        """Take settings; raises ConfigValueError."""
        super().configure(config)
        self._regex = compiled(self.settings["regex"])

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record for its topic."""
        match = self._regex.fullmatch(record.topic)
        if match is None:
            return record
        try:
            topic = _GROUP.sub(lambda part: _part(part, match), self.settings["replacement"])
        except IndexError:
            raise DataError(
                f"replacement {self.settings['replacement']!r} names a group that regex does not have"
            ) from None
        return record.replace(topic=topic)


def _part(part: re.Match[str], match: re.Match[str]) -> str:
    if part[1] is not None:
        return part[1]
    return str(match[int(part[2]) if part[2] is not None else part[3]] or "")


class TimestampRouter(Transformation):
    """Puts the timestamp of a record into the name of its topic."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the transform's settings."""
        high = Importance.HIGH
        return ConfigDef(
            ConfigKey("topic.format", Type.STRING, "${topic}-${timestamp}", high, "The new name."),
            ConfigKey("timestamp.format", Type.STRING, "yyyyMMdd", high, "Pattern of Java's SimpleDateFormat, in UTC."),
        )

    def configure(self, config: Any) -> None:
        """Take settings; raises ConfigValueError for a letter of a pattern that is not known."""
        super().configure(config)
        given = self.settings["timestamp.format"]
        try:
            self._pattern = DatePattern(given)
        except ValueError as error:
            raise ConfigValueError("timestamp.format", given, str(error)) from None

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record for the topic of its time; raises DataError for one without a timestamp."""
        if record.timestamp_ms is None:
            raise DataError(f"Timestamp missing on record: of topic {record.topic}")
        shown = self._pattern.format(from_milliseconds(record.timestamp_ms))
        name = self.settings["topic.format"].replace("${topic}", record.topic).replace("${timestamp}", shown)
        return record.replace(topic=name)


class Filter(Transformation):
    """Drops every record: meant to be used with a predicate."""

    def apply(self, record: SourceRecord) -> SourceRecord | None:
        """Return None."""
        return None
