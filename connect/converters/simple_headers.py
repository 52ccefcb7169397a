"""`SimpleHeaderConverter`: header values as text, whose type is inferred when they are read."""

from __future__ import annotations

from typing import Any

from ..data.inference import parse_text
from ..data.schema import BYTES, Schema
from ..data.text import header_text
from .converter import HeaderConverter, SchemaAndValue


class SimpleHeaderConverter(HeaderConverter):
    """From values of headers to text, and back to what the text says (Kafka Connect's SimpleHeaderConverter)."""

    def header_to_bytes(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the value's text in UTF-8; raises DataError for what has none."""
        return None if value is None else header_text(value).encode()

    def header_from_bytes(self, topic: str, name: str, data: bytes | None) -> SchemaAndValue:
        """Return the value that the text stands for; bytes that are no text stay bytes."""
        if data is None:
            return None, None
        try:
            return parse_text(data.decode())
        except UnicodeDecodeError:
            return BYTES, data
