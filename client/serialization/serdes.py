"""Serdes without a schema registry: `StringSerde`, `JsonSerde` and `MsgspecSerde`. A serde is serializer and
deserializer in one object.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, Literal

from .protocols import T

try:
    import orjson
except ImportError:  # it is faster, and nothing else
    orjson = None  # type: ignore[assignment]


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

    `default` is called with each object that JSON does not know, and returns a value in its place. JSON has no NaN: it
    is refused, or written as null by orjson.
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

    Written as JSON, or as MessagePack with `format="msgpack"`. Needs msgspec: raises ImportError without it.
    """

    def __init__(self, kind: type[T], format: Literal["json", "msgpack"] = "json") -> None:
        try:
            import msgspec
        except ImportError:
            raise ImportError("MsgspecSerde needs msgspec: pip install msgspec") from None
        if format not in ("json", "msgpack"):
            raise ValueError(f"format {format!r} is not one of json, msgpack")
        self._encode: Callable[[Any], bytes]
        self._decode: Callable[[bytes], T]
        if format == "json":
            self._encode, self._decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(kind).decode
        else:
            self._encode, self._decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(kind).decode

    def serialize(self, topic: str, value: T) -> bytes:
        """Return the object's bytes."""
        return self._encode(value)

    def deserialize(self, topic: str, data: bytes) -> T:
        """Return the object; raises msgspec.ValidationError for data of another type."""
        return self._decode(data)


def json_bytes(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return a value as JSON in UTF-8."""
    if orjson is not None:
        return orjson.dumps(value, default)
    text = json.dumps(value, default=default, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def json_value(data: bytes) -> Any:
    """Return the value that JSON in UTF-8 describes."""
    return orjson.loads(data) if orjson is not None else json.loads(data)
