"""`Converter` and `HeaderConverter`: the interfaces that converters implement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, OneOf, Type
from ..data.schema import Schema

SchemaAndValue = tuple[Schema | None, Any]

CONVERTER_TYPE: Final = ConfigKey(
    "converter.type",
    Type.STRING,
    REQUIRED,
    Importance.LOW,
    "Whether the converter converts keys, values or headers.",
    OneOf("key", "value", "header"),
)


class HeaderConverter(ABC):
    """Turns the value of a header into bytes, and back."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the converter's settings."""
        return ConfigDef()

    def configure(self, config: Mapping[str, Any]) -> None:
        """Apply the settings. Their names have no prefix: schemas.enable instead of value.converter.schemas.enable.

        Raises ConfigValueError.
        """
        self.config_def().parse(config)

    @abstractmethod
    def header_to_bytes(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a header's value. Raises DataError."""

    @abstractmethod
    def header_from_bytes(self, topic: str, name: str, data: bytes | None) -> SchemaAndValue:
        """Return the schema and value that a header's bytes represent. Raises DataError."""


class Converter(HeaderConverter):
    """Turns a key or a value into bytes, and back. Headers are converted in the same way."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the converter's settings."""
        return ConfigDef(CONVERTER_TYPE)

    @abstractmethod
    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a key or value, None for a tombstone. Raises DataError."""

    @abstractmethod
    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the schema and value that the bytes represent. Raises DataError."""

    def header_to_bytes(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a header's value. Raises DataError."""
        return self.to_bytes(topic, schema, value)

    def header_from_bytes(self, topic: str, name: str, data: bytes | None) -> SchemaAndValue:
        """Return the schema and value that a header's bytes represent. Raises DataError."""
        return self.from_bytes(topic, data)
