"""`SimpleHeaderConverter`: header values as text. Reading infers the type from the text."""

from __future__ import annotations

from typing import Any

from ..data.inference import parse_text
from ..data.schema import BYTES, Schema
from ..data.text import header_text
from ..errors import DataError
from .converter import HeaderConverter, SchemaAndValue


class SimpleHeaderConverter(HeaderConverter):
    """Turns header values into text, and text into inferred values (Kafka Connect's SimpleHeaderConverter)."""

    def header_to_bytes(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the value's text in UTF-8. Raises DataError for a value without a text form."""
        if value is None:
            return None
        try:
            return header_text(value, schema).encode()
        except UnicodeEncodeError as error:
            raise DataError(f"a string has a lone surrogate, which UTF-8 cannot encode: {error}") from None

    def header_from_bytes(self, topic: str, name: str, data: bytes | None) -> SchemaAndValue:
        """Return the value that the text represents. Bytes that are not valid UTF-8 stay bytes."""
        if data is None:
            return None, None
        try:
            return parse_text(data.decode())
        except UnicodeDecodeError:
            return BYTES, data
