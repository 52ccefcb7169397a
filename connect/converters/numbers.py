"""The number converters and `BooleanConverter`, which write a fixed number of bytes, most significant byte first."""

from __future__ import annotations

import struct
from typing import Any, ClassVar

from ..data.schema import Schema, SchemaType
from ..errors import DataError
from .converter import Converter, SchemaAndValue


class NumberConverter(Converter):
    """Base class of the number converters. A subclass sets `layout` in the notation of Python's struct module."""

    layout: ClassVar[str]
    type: ClassVar[SchemaType]

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the number's bytes. Raises DataError for another type and for a number that does not fit."""
        if value is None:
            return None
        whole = self.layout in (">h", ">i", ">q")
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            raise DataError(f"Failed to serialize to {self.type.value} (was {type(value).__name__})")
        try:
            return struct.pack(self.layout, value)
        except (struct.error, OverflowError):
            raise DataError(f"Failed to serialize to {self.type.value}: {value} does not fit") from None

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the number. Raises DataError if the data has another length."""
        schema = Schema(self.type, optional=True)
        if data is None:
            return schema, None
        try:
            return schema, struct.unpack(self.layout, data)[0]
        except struct.error:
            size = struct.calcsize(self.layout)
            raise DataError(
                f"Failed to deserialize {self.type.value}: expected {size} bytes, got {len(data)}"
            ) from None


class ShortConverter(NumberConverter):
    """Converts 16-bit integers to two bytes."""

    layout, type = ">h", SchemaType.INT16


class IntegerConverter(NumberConverter):
    """Converts 32-bit integers to four bytes."""

    layout, type = ">i", SchemaType.INT32


class LongConverter(NumberConverter):
    """Converts 64-bit integers to eight bytes."""

    layout, type = ">q", SchemaType.INT64


class FloatConverter(NumberConverter):
    """Converts numbers to four bytes in IEEE 754 format."""

    layout, type = ">f", SchemaType.FLOAT32


class DoubleConverter(NumberConverter):
    """Converts numbers to eight bytes in IEEE 754 format."""

    layout, type = ">d", SchemaType.FLOAT64


class BooleanConverter(Converter):
    """Converts booleans to one byte, 1 or 0."""

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the byte of a boolean. Raises DataError for values of other types."""
        if schema is not None and schema.type is not SchemaType.BOOLEAN:
            raise DataError(f"Invalid schema type for BooleanConverter: {schema.type.name}")
        if value is None:
            return None
        if not isinstance(value, bool):
            raise DataError(f"BooleanConverter is not compatible with objects of type {type(value).__name__}")
        return b"\x01" if value else b"\x00"

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the boolean. Raises DataError if the data is not a single byte with the value 1 or 0."""
        if data not in (None, b"\x00", b"\x01"):
            raise DataError(f"Failed to deserialize boolean: {data!r:.40} is neither 00 nor 01")
        return Schema(SchemaType.BOOLEAN, optional=True), None if data is None else data == b"\x01"
