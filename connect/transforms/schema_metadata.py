"""`SetSchemaMetadata`: changes the name or version of the schema of the key or value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..api.records import SourceRecord
from ..config import ConfigDef, ConfigKey, Importance, Type
from ..data.schema import Schema
from ..data.struct import Struct
from ..errors import ConfigValueError, DataError
from .structs import REPLACE_NULL, SchemaCache, field_value, struct_of
from .transformation import PartTransformation


class SetSchemaMetadata(PartTransformation):
    """Sets the name or version of a schema, as Kafka Connect's transform does."""

    purpose = "updating schema metadata"

    def __init__(self) -> None:
        self._schemas = SchemaCache()

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        return ConfigDef(
            ConfigKey("schema.name", Type.STRING, None, Importance.HIGH, "Schema name to set."),
            ConfigKey("schema.version", Type.INT, None, Importance.HIGH, "Schema version to set."),
            REPLACE_NULL,
        )

    def configure(self, config: Any) -> None:
        """Apply the settings. Raises ConfigValueError if neither a name nor a version is given."""
        super().configure(config)
        if self.settings["schema.name"] is None and self.settings["schema.version"] is None:
            raise ConfigValueError("schema.name", None, "Neither schema name nor version configured")

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with the new schema. Raises DataError for a value without a schema."""
        schema, value = self.operand(record)
        if schema is None:
            if value is None:
                return record
            raise DataError(f"Schema required for [{self.purpose}]")
        changed = self._schemas.get(schema, self._renamed)
        if isinstance(value, Struct):
            defaults = self.settings["replace.null.with.default"]
            fields = {field.name: field_value(value, field, defaults) for field in schema.fields}
            value = struct_of(changed, fields)
        return self.changed(record, changed, value)

    def _renamed(self, schema: Schema) -> Schema:
        name, version = self.settings["schema.name"], self.settings["schema.version"]
        return replace(
            schema,
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )


class Key(SetSchemaMetadata):
    """Sets the name or version of the schema of a record's key."""

    part = "key"


class Value(SetSchemaMetadata):
    """Sets the name or version of the schema of a record's value."""

    part = "value"
