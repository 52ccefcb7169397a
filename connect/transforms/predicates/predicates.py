"""The predicates `TopicNameMatches`, `HasHeaderKey` and `RecordIsTombstone`."""

from __future__ import annotations

from typing import Any

from ...api.records import SourceRecord
from ...config import REQUIRED, ConfigDef, ConfigKey, Every, Importance, NonEmptyString, RegularExpression, Type
from ...config.java_regex import compiled
from ..transformation import Predicate


class TopicNameMatches(Predicate):
    """True for a record whose topic's whole name matches a regular expression."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the predicate's settings."""
        doc = "Regular expression of Java that a topic's whole name must match."
        valid = Every(NonEmptyString(), RegularExpression())
        return ConfigDef(ConfigKey("pattern", Type.STRING, REQUIRED, Importance.MEDIUM, doc, valid))

    def configure(self, config: Any) -> None:
        """Apply the settings. Raises ConfigValueError."""
        super().configure(config)
        self._pattern = compiled(self.settings["pattern"])

    def test(self, record: SourceRecord) -> bool:
        """Return whether the topic's name matches."""
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey(Predicate):
    """True for a record with a header of the configured name."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the predicate's settings."""
        doc = "The name of the header."
        return ConfigDef(ConfigKey("name", Type.STRING, REQUIRED, Importance.MEDIUM, doc, NonEmptyString()))

    def test(self, record: SourceRecord) -> bool:
        """Return whether the record has the header."""
        return any(header.key == self.settings["name"] for header in record.headers)


class RecordIsTombstone(Predicate):
    """True for a record whose value is None."""

    def test(self, record: SourceRecord) -> bool:
        """Return whether the record's value is None."""
        return record.value is None
