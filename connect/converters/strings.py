"""`StringConverter`: text in a character set; values of other types are written as Java prints them."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any, Final

from ..config import ConfigDef, ConfigKey, Importance, Type, Width
from ..data.schema import OPTIONAL_STRING, Schema
from ..data.text import java_text
from ..errors import ConfigValueError, DataError
from .converter import CONVERTER_TYPE, Converter, SchemaAndValue

_MARKS: Final = {"utf-16": codecs.BOM_UTF16_BE, "utf-32": b""}
"""The byte order marks that Java writes: Java is always big-endian, but Python uses the machine's byte order."""

_ANY_MARK: Final = (codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF32_LE)


class StringConverter(Converter):
    """Turns data into text in a character set, and back into text (Kafka Connect's StringConverter)."""

    _encoding = "utf-8"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the converter's settings."""
        encoding = ConfigKey(
            "converter.encoding",
            Type.STRING,
            "UTF-8",
            Importance.HIGH,
            "The name of the character set.",
            width=Width.MEDIUM,
            display_name="Encoding",
        )
        return ConfigDef(CONVERTER_TYPE, encoding)

    def configure(self, config: Mapping[str, Any]) -> None:
        """Apply the settings. Raises ConfigValueError for an unknown character set."""
        encoding = self.config_def().parse(config)["converter.encoding"]
        try:
            "".encode(encoding)  # refuses codecs that do not encode text, such as base64
            self._encoding = codecs.lookup(encoding).name
        except LookupError:
            raise ConfigValueError("converter.encoding", encoding, "is not the name of a character set") from None

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the text's bytes. Raises DataError for characters that the character set does not have."""
        if value is None:
            return None
        try:
            return self._encoded(value if isinstance(value, str) else java_text(value, schema))
        except UnicodeEncodeError as error:
            raise DataError(f"Failed to serialize to a string: {error}") from None

    def _encoded(self, text: str) -> bytes:
        mark = _MARKS.get(self._encoding)
        if mark is None:
            return text.encode(self._encoding)
        return mark + text.encode(f"{self._encoding}-be") if text else b""

    def _decoded(self, data: bytes) -> str:
        unmarked = self._encoding in _MARKS and not data.startswith(_ANY_MARK)
        return data.decode(f"{self._encoding}-be" if unmarked else self._encoding)

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the text. Raises DataError for bytes that are invalid in the character set."""
        try:
            return OPTIONAL_STRING, None if data is None else self._decoded(data)
        except UnicodeDecodeError as error:
            raise DataError(f"Failed to deserialize string: {error}") from None
