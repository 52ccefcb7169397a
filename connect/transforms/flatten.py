"""`Flatten`: turns nested structs and dicts into one level of fields, whose names are joined by a delimiter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..api.records import SourceRecord
from ..config import ConfigDef, ConfigKey, Importance, Type
from ..data.schema import Schema, SchemaType
from ..data.struct import Struct
from ..errors import DataError
from .structs import SchemaCache, struct_of, with_fields
from .transformation import PartTransformation


class Flatten(PartTransformation):
    """Turns nested fields into one level of fields, as Kafka Connect's transform does."""

    purpose = "flattening"

    def __init__(self) -> None:
        self._schemas = SchemaCache()

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        return ConfigDef(ConfigKey("delimiter", Type.STRING, ".", Importance.MEDIUM, "Delimiter between the names."))

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with one level of fields. A record whose key or value is None stays unchanged."""
        schema, value = self.operand(record)
        if value is None:
            return record
        if schema is None:
            return self.changed(record, None, dict(self._plain(self.require_map(value), "")))
        struct = self.require_struct(value)
        flat = self._schemas.get(schema, lambda old: with_fields(old, self._fields(old, "", old.optional, old.default)))
        return self.changed(record, flat, struct_of(flat, dict(self._values(schema, struct, ""))))

    def _plain(self, given: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in given.items():
            if isinstance(value, Mapping):
                yield from self._plain(value, f"{prefix}{name}{self.settings['delimiter']}")
            elif isinstance(value, Struct):
                raise DataError("Flatten transformation does not support Struct for record without schemas")
            else:
                yield f"{prefix}{name}", value

    def _fields(
        self, schema: Schema, prefix: str, optional: bool, defaults: Struct | None
    ) -> Iterator[tuple[str, Schema]]:
        """Yield the flat fields of a struct. `optional` and `defaults` come from the structs around it."""
        for field in schema.fields:
            inner = field.schema
            default = inner.default if inner.default is not None or defaults is None else defaults[field.name]
            if inner.type is SchemaType.STRUCT:
                nested = f"{prefix}{field.name}{self.settings['delimiter']}"
                yield from self._fields(inner, nested, optional or inner.optional, default)
            elif inner.type is SchemaType.MAP:
                raise DataError(
                    "Flatten transformation does not support MAP for record with schemas (for field "
                    f"{prefix}{field.name})."
                )
            else:
                yield f"{prefix}{field.name}", replace(inner, optional=optional or inner.optional, default=default)

    def _values(self, schema: Schema, struct: Struct | None, prefix: str) -> Iterator[tuple[str, Any]]:
        for field in schema.fields:
            value = None if struct is None else struct[field.name]
            if field.schema.type is SchemaType.STRUCT:
                yield from self._values(field.schema, value, f"{prefix}{field.name}{self.settings['delimiter']}")
            else:
                yield f"{prefix}{field.name}", value


class Key(Flatten):
    """Flattens the key of records."""

    part = "key"


class Value(Flatten):
    """Flattens the value of records."""

    part = "value"
