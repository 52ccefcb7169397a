"""Builds structs and their schemas from others, as transforms do; schemas are kept, as records share them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..data.schema import Field, Schema
from ..data.struct import Struct

_CACHED = 16


class SchemaCache:
    """Schemas that were made from others, by the identity of those: records of a task share few schemas."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Schema, Schema]] = {}

    def get(self, schema: Schema, make: Callable[[Schema], Schema]) -> Schema:
        """Return what was made from a schema, or make it."""
        known = self._made.get(id(schema))
        if known is None:
            if len(self._made) >= _CACHED:
                self._made.pop(next(iter(self._made)))
            known = self._made[id(schema)] = schema, make(schema)
        return known[1]


def with_fields(schema: Schema, fields: Iterable[tuple[str, Schema]]) -> Schema:
    """Return a struct schema with other fields, and else the same."""
    numbered = tuple(Field(name, index, each) for index, (name, each) in enumerate(fields))
    return replace(schema, fields=numbered, default=None)


def struct_of(schema: Schema, values: Mapping[str, Any]) -> Struct:
    """Return a struct; fields that are not named are missing."""
    struct = Struct(schema)
    for name, value in values.items():
        struct[name] = value
    return struct


def field_value(struct: Struct, field: Field, defaults: bool = True) -> Any:
    """Return a field's value, or its default where that replaces null."""
    value = struct.values[field.index]
    return field.schema.default if value is None and defaults else value
