"""Compare our encoding with that of kio: convert our messages to kio's objects of the same version.

kio's definitions are generated from Kafka's files, independently of ours. kio represents some numbers by richer types
(error codes, durations, points in time), which cannot hold every value of the wire format. Therefore `to_kio` first
changes such values of our message to values that kio can hold.
"""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import UnionType
from typing import Any, cast, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_writer
from kio.static.constants import EntityType
from oncelog.protocol.formats import EXTENSION_TAGS
from oncelog.protocol.schema import FieldSpec, Message, MessageKind, Struct

UNKNOWN_TO_KIO = {
    "group_log": "kio has no coordinator records",
    "metadata_log": "this project's own records",
    "transaction_log": "kio has no coordinator records",
}

_KINDS = {
    MessageKind.REQUEST: EntityType.request,
    MessageKind.RESPONSE: EntityType.response,
    MessageKind.HEADER: EntityType.header,
    MessageKind.DATA: EntityType.data,
}
_ERROR_CODES = sorted(int(code) for code in ErrorCode)


def kio_class(cls: type[Message], version: int) -> type[Any] | None:
    """Return kio's class of one version, or None for the modules that kio does not have."""
    if cls.__module__.rpartition(".")[2] in UNKNOWN_TO_KIO:
        return None
    name = re.sub(r"(Request|Response)$", "", cls.__name__) if cls.spec.kind is not MessageKind.HEADER else cls.__name__
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    paths = cast(Mapping[EntityType, str], schema_name_map[snake][version])
    module, _, attribute = paths[_KINDS[cls.spec.kind]].partition(":")
    found: type[Any] = getattr(__import__(module, fromlist=[attribute]), attribute)
    return found


def to_kio(message: Struct, version: int, cls: type[Any]) -> Any:
    """Return kio's object with our values. Values of our message that kio cannot hold are changed."""
    specs = [spec for spec in message.fields if version in spec.versions and not is_extension(spec)]
    theirs = dataclasses.fields(cls)
    assert [plain(spec.name) for spec in specs] == [plain(field.name) for field in theirs], cls
    values = {}
    for spec, field in zip(specs, theirs, strict=True):
        value, values[field.name] = _value(getattr(message, spec.name), version, field)
        setattr(message, spec.name, value)
    return cls(**values)


def kio_bytes(entity: Any) -> bytes:
    """Return kio's encoding of an object."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def is_extension(spec: FieldSpec) -> bool:
    """Return whether a field is a tagged field of the extension, which kio does not know."""
    return spec.tag is not None and spec.tag >= EXTENSION_TAGS


def plain(name: str) -> str:
    """Return a field's name without the parts that kio drops or writes differently."""
    return re.sub(r"_ms$", "", name).replace("_", "").rstrip("_")


def _value(value: Any, version: int, field: dataclasses.Field[Any]) -> tuple[Any, Any]:
    if isinstance(value, list):
        pairs = [_one(item, version, field) for item in value]
        return [ours for ours, _ in pairs], tuple(theirs for _, theirs in pairs)
    return _one(value, version, field)


def _one(value: Any, version: int, field: dataclasses.Field[Any]) -> tuple[Any, Any]:
    if isinstance(value, Struct):
        return value, to_kio(value, version, _element(field.type))
    if value is None:
        return None, None
    match field.metadata["kafka_type"]:
        case "error_code":
            code = _ERROR_CODES[value % len(_ERROR_CODES)]
            return code, ErrorCode(code)
        case "timedelta_i32":
            return value, timedelta(milliseconds=value)
        case "timedelta_i64":
            value %= 10**12
            return value, timedelta(milliseconds=value)
        case "datetime_i64":
            value %= 10**12
            return value, datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=value)
        case "uuid":
            return value, UUID(bytes=value) if any(value) else field_default(field)
    return value, value


def field_default(field: dataclasses.Field[Any]) -> Any:
    """Return kio's default of a field. It is None for a zero uuid, unless a tagged field has another default."""
    return None if field.default is dataclasses.MISSING else field.default


def _element(annotation: Any) -> Any:
    """Return the class inside `X`, `X | None`, `tuple[X, ...]` and combinations of them."""
    if get_origin(annotation) in (tuple, UnionType):
        return next(_element(part) for part in get_args(annotation) if part not in (type(None), ...))
    return annotation
