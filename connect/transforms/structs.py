"""Builds structs and their schemas from existing structs and schemas, for transforms.

Derived schemas are cached, because many records share a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from ..config import ConfigKey, Importance, Type
from ..data.schema import Field, Schema
from ..data.struct import Struct

_CACHED = 16

REPLACE_NULL: Final = ConfigKey(
    "replace.null.with.default",
    Type.BOOLEAN,
    True,
    Importance.MEDIUM,
    "Whether null fields get the default value of their schema.",
)
"""The transform setting whose value is passed to `field_value` as `defaults`."""


class SchemaCache:
    """A cache of derived schemas, by the identity of the original: the records of a task share few schemas."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Schema, Schema]] = {}

    def get(self, schema: Schema, make: Callable[[Schema], Schema]) -> Schema:
        """Return the schema derived from `schema`; derive it with `make` at the first call."""
        known = self._made.get(id(schema))
        if known is None:
            if len(self._made) >= _CACHED:
                self._made.pop(next(iter(self._made)))
            known = self._made[id(schema)] = schema, make(schema)
        return known[1]


def with_fields(schema: Schema, fields: Iterable[tuple[str, Schema]], optional: bool = False) -> Schema:
    """Return a required (or `optional`) copy of a struct schema with other fields and no default value."""
    numbered = tuple(Field(name, index, each) for index, (name, each) in enumerate(fields))
    return replace(schema, fields=numbered, default=None, optional=optional)


def struct_of(schema: Schema, values: Mapping[str, Any]) -> Struct:
    """Return a struct with these values; the values of other fields are missing."""
    struct = Struct(schema)
    for name, value in values.items():
        struct[name] = value
    return struct


def field_value(struct: Struct, field: Field, defaults: bool = True) -> Any:
    """Return a field's value; with `defaults`, a value of None is replaced with the default of the field's schema."""
    value = struct.values[field.index]
    return field.schema.default if value is None and defaults else value
