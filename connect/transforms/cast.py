"""`Cast`: changes the type of fields, or of the whole key or value."""

from __future__ import annotations

import base64
import datetime
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ..api.records import SourceRecord
from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, Type
from ..config.types import parse
from ..data import logical
from ..data.floats import shortest_float32
from ..data.logical import python_type
from ..data.schema import INTEGER_BITS, Schema, SchemaType
from ..data.struct import Struct
from ..data.text import header_text
from ..errors import ConfigValueError, DataError
from .structs import REPLACE_NULL, SchemaCache, field_value, struct_of, with_fields
from .transformation import PartTransformation

_TARGETS: Final = {
    "int8": SchemaType.INT8,
    "int16": SchemaType.INT16,
    "int32": SchemaType.INT32,
    "int64": SchemaType.INT64,
    "float32": SchemaType.FLOAT32,
    "float64": SchemaType.FLOAT64,
    "boolean": SchemaType.BOOLEAN,
    "string": SchemaType.STRING,
}
_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,40}")
_NAMES: Final = {
    datetime.datetime: logical.timestamp_schema(),
    datetime.date: logical.date_schema(),
    datetime.time: logical.time_schema(),
}


def _check_spec(name: str, spec: list[str] | None) -> None:
    if not spec:
        raise ConfigValueError(name, spec, "Must specify at least one field to cast.")
    targets = [text.strip().rpartition(":") for text in spec]
    for _, _, target in targets:
        if target.strip().lower() not in _TARGETS:
            raise ConfigValueError(name, spec, f"Invalid cast type {target!r}: use one of {', '.join(_TARGETS)}")
    if len(spec) > 1 and not all(colon for _, colon, _ in targets):
        raise ConfigValueError(
            name,
            spec,
            "a type without a field casts the whole key or value, so it must be the only entry. Remove the other "
            "entries, or name the field of each type (field:type)",
        )


class Cast(PartTransformation):
    """Converts fields, or the whole key or value, to other types, as Kafka Connect's transform does."""

    purpose = "cast types"

    def __init__(self) -> None:
        self._schemas = SchemaCache()

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        return ConfigDef(
            ConfigKey(
                "spec",
                Type.LIST,
                REQUIRED,
                Importance.HIGH,
                "Fields with their new types (field:type,field2:type), or one type for the whole key or value.",
                _check_spec,
            ),
            REPLACE_NULL,
        )

    def configure(self, config: Any) -> None:
        """Apply the settings. Raises ConfigValueError for an unknown type."""
        super().configure(config)
        self._fields: dict[str, SchemaType] = {}
        self._whole: SchemaType | None = None
        spec = self.settings["spec"]
        for text in spec:
            field, colon, target = text.strip().rpartition(":")
            kind = _TARGETS[target.strip().lower()]
            if colon:
                self._fields[field.strip()] = kind
            else:
                self._whole = kind

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with values of the new types. Raises DataError for a value that cannot be cast."""
        schema, value = self.operand(record)
        if value is None:
            return record
        if self._whole is not None:
            whole = self._whole
            target = None if schema is None else self._schemas.get(schema, lambda old: _whole_schema(old, whole))
            return self.changed(record, target, cast_value(value, whole, schema))
        if schema is None:
            given = self.require_map(value)
            cast = {name: cast_value(given.get(name), kind) for name, kind in self._fields.items()}
            return self.changed(record, None, {**given, **cast})
        row, defaults = self.require_struct(value), self.settings["replace.null.with.default"]
        target = self._schemas.get(schema, self._retyped_struct)
        values = {}
        for field in schema.fields:
            each = field_value(row, field, defaults)
            kind = self._fields.get(field.name)
            values[field.name] = each if kind is None else cast_value(each, kind, field.schema)
        return self.changed(record, target, struct_of(target, values))

    def _retyped_struct(self, schema: Schema) -> Schema:
        fields = []
        for field in schema.fields:
            kind = self._fields.get(field.name)
            fields.append((field.name, field.schema if kind is None else _retyped(field.schema, kind)))
        return with_fields(schema, fields, schema.optional)


def _retyped(schema: Schema, kind: SchemaType) -> Schema:
    default = None if schema.default is None else cast_value(schema.default, kind, schema)
    return Schema(kind, optional=schema.optional, default=default)


def _whole_schema(schema: Schema, kind: SchemaType) -> Schema:
    """Return the schema of a whole value that is cast. It keeps its name unless the name is a logical type's."""
    cast = _retyped(schema, kind)
    if python_type(schema.name) is not None:
        return cast
    return replace(cast, name=schema.name, version=schema.version, doc=schema.doc, parameters=schema.parameters)


def cast_value(value: Any, kind: SchemaType, schema: Schema | None = None) -> Any:
    """Return a value as another type. Numbers beyond an integer type wrap around as in Java. Raises DataError."""
    if value is None:
        return None
    if isinstance(value, Mapping | list | tuple | Struct) or (
        isinstance(value, bytes) and kind is not SchemaType.STRING
    ):
        raise DataError(f"Cast transformation does not support casting a {type(value).__name__} to {kind.value}")
    if kind is SchemaType.STRING:
        return base64.b64encode(value).decode() if isinstance(value, bytes) else header_text(value, schema)
    known = _NAMES.get(type(value))
    if known is not None:
        value = logical.encode(known, value)
    try:
        if kind in INTEGER_BITS:
            return _whole(value, INTEGER_BITS[kind])
        if kind is SchemaType.BOOLEAN:
            return value.lower() == "true" if isinstance(value, str) else _whole(value, 64) != 0
        number = _real(value)
        return shortest_float32(number) if kind is SchemaType.FLOAT32 else number
    except (ConfigValueError, ValueError, ArithmeticError):
        raise DataError(
            f"Value ({value}) is out of range or is not a number for the requested type {kind.value}"
        ) from None


def _real(value: Any) -> float:
    return float(parse("", value, Type.DOUBLE)) if isinstance(value, str) else float(value)


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, str):
        if not _DIGITS.fullmatch(value):
            raise ValueError(value)
        parsed = int(value)
        if not -(2 ** (bits - 1)) <= parsed < 2 ** (bits - 1):
            raise ValueError(value)
        return parsed
    if isinstance(value, float):  # as Java's cast: NaN becomes 0, a number beyond 32 or 64 bits the nearest one
        limit = 2 ** (max(bits, 32) - 1)
        value = max(-limit, min(limit - 1, value)) if value == value else 0
    return wrapped(int(value), bits)


def wrapped(number: int, bits: int) -> int:
    """Return the signed number that the lowest `bits` bits of an integer represent, as Java's casts do."""
    size = 1 << bits
    rest = number % size
    return rest - size if rest >= size // 2 else rest


class Key(Cast):
    """Converts types in the key of records."""

    part = "key"


class Value(Cast):
    """Converts types in the value of records."""

    part = "value"
