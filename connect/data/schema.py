"""`Schema`: the type of a value, with Kafka Connect's names of types.

A schema is immutable and hashable. Two schemas with equal content are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, Final

from ..errors import SchemaError


class SchemaType(Enum):
    """The types of values, with the names that Kafka Connect's JSON uses."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"

    @property
    def is_primitive(self) -> bool:
        """Whether values of the type contain no other values."""
        return self not in (SchemaType.ARRAY, SchemaType.MAP, SchemaType.STRUCT)


INTEGER_BITS: Final = {SchemaType.INT8: 8, SchemaType.INT16: 16, SchemaType.INT32: 32, SchemaType.INT64: 64}


@dataclass(frozen=True)
class Field:
    """A field of a struct: its name, its index in the struct and its schema."""

    name: str
    index: int
    schema: Schema


@dataclass(frozen=True)
class Schema:
    """The type of values. `name` identifies a meaning, such as a logical type, and `parameters` are its details.

    An array has a `value_schema`, a map has a `value_schema` and a `key_schema`, and a struct has `fields`. `default`
    replaces a missing value.
    """

    type: SchemaType
    optional: bool = False
    default: Any = None
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None

    def __post_init__(self) -> None:
        """Raise SchemaError for a container without the schemas of its contents, and for a duplicate field."""
        if self.type in (SchemaType.ARRAY, SchemaType.MAP) and self.value_schema is None:
            raise SchemaError(f"a schema of type {self.type.value} needs a value_schema")
        if self.type is SchemaType.MAP and self.key_schema is None:
            raise SchemaError("a schema of type map needs a key_schema")
        names = [each.name for each in self.fields]
        if len(set(names)) < len(names):
            raise SchemaError(f"struct {self.name or ''} has a field twice: {', '.join(names)}")

    def __hash__(self) -> int:
        return hash((self.type, self.optional, self.name, self.version, self.fields, self.key_schema))

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {each.name: each for each in self.fields}

    def field(self, name: str) -> Field | None:
        """Return the struct's field with this name, or None."""
        return self._by_name.get(name)

    def as_optional(self) -> Schema:
        """Return this schema with `optional` set: values may be None."""
        return self if self.optional else replace(self, optional=True)


INT8: Final = Schema(SchemaType.INT8)
INT16: Final = Schema(SchemaType.INT16)
INT32: Final = Schema(SchemaType.INT32)
INT64: Final = Schema(SchemaType.INT64)
FLOAT32: Final = Schema(SchemaType.FLOAT32)
FLOAT64: Final = Schema(SchemaType.FLOAT64)
BOOLEAN: Final = Schema(SchemaType.BOOLEAN)
STRING: Final = Schema(SchemaType.STRING)
BYTES: Final = Schema(SchemaType.BYTES)
OPTIONAL_STRING: Final = Schema(SchemaType.STRING, optional=True)
OPTIONAL_BYTES: Final = Schema(SchemaType.BYTES, optional=True)


def array(values: Schema, **attributes: Any) -> Schema:
    """Return the schema of a list whose elements have the schema `values`."""
    return Schema(SchemaType.ARRAY, value_schema=values, **attributes)


def mapping(keys: Schema, values: Schema, **attributes: Any) -> Schema:
    """Return the schema of a dict with these schemas of keys and values."""
    return Schema(SchemaType.MAP, key_schema=keys, value_schema=values, **attributes)


def struct(fields: Mapping[str, Schema] | Iterable[tuple[str, Schema]], **attributes: Any) -> Schema:
    """Return the schema of a struct with these fields, in this order."""
    pairs = fields.items() if isinstance(fields, Mapping) else fields
    numbered = tuple(Field(name, index, schema) for index, (name, schema) in enumerate(pairs))
    return Schema(SchemaType.STRUCT, fields=numbered, **attributes)
