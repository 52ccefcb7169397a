"""`InsertHeader` adds a header, `DropHeaders` removes headers, `HeaderFrom` moves or copies fields into headers."""

from __future__ import annotations

from typing import Any

from ..api.records import Header, SourceRecord
from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyList, NonNull, OneOf, Type
from ..data.inference import parse_text
from ..errors import ConfigValueError, DataError
from .structs import REPLACE_NULL, SchemaCache, field_value, struct_of, with_fields
from .transformation import PartTransformation, Transformation


class InsertHeader(Transformation):
    """Adds a header with a fixed value, whose type is inferred from its text."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        high = Importance.HIGH
        return ConfigDef(
            ConfigKey("header", Type.STRING, REQUIRED, high, "The name of the header.", NonNull()),
            ConfigKey("value.literal", Type.STRING, REQUIRED, high, "The value, as text.", NonNull()),
        )

    def configure(self, config: Any) -> None:
        """Apply the settings. Raises ConfigValueError."""
        super().configure(config)
        schema, value = parse_text(self.settings["value.literal"])
        self._header = Header(self.settings["header"], value, schema)

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with the header added."""
        return record.replace(headers=(*record.headers, self._header))


class DropHeaders(Transformation):
    """Removes the headers with the configured names."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        return ConfigDef(
            ConfigKey("headers", Type.LIST, REQUIRED, Importance.HIGH, "The names of the headers.", NonEmptyList())
        )

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record without the configured headers."""
        dropped = self.settings["headers"]
        return record.replace(headers=tuple(header for header in record.headers if header.key not in dropped))


class HeaderFrom(PartTransformation):
    """Moves or copies fields of the key or value into headers."""

    purpose = "header from"

    def __init__(self) -> None:
        self._schemas = SchemaCache()

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        high = Importance.HIGH
        return ConfigDef(
            ConfigKey("fields", Type.LIST, REQUIRED, high, "The fields.", NonEmptyList()),
            ConfigKey(
                "headers", Type.LIST, REQUIRED, high, "The names of the headers, in the same order.", NonEmptyList()
            ),
            ConfigKey("operation", Type.STRING, REQUIRED, high, "move or copy.", OneOf("move", "copy")),
            REPLACE_NULL,
        )

    def configure(self, config: Any) -> None:
        """Apply the settings. Raises ConfigValueError unless there are as many fields as headers."""
        super().configure(config)
        fields, headers = self.settings["fields"], self.settings["headers"]
        if not fields or len(fields) != len(headers):
            raise ConfigValueError(
                "fields", fields, "'fields' config must have the same number of elements as 'headers'"
            )

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with the headers added; with `move`, the fields are removed.

        Raises DataError if the key or value is None, or if its schema lacks a field. Without a schema, the header of a
        missing field is null.
        """
        schema, value = self.operand(record)
        fields, move = self.settings["fields"], self.settings["operation"] == "move"
        pairs = list(zip(fields, self.settings["headers"], strict=True))
        if schema is None:
            given = self.require_map(value)
            added = [Header(header, given.get(field)) for field, header in pairs]
            kept = {name: each for name, each in given.items() if not (move and name in fields)}
            return self.changed(record, None, kept).replace(headers=(*record.headers, *added))
        struct, defaults = self.require_struct(value), self.settings["replace.null.with.default"]
        added = []
        for field, header in pairs:
            place = schema.field(field)
            if place is None:
                raise DataError(f"Field does not exist: {field}")
            added.append(Header(header, field_value(struct, place, defaults), place.schema))
        changed = record.replace(headers=(*record.headers, *added))
        if not move:
            return changed
        rest = [each for each in schema.fields if each.name not in fields]
        smaller = self._schemas.get(schema, lambda old: with_fields(old, [(each.name, each.schema) for each in rest]))
        values = {each.name: field_value(struct, each, defaults) for each in rest}
        return self.changed(changed, smaller, struct_of(smaller, values))


class HeaderFromKey(HeaderFrom):
    """Moves or copies fields of the key of records into headers."""

    part = "key"


class HeaderFromValue(HeaderFrom):
    """Moves or copies fields of the value of records into headers."""

    part = "value"
