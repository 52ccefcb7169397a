"""`Struct`, a value with named fields, and `check`, which tests whether a value fits its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import DataError
from .logical import python_type
from .schema import INTEGER_BITS, Field, Schema, SchemaType


class Struct:
    """The values of a struct schema's fields: `Struct(schema, id=1, name="a")`. `struct["id"]` reads a field.

    Raises DataError for a field that the schema lacks and for a value that does not fit its field's schema.
    """

    __slots__ = ("schema", "values")

    def __init__(self, schema: Schema, /, **values: Any) -> None:
        if schema.type is not SchemaType.STRUCT:
            raise DataError(f"a Struct needs a struct schema, not {schema.type.value}")
        self.schema = schema
        self.values: list[Any] = [None] * len(schema.fields)
        for name, value in values.items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        place = self._field(name)
        check(place.schema, value, name)
        self.values[place.index] = value

    def __getitem__(self, name: str) -> Any:
        """Return a field's value, or the default of the field's schema if the value is missing."""
        place = self._field(name)
        value = self.values[place.index]
        return place.schema.default if value is None else value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.schema == other.schema and self.values == other.values

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (f"{each.name}={self.values[each.index]!r}" for each in self.schema.fields)
        return f"Struct({', '.join(shown)})"

    def check(self, where: str = "struct") -> None:
        """Raise DataError, which names the field, if a value is missing or does not fit its schema."""
        for each in self.schema.fields:
            check(each.schema, self.values[each.index], f"{where}.{each.name}")

    def _field(self, name: str) -> Field:
        place = self.schema.field(name)
        if place is None:
            raise DataError(f"{name} is not a valid field name")
        return place


def check(schema: Schema | None, value: Any, where: str = "value") -> None:
    """Raise DataError, which names `where`, if a value does not fit its schema. Without a schema, every value fits."""
    if schema is None:
        return
    if value is None:
        if not schema.optional and schema.default is None:
            raise DataError(f"{where} is null, and its schema {_name(schema)} is not optional: give a value")
        return
    logical = python_type(schema.name)
    if logical is not None:
        if not isinstance(value, logical):
            raise _misfit(schema, value, where, logical.__name__)
        return
    if schema.type in INTEGER_BITS:
        bits = INTEGER_BITS[schema.type]
        if isinstance(value, bool) or not isinstance(value, int):
            raise _misfit(schema, value, where, "int")
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise DataError(f"{where} is {value}, which does not fit into {schema.type.value}")
    elif schema.type is SchemaType.ARRAY:
        if not isinstance(value, list | tuple):
            raise _misfit(schema, value, where, "list")
        for index, each in enumerate(value):
            check(schema.value_schema, each, f"{where}[{index}]")
    elif schema.type is SchemaType.MAP:
        if not isinstance(value, Mapping):
            raise _misfit(schema, value, where, "dict")
        for key, each in value.items():
            check(schema.key_schema, key, f"{where}: key {key!r}")
            check(schema.value_schema, each, f"{where}[{key!r}]")
    elif schema.type is SchemaType.STRUCT:
        if not isinstance(value, Struct):
            raise _misfit(schema, value, where, "Struct")
        if value.schema is not schema and value.schema != schema:
            raise DataError(f"{where} is a struct whose schema differs from {_name(schema)}")
        value.check(where)
    else:
        wanted = _PYTHON_TYPES[schema.type]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise _misfit(schema, value, where, schema.type.value)


_PYTHON_TYPES: Final[dict[SchemaType, type | tuple[type, ...]]] = {
    SchemaType.FLOAT32: (float, int),
    SchemaType.FLOAT64: (float, int),
    SchemaType.BOOLEAN: bool,
    SchemaType.STRING: str,
    SchemaType.BYTES: (bytes, bytearray, memoryview),
}


def _name(schema: Schema) -> str:
    return f"{schema.type.value} {schema.name}" if schema.name else schema.type.value


def _misfit(schema: Schema, value: object, where: str, wanted: str) -> DataError:
    return DataError(f"{where} is a {type(value).__name__}, and its schema {_name(schema)} needs {wanted}")
