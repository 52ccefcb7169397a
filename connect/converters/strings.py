"""`StringConverter`: text in a character set; values of other types are written as Java prints them."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any

from ..config import ConfigDef, ConfigKey, Importance, Type, Width
from ..data.schema import OPTIONAL_STRING, Schema
from ..data.text import java_text
from ..errors import ConfigValueError, DataError
from .converter import CONVERTER_TYPE, Converter, SchemaAndValue


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
        """Apply the settings; raises ConfigValueError for an unknown character set."""
        encoding = self.config_def().parse(config)["converter.encoding"]
        try:
            self._encoding = codecs.lookup(encoding).name
        except LookupError:
            raise ConfigValueError("converter.encoding", encoding, "is not the name of a character set") from None

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the text's bytes; raises DataError for characters that the character set does not have."""
        if value is None:
            return None
        try:
            return (value if isinstance(value, str) else java_text(value, schema)).encode(self._encoding)
        except UnicodeEncodeError as error:
            raise DataError(f"Failed to serialize to a string: {error}") from None

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the text; raises DataError for bytes that are invalid in the character set."""
        try:
            return OPTIONAL_STRING, None if data is None else data.decode(self._encoding)
        except UnicodeDecodeError as error:
            raise DataError(f"Failed to deserialize string: {error}") from None
