"""`ExtractField`, which extracts one field, `HoistField`, which wraps a value in a field, and `ValueToKey`."""

from __future__ import annotations

from typing import Any

from ..api.records import SourceRecord
from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyList, OneOfIgnoringCase, Type
from ..data.schema import struct
from ..errors import DataError
from .field_paths import field_path, value_at
from .structs import REPLACE_NULL, SchemaCache, field_value, struct_of
from .transformation import PartTransformation, Transformation, require_map, require_struct


class ExtractField(PartTransformation):
    """Replaces the key or value with one of its fields."""

    purpose = "field extraction"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        medium, high = Importance.MEDIUM, Importance.HIGH
        return ConfigDef(
            ConfigKey(
                "field",
                Type.STRING,
                REQUIRED,
                medium,
                "The field's name. With field.syntax.version=V2, it may be a path such as a.b.",
            ),
            REPLACE_NULL,
            ConfigKey(
                "field.syntax.version", Type.STRING, "V1", high, "V1: a name. V2: a path (KIP-821).",
                OneOfIgnoringCase("V1", "V2"),
            ),
        )  # fmt: skip

    def configure(self, config: Any) -> None:
        """Apply the settings. Raises ConfigValueError for an incomplete path."""
        super().configure(config)
        self._path = field_path(self.settings["field"], self.settings["field.syntax.version"])

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with the field's value as its key or value.

        Raises DataError if the schema lacks the field. Without a schema, a missing field becomes None.
        """
        schema, value = self.operand(record)
        if schema is None:
            if value is not None:
                self.require_map(value)
            _, found = value_at(None, value, self._path)
            return self.changed(record, None, found)
        if value is not None:
            self.require_struct(value)
        kind, found = value_at(schema, value, self._path, self.settings["replace.null.with.default"])
        if kind is None:
            raise DataError(f"Unknown field: {self.settings['field']}")
        return self.changed(record, kind, found)


class HoistField(PartTransformation):
    """Wraps the key or value in a struct with one field. Without a schema, the struct is a dict."""

    purpose = "field hoisting"

    def __init__(self) -> None:
        self._schemas = SchemaCache()

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        return ConfigDef(ConfigKey("field", Type.STRING, REQUIRED, Importance.MEDIUM, "The name of the field."))

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with its key or value wrapped in the field."""
        schema, value = self.operand(record)
        name = self.settings["field"]
        if schema is None:
            return self.changed(record, None, {name: value})
        hoisted = self._schemas.get(schema, lambda old: struct({name: old}))
        return self.changed(record, hoisted, struct_of(hoisted, {name: value}))


class ValueToKey(Transformation):
    """Builds the key from fields of the value."""

    def __init__(self) -> None:
        self._schemas = SchemaCache()

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        high = Importance.HIGH
        return ConfigDef(
            ConfigKey("fields", Type.LIST, REQUIRED, high, "Fields of the value that form the key.", NonEmptyList()),
            REPLACE_NULL,
        )

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with the new key.

        Raises DataError if the value is None, has no fields, or has a schema that lacks a field.
        """
        names, schema = self.settings["fields"], record.value_schema
        purpose = "copying fields from value to key"
        if schema is None:
            given = require_map(record.value, purpose)
            return record.replace(key_schema=None, key={name: given.get(name) for name in names})
        row = require_struct(record.value, purpose)
        fields = [schema.field(name) for name in names]
        for name, field in zip(names, fields, strict=True):
            if field is None:
                raise DataError(f"Field does not exist: {name}")
        known = [field for field in fields if field is not None]
        keys = self._schemas.get(schema, lambda old: struct([(field.name, field.schema) for field in known]))
        defaults = self.settings["replace.null.with.default"]
        values = {field.name: field_value(row, field, defaults) for field in known}
        return record.replace(key_schema=keys, key=struct_of(keys, values))


class ExtractFieldKey(ExtractField):
    """Replaces the key of records with one of its fields."""

    part = "key"


class ExtractFieldValue(ExtractField):
    """Replaces the value of records with one of its fields."""

    part = "value"


class HoistFieldKey(HoistField):
    """Wraps the key of records in a field."""

    part = "key"


class HoistFieldValue(HoistField):
    """Wraps the value of records in a field."""

    part = "value"
