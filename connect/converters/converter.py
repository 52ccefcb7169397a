"""`Converter` and `HeaderConverter`: what the worker asks of a converter."""

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
    "What the converter is used for.",
    OneOf("key", "value", "header"),
)


class HeaderConverter(ABC):
    """From the value of a header to bytes, and back."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the converter's settings."""
        return ConfigDef()

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take settings, without the prefix of the setting that names this converter; raises ConfigValueError."""
        self.config_def().parse(config)

    @abstractmethod
    def header_to_bytes(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a header's value; raises DataError."""

    @abstractmethod
    def header_from_bytes(self, topic: str, name: str, data: bytes | None) -> SchemaAndValue:
        """Return what a header's bytes say; raises DataError."""


class Converter(HeaderConverter):
    """From a key or a value to bytes, and back. It converts headers in the same way."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the converter's settings."""
        return ConfigDef(CONVERTER_TYPE)

    @abstractmethod
    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a value, None for a tombstone; raises DataError."""

    @abstractmethod
    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return what the bytes say; raises DataError."""

    def header_to_bytes(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a header's value; raises DataError."""
        return self.to_bytes(topic, schema, value)

    def header_from_bytes(self, topic: str, name: str, data: bytes | None) -> SchemaAndValue:
        """Return what a header's bytes say; raises DataError."""
        return self.from_bytes(topic, data)
