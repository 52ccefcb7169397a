"""Serdes without a schema registry: `StringSerde`, `JsonSerde` and `MsgspecSerde`. A serde is a serializer and a
deserializer in one object.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import uuid
from collections.abc import Callable
from typing import Any, Final, Generic, Literal

from .protocols import T

try:
    import orjson
except ImportError:  # orjson is optional: it only makes JSON faster
    orjson = None  # type: ignore[assignment]


NULL: Final = b"null"
"""The text that libraries write in place of NaN or an infinite number. It may also stand for a real null, or be part of
a string.
"""


class StringSerde:
    """Strings in UTF-8, or in another encoding. Bytes that are not in the encoding raise DeserializationError."""

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)  # an unknown encoding raises LookupError here
        self._encoding = encoding

    def serialize(self, topic: str, value: str) -> bytes:
        """Return the string's bytes."""
        if not isinstance(value, str):
            raise TypeError(f"expected str, not {type(value).__name__}")
        return value.encode(self._encoding)

    def deserialize(self, topic: str, data: bytes) -> str:
        """Return the string."""
        return data.decode(self._encoding)


class JsonSerde:
    """JSON values: dicts, lists, strings, numbers, bools. Uses orjson if it is installed.

    `default` is called with each object that JSON cannot represent, and returns a value in its place. Both methods
    raise ValueError for NaN and infinite numbers, which JSON does not have.
    """

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        self._default = default

    def serialize(self, topic: str, value: Any) -> bytes:
        """Return the value as JSON, in UTF-8 and without spaces."""
        return json_bytes(value, self._default)

    def deserialize(self, topic: str, data: bytes) -> Any:
        """Return the value."""
        return json_value(data)


class MsgspecSerde(Generic[T]):
    """Objects of any type that msgspec knows, checked when they are read: `MsgspecSerde(Order)`.

    Objects are written as JSON or, with `format="msgpack"`, as MessagePack. Raises ImportError if msgspec is not
    installed.
    """

    def __init__(self, kind: type[T], format: Literal["json", "msgpack"] = "json") -> None:
        try:
            import msgspec
        except ImportError:
            raise ImportError("MsgspecSerde needs msgspec: pip install msgspec") from None
        if format not in ("json", "msgpack"):
            raise ValueError(f"format {format!r} is not one of json, msgpack")
        self._is_json = format == "json"
        self._to_builtins = msgspec.to_builtins
        self._encode: Callable[[Any], bytes]
        self._decode: Callable[[bytes], T]
        if format == "json":
            self._encode, self._decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(kind).decode
        else:
            self._encode, self._decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(kind).decode

    def serialize(self, topic: str, value: T) -> bytes:
        """Return the object's bytes. Raises ValueError for NaN and infinite numbers in JSON."""
        data = self._encode(value)
        if self._is_json and NULL in data:
            _refuse_nan(self._to_builtins(value), str)
        return data

    def deserialize(self, topic: str, data: bytes) -> T:
        """Return the object. Raises msgspec.ValidationError for data of another type."""
        return self._decode(data)


def json_bytes(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return a value as JSON in UTF-8. Raises ValueError for NaN and infinite numbers."""
    if orjson is not None:
        data = orjson.dumps(value, default)
        if NULL in data:
            _refuse_nan(value, _as_orjson(default))
        return data
    text = json.dumps(value, default=default, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def _refuse_nan(value: Any, default: Callable[[Any], Any]) -> None:
    """Raise ValueError if a value contains a NaN or infinite number. orjson and msgspec write such a number as null,
    which cannot be read as a number.
    """
    json.dumps(value, default=default, allow_nan=False, skipkeys=True)


def _as_orjson(default: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Return a function for the json module that accepts the same objects as orjson. All others go to `default`."""

    def known(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if isinstance(value, enum.Enum):
            return value.value
        if isinstance(value, datetime.date | datetime.time | uuid.UUID):  # a datetime is a date
            return None
        return None if default is None else default(value)

    return known


def json_value(data: bytes) -> Any:
    """Return the value parsed from JSON in UTF-8. Raises ValueError for data that is not JSON in UTF-8."""
    if orjson is not None:
        return orjson.loads(data)
    text = data.decode()
    value = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    if "\\u" in text:
        json_bytes(value)  # refuses half of a surrogate pair, as orjson does
    return value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)
