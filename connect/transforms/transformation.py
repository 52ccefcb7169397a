"""`Transformation`, `Predicate`, and the base class of transforms of the key or the value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ..api.records import SourceRecord
from ..config import ConfigDef
from ..data.schema import Schema
from ..data.struct import Struct
from ..errors import DataError


class Configured(ABC):
    """A plugin with settings; `settings` has their parsed values."""

    settings: Mapping[str, Any]

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the plugin's settings."""
        return ConfigDef()

    def configure(self, config: Mapping[str, Any]) -> None:
        """Parse and keep the settings. Raises ConfigValueError."""
        self.settings = self.config_def().parse(config)


class Transformation(Configured):
    """A plugin that changes records, or drops them."""

    @abstractmethod
    def apply(self, record: SourceRecord) -> SourceRecord | None:
        """Return the changed record, or None to drop the record. Raises DataError."""


class Predicate(Configured):
    """A plugin that decides whether a transform applies to a record."""

    @abstractmethod
    def test(self, record: SourceRecord) -> bool:
        """Return whether the predicate is true for the record."""


class PartTransformation(Transformation):
    """Changes the key or the value of a record; a subclass sets `part` to "key" or "value"."""

    part: ClassVar[str]
    purpose: ClassVar[str] = ""
    """The transform's name in error messages."""

    def operand(self, record: SourceRecord) -> tuple[Schema | None, Any]:
        """Return the schema and the value of the record's key or value, as `part` says."""
        return (record.key_schema, record.key) if self.part == "key" else (record.value_schema, record.value)

    def changed(self, record: SourceRecord, schema: Schema | None, value: Any) -> SourceRecord:
        """Return the record with a new schema and value for its key or value."""
        return record.replace(**{f"{self.part}_schema": schema, self.part: value})

    def require_map(self, value: Any) -> Mapping[Any, Any]:
        """Return a value without a schema as a mapping. Raises DataError for other types."""
        return require_map(value, self.purpose)

    def require_struct(self, value: Any) -> Struct:
        """Return a value with a schema as a Struct. Raises DataError for other types."""
        return require_struct(value, self.purpose)


def require_map(value: Any, purpose: str) -> Mapping[Any, Any]:
    """Return a value without a schema as a mapping. Raises DataError, which names `purpose`, for other types."""
    if not isinstance(value, Mapping):
        raise DataError(f"Only Map objects supported in absence of schema for [{purpose}], found: {_kind(value)}")
    return value


def require_struct(value: Any, purpose: str) -> Struct:
    """Return a value with a schema as a Struct. Raises DataError, which names `purpose`, for other types."""
    if not isinstance(value, Struct):
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
