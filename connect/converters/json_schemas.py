"""Converts schemas to and from JSON, as Kafka Connect's JsonConverter does: `{"type":"int32","optional":false}`."""

from __future__ import annotations

from typing import Any, Final

from ..data.schema import Schema, SchemaType, array, mapping, struct
from ..errors import DataError, SchemaError
from .json_values import value_from_json, value_to_json

_TYPES: Final = {kind.value: kind for kind in SchemaType}


def schema_to_json(
    schema: Schema | None, numeric_decimals: bool = False, defaults: bool = True
) -> dict[str, Any] | None:
    """Return the JSON object of a schema; None for no schema.

    The object includes the schema's default value. With `numeric_decimals`, decimals in this value are numbers. With
    `defaults`, nulls in this value, for example null fields, are written as the defaults of their own schemas.
    """
    if schema is None:
        return None
    answer: dict[str, Any] = {"type": schema.type.value}
    match schema.type:
        case SchemaType.ARRAY:
            answer["items"] = schema_to_json(schema.value_schema, numeric_decimals, defaults)
        case SchemaType.MAP:
            answer["keys"] = schema_to_json(schema.key_schema, numeric_decimals, defaults)
            answer["values"] = schema_to_json(schema.value_schema, numeric_decimals, defaults)
        case SchemaType.STRUCT:
            answer["fields"] = [
                {**(schema_to_json(each.schema, numeric_decimals, defaults) or {}), "field": each.name}
                for each in schema.fields
            ]
    answer["optional"] = schema.optional
    if schema.name is not None:
        answer["name"] = schema.name
    if schema.version is not None:
        answer["version"] = schema.version
    if schema.doc is not None:
        answer["doc"] = schema.doc
    if schema.parameters:
        answer["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        answer["default"] = value_to_json(schema, schema.default, numeric_decimals, defaults)
    return answer


def schema_from_json(json_schema: Any, defaults: bool = True) -> Schema | None:
    """Return the schema that a JSON object describes. Raises DataError. `defaults` is as in `schema_to_json`."""
    if json_schema is None:
        return None
    if not isinstance(json_schema, dict) or not isinstance(json_schema.get("type"), str):
        raise DataError("Schema must contain 'type' field")
    kind = _TYPES.get(json_schema["type"])
    if kind is None:
        raise DataError(f"Unknown schema type: {json_schema['type']}")
    attributes = _attributes(json_schema)
    try:
        match kind:
            case SchemaType.ARRAY:
                schema = array(
                    _inner(json_schema, "items", "Array schema did not specify the element type", defaults),
                    **attributes,
                )
            case SchemaType.MAP:
                keys = _inner(json_schema, "keys", "Map schema did not specify the key type", defaults)
                values = _inner(json_schema, "values", "Map schema did not specify the value type", defaults)
                schema = mapping(keys, values, **attributes)
            case SchemaType.STRUCT:
                schema = struct(_fields(json_schema, defaults), **attributes)
            case _:
                schema = Schema(kind, **attributes)
        if "default" in json_schema:
            default = value_from_json(schema, json_schema["default"], defaults)
            schema = Schema(**{**schema.__dict__, "default": default}) if default is not None else schema
    except SchemaError as error:
        raise DataError(str(error)) from None
    return schema


def _attributes(json_schema: dict[str, Any]) -> dict[str, Any]:
    kinds = {"name": str, "version": int, "doc": str}
    attributes: dict[str, Any] = {
        name: json_schema[name] for name, kind in kinds.items() if isinstance(json_schema.get(name), kind)
    }
    attributes["optional"] = json_schema.get("optional") is True
    parameters = json_schema.get("parameters")
    if isinstance(parameters, dict):
        if not all(isinstance(value, str) for value in parameters.values()):
            raise DataError("Schema parameters must have string values.")
        attributes["parameters"] = parameters
    return attributes


def _inner(json_schema: dict[str, Any], name: str, problem: str, defaults: bool) -> Schema:
    schema = schema_from_json(json_schema.get(name), defaults)
    if schema is None:
        raise DataError(problem)
    return schema


def _fields(json_schema: dict[str, Any], defaults: bool) -> list[tuple[str, Schema]]:
    fields = json_schema.get("fields")
    if not isinstance(fields, list):
        raise DataError('Struct schema\'s "fields" argument is not an array.')
    pairs = []
    for each in fields:
        if not isinstance(each, dict) or not isinstance(each.get("field"), str):
            raise DataError("Struct schema's field name not specified properly")
        schema = schema_from_json(each, defaults)
        assert schema is not None
        pairs.append((each["field"], schema))
    return pairs
