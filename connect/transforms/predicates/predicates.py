"""`TopicNameMatches`, `HasHeaderKey` and `RecordIsTombstone`."""

from __future__ import annotations

from typing import Any

from ...api.records import SourceRecord
from ...config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyString, RegularExpression, Type
from ...config.validators import compiled
from ..transformation import Predicate


class TopicNameMatches(Predicate):
    """True for a topic whose whole name matches."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the predicate's settings."""
        doc = "Regular expression for the whole name of a topic."
        return ConfigDef(ConfigKey("pattern", Type.STRING, REQUIRED, Importance.MEDIUM, doc, RegularExpression()))

    def configure(self, config: Any) -> None:
        """Take settings; raises ConfigValueError."""
        super().configure(config)
        self._pattern = compiled(self.settings["pattern"])

    def test(self, record: SourceRecord) -> bool:
        """Return whether the topic matches."""
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey(Predicate):
    """True for a record with a header of that name."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the predicate's settings."""
        doc = "The name of the header."
        return ConfigDef(ConfigKey("name", Type.STRING, REQUIRED, Importance.MEDIUM, doc, NonEmptyString()))

    def test(self, record: SourceRecord) -> bool:
        """Return whether there is such a header."""
        return any(header.key == self.settings["name"] for header in record.headers)


class RecordIsTombstone(Predicate):
    """True for a record without a value."""

    def test(self, record: SourceRecord) -> bool:
        """Return whether the value is null."""
        return record.value is None
