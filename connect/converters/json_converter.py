"""`JsonConverter`: converts data to and from JSON, with or without the schema of each value."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from ..config import ConfigDef, ConfigKey, Importance, OneOfIgnoringCase, Type, Width
from ..data import json_text
from ..data.schema import Schema
from ..errors import DataError
from .converter import CONVERTER_TYPE, Converter, SchemaAndValue
from .json_schemas import schema_from_json, schema_to_json
from .json_values import value_from_json, value_to_json

_SETTINGS = ConfigDef(
    CONVERTER_TYPE,
    ConfigKey(
        "schemas.enable",
        Type.BOOLEAN,
        True,
        Importance.HIGH,
        "Whether each key and value is written with its schema.",
        group="Schemas",
        order=0,
        width=Width.MEDIUM,
        display_name="Enable Schemas",
    ),
    ConfigKey(
        "schemas.cache.size",
        Type.INT,
        1000,
        Importance.HIGH,
        "Maximum number of schemas whose JSON is kept in memory.",
        group="Schemas",
        order=1,
        width=Width.MEDIUM,
        display_name="Schema Cache Size",
    ),
    ConfigKey(
        "decimal.format",
        Type.STRING,
        "BASE64",
        Importance.LOW,
        "Format of decimals: BASE64 (their bytes) or NUMERIC (a number), in upper or lower case.",
        OneOfIgnoringCase("BASE64", "NUMERIC"),
        group="Serialization",
        order=0,
        width=Width.MEDIUM,
        display_name="Decimal Format",
    ),
    ConfigKey(
        "replace.null.with.default",
        Type.BOOLEAN,
        True,
        Importance.LOW,
        "Whether null fields get the default value of their schema.",
        group="Serialization",
        order=1,
        width=Width.MEDIUM,
        display_name="Replace null with default",
    ),
)


class JsonConverter(Converter):
    """Turns data into JSON, with or without its schema, and back (Kafka Connect's JsonConverter)."""

    def __init__(self) -> None:
        self._with_schemas, self._numeric, self._defaults, self._cache_size = True, False, True, 1000
        self._schemas: OrderedDict[int, tuple[Schema, bytes]] = OrderedDict()
        """The JSON of schemas, by the schema object's id, because hashing a large schema costs more than writing it."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the converter's settings."""
        return _SETTINGS

    def configure(self, config: Mapping[str, Any]) -> None:
        """Apply the settings. Raises ConfigValueError."""
        values = _SETTINGS.parse(config)
        self._with_schemas = values["schemas.enable"]
        self._numeric = values["decimal.format"].upper() == "NUMERIC"
        self._defaults = values["replace.null.with.default"]
        self._cache_size = values["schemas.cache.size"]

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the JSON of a value, or None (a tombstone) if both schema and value are None. Raises DataError."""
        if schema is None and value is None:
            return None
        payload = json_text.dumps(value_to_json(schema, value, self._numeric, self._defaults))
        if not self._with_schemas:
            return payload
        return b'{"schema":%b,"payload":%b}' % (self._schema_json(schema), payload)

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the schema and the value. Raises DataError for data that is not JSON in the configured format."""
        if data is None:
            return None, None
        message = json_text.loads(data)
        if not self._with_schemas:
            return None, message
        if not isinstance(message, dict) or message.keys() != {"schema", "payload"}:
            raise DataError(
                'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain '
                "additional fields. If you are trying to deserialize plain JSON data, set schemas.enable=false in your "
                "converter configuration."
            )
        schema = schema_from_json(message["schema"], self._defaults)
        return schema, value_from_json(schema, message["payload"], self._defaults)

    def _schema_json(self, schema: Schema | None) -> bytes:
        if schema is None:
            return b"null"
        cached = self._schemas.get(id(schema))
        if cached is None:
            cached = (schema, json_text.dumps(schema_to_json(schema, self._numeric, self._defaults)))
            self._schemas[id(schema)] = cached
            while len(self._schemas) > self._cache_size:
                self._schemas.popitem(last=False)
        return cached[1]
