"""Converts values to and from JSON according to their schemas, as Kafka Connect's JsonConverter does."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ..data import logical
from ..data.floats import shortest_float32
from ..data.schema import INTEGER_BITS, Schema, SchemaType
from ..data.struct import Struct, check
from ..errors import DataError


def value_to_json(schema: Schema | None, value: Any, numeric_decimals: bool = False, defaults: bool = True) -> Any:
    """Return a value as Python data that JSON can represent; bytes become base64.

    With `defaults`, the schema's default replaces null. With `numeric_decimals`, decimals stay numbers. Raises
    DataError if the value does not fit its schema.
    """
    if schema is None:
        return _plain(value)
    if value is None:
        if schema.default is not None and defaults:
            return value_to_json(schema, schema.default, numeric_decimals, defaults)
        if schema.optional:
            return None
        raise DataError("Conversion error: null value for field that is required and has no default value")
    if logical.python_type(schema.name) is not None:
        check(schema, value)
        if schema.name == logical.DECIMAL and numeric_decimals:
            return value
        encoded = logical.encode(schema, value)
        return base64.b64encode(encoded).decode() if isinstance(encoded, bytes) else encoded
    match schema.type:
        case SchemaType.BYTES:
            check(schema, value)
            return base64.b64encode(value).decode()
        case SchemaType.ARRAY if isinstance(value, list | tuple):
            return [value_to_json(schema.value_schema, each, numeric_decimals, defaults) for each in value]
        case SchemaType.MAP if isinstance(value, Mapping):
            assert schema.key_schema is not None
            pairs = [
                (
                    value_to_json(schema.key_schema, key, numeric_decimals, defaults),
                    value_to_json(schema.value_schema, each, numeric_decimals, defaults),
                )
                for key, each in value.items()
            ]
            return dict(pairs) if schema.key_schema.type is SchemaType.STRING else [list(pair) for pair in pairs]
        case SchemaType.STRUCT if isinstance(value, Struct):
            if value.schema is not schema and value.schema != schema:
                raise DataError("Mismatching schema.")
            return {
                each.name: value_to_json(each.schema, value.values[each.index], numeric_decimals, defaults)
                for each in schema.fields
            }
    check(schema, value)
    if schema.type is SchemaType.FLOAT32:
        return shortest_float32(float(value))
    return float(value) if schema.type is SchemaType.FLOAT64 else value


def value_from_json(schema: Schema | None, json_value: Any, defaults: bool = True) -> Any:
    """Return the value that the JSON data represents. Raises DataError if the data does not fit the schema."""
    if schema is None:
        return json_value
    if json_value is None:
        if schema.default is not None and defaults:
            return schema.default
        if schema.optional:
            return None
        raise DataError(f"Invalid null value for required {schema.type.name} field")
    if (
        schema.name == logical.DECIMAL
        and isinstance(json_value, int | float | Decimal)
        and not isinstance(json_value, bool)
    ):
        return Decimal(str(json_value))
    match schema.type:
        case SchemaType.BYTES:
            data = _from_base64(json_value)
            return logical.decode(schema, data) if logical.python_type(schema.name) else data
        case SchemaType.ARRAY if isinstance(json_value, list):
            return [value_from_json(schema.value_schema, each, defaults) for each in json_value]
        case SchemaType.MAP:
            return _map(schema, json_value, defaults)
        case SchemaType.STRUCT if isinstance(json_value, dict):
            struct = Struct(schema)
            for each in schema.fields:
                struct.values[each.index] = value_from_json(each.schema, json_value.get(each.name), defaults)
            return struct
    if schema.type in INTEGER_BITS and logical.python_type(schema.name) is not None:
        if isinstance(json_value, bool) or not isinstance(json_value, int):
            raise DataError(f"Invalid type for {schema.name}, the underlying representation should be integer")
        return logical.decode(schema, json_value)
    if schema.type in (SchemaType.FLOAT32, SchemaType.FLOAT64) and isinstance(json_value, int | Decimal):
        json_value = float(json_value)
    check(schema, json_value)
    return json_value


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str() | Decimal():
            return value
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case list() | tuple():
            return [_plain(each) for each in value]
        case Mapping():
            if all(isinstance(key, str) for key in value):
                return {key: _plain(each) for key, each in value.items()}
            return [[_plain(key), _plain(each)] for key, each in value.items()]
        case Struct():
            return value_to_json(value.schema, value)
    raise DataError(f"a {type(value).__name__} without a schema cannot be written as JSON: give the record a schema")


def _map(schema: Schema, json_value: Any, defaults: bool) -> dict[Any, Any]:
    assert schema.key_schema is not None
    if schema.key_schema.type is SchemaType.STRING:
        if not isinstance(json_value, dict):
            raise DataError("Maps with string fields should be encoded as JSON objects")
        return {key: value_from_json(schema.value_schema, each, defaults) for key, each in json_value.items()}
    if not isinstance(json_value, list):
        raise DataError("Maps with non-string fields should be encoded as JSON array of tuples")
    pairs = {}
    for entry in json_value:
        if not isinstance(entry, list) or len(entry) != 2:
            raise DataError("Found invalid map entry instead of an array of two elements")
        key = value_from_json(schema.key_schema, entry[0], defaults)
        pairs[key] = value_from_json(schema.value_schema, entry[1], defaults)
    return pairs


def _from_base64(json_value: Any) -> bytes:
    if not isinstance(json_value, str):
        raise DataError("Invalid bytes field")
    try:
        return base64.b64decode(json_value, validate=True)
    except binascii.Error:
        raise DataError("Invalid bytes field") from None
