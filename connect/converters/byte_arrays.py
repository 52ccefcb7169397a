"""`ByteArrayConverter`: passes bytes through unchanged."""

from __future__ import annotations

from typing import Any

from ..data.schema import OPTIONAL_BYTES, Schema, SchemaType
from ..errors import DataError
from .converter import Converter, SchemaAndValue


class ByteArrayConverter(Converter):
    """Passes bytes through unchanged (Kafka Connect's ByteArrayConverter)."""

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes unchanged. Raises DataError for a value that is not bytes."""
        if schema is not None and schema.type is not SchemaType.BYTES:
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.type.name}")
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            raise DataError(f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}")
        return None if value is None else bytes(value)

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the bytes unchanged."""
        return OPTIONAL_BYTES, data
