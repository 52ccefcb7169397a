"""Encode and decode messages with the generated functions.

This module keeps the compiled functions. It also encodes and decodes data that begins with an int16. In record values
and consumer protocol data, this number is the version. In record keys, it is the record id. Frames and headers are in
`framing.py`.

Decoding accepts any bytes: it returns a message or raises DecodeError, and allocates at most a small multiple of its
input. Decoded messages own their values, except for `records` fields, which are memoryviews of the input.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from .compiler import compile_decoder, compile_encoder, compile_stepwise_decoder, compile_stepwise_encoder
from .compiler_runtime import MAX_ELEMENTS
from .errors import AnswerTooLarge, DecodeError, EncodeError, MalformedTag, UnsupportedVersion
from .schema import Buffer, Message, MessageKind

__all__ = [
    "AnswerTooLarge",
    "DecodeError",
    "EncodeError",
    "MalformedTag",
    "UnknownRecord",
    "UnsupportedVersion",
    "decode",
    "decode_from",
    "decode_in_steps",
    "decode_plain",
    "decode_record_key",
    "decode_record_value",
    "decode_versioned",
    "decoders_of",
    "encode",
    "encode_in_steps",
    "encode_pieces",
    "encode_record_key",
    "encode_record_value",
    "encode_versioned",
    "encoders_of",
    "record_version",
]

M = TypeVar("M", bound=Message)

_INT16: Final = struct.Struct(">h")


class _Versions(dict[int, Any]):
    """The compiled functions of one message class, by version. Each is compiled when it is first used."""

    def __init__(self, cls: type[Message], compile: Any) -> None:
        self.cls = cls
        self.compile = compile

    def __missing__(self, version: int) -> Any:
        function = self[version] = self.compile(self.cls, version)
        return function


class _Classes(dict[type[Message], _Versions]):
    """The compiled functions of all message classes: by class, then by version."""

    def __init__(self, compile: Any) -> None:
        self.compile = compile

    def __missing__(self, cls: type[Message]) -> _Versions:
        versions = self[cls] = _Versions(cls, self.compile)
        return versions


_decoders: Final = _Classes(compile_decoder)
_plain_decoders: Final = _Classes(lambda cls, version: compile_decoder(cls, version, extension=False))
_encoders: Final = _Classes(compile_encoder)
_stepwise_decoders: Final = _Classes(compile_stepwise_decoder)
_stepwise_plain_decoders: Final = _Classes(lambda cls, version: compile_stepwise_decoder(cls, version, extension=False))
_stepwise_encoders: Final = _Classes(compile_stepwise_encoder)


def decoders_of(cls: type[M]) -> Mapping[int, Callable[[Buffer, int, int], tuple[M, int]]]:
    """Return, by version, the compiled functions that `decode_from` calls.

    They raise the same errors, but MalformedTag without a `partial` message. Looking up a version that the class does
    not have raises UnsupportedVersion. A caller on a hot path keeps this mapping and saves the look-up by class.
    """
    return _decoders[cls]


def encoders_of(cls: type[Message]) -> Mapping[int, Callable[[Any], list[Buffer]]]:
    """Return, by version, the compiled functions that `encode_pieces` calls. They raise EncodeError.

    Looking up a version that the class does not have raises UnsupportedVersion. A caller on a hot path keeps this
    mapping and saves the look-up by class.
    """
    return _encoders[cls]


def encode(message: Message, version: int) -> bytes:
    """Return the message's bytes in `version`. Raises EncodeError, UnsupportedVersion."""
    return b"".join(_encoders[type(message)][version](message))


def encode_pieces(message: Message, version: int) -> list[Buffer]:
    """Return the message's bytes in `version` as one or more buffers. Large `records` are separate, uncopied buffers.

    The first buffer is never one of these. Raises EncodeError, UnsupportedVersion.
    """
    pieces: list[Buffer] = _encoders[type(message)][version](message)
    return pieces


def encode_in_steps(message: Message, version: int, max_bytes: int) -> Generator[int, None, list[Buffer]]:
    """Encode like `encode_pieces`, but as a generator that pauses regularly and finally returns the buffers.

    Also raises AnswerTooLarge, as soon as the encoded message, not counting large `records`, exceeds `max_bytes`.
    """
    steps: Generator[int, None, list[Buffer]] = _stepwise_encoders[type(message)][version](message, max_bytes)
    return steps


def decode(cls: type[M], buffer: Buffer, version: int, offset: int = 0, max_elements: int = MAX_ELEMENTS) -> M:
    """Decode one message that fills `buffer` from `offset` to the end. Raises DecodeError, UnsupportedVersion.

    DecodeError is also raised for a message with more than `max_elements` array elements and tagged fields together.
    If only tagged fields of oncelog's wire extension are malformed, raises MalformedTag. Its `partial` is the message
    in which all fields of the extension are left raw, in `unknown_tags`.
    """
    message, end = decode_from(cls, buffer, version, offset, max_elements)
    if end != len(buffer):
        raise DecodeError(f"{cls.__name__} v{version}: {len(buffer) - end} bytes follow the message", end)
    return message


def decode_from(
    cls: type[M], buffer: Buffer, version: int, offset: int = 0, max_elements: int = MAX_ELEMENTS
) -> tuple[M, int]:
    """Decode one message from `offset` on. Return the message and the position after it.

    Raises the same errors as `decode`, but bytes may follow the message.
    """
    try:
        result: tuple[M, int] = _decoders[cls][version](buffer, offset, max_elements)
        return result
    except MalformedTag as error:
        error.partial, _ = decode_plain(cls, buffer, version, offset, max_elements)
        raise


def decode_plain(
    cls: type[M], buffer: Buffer, version: int, offset: int = 0, max_elements: int = MAX_ELEMENTS
) -> tuple[M, int]:
    """Decode like `decode_from`, but leave fields of the extension (tags from 9000 on) raw, in `unknown_tags`."""
    result: tuple[M, int] = _plain_decoders[cls][version](buffer, offset, max_elements)
    return result


def decode_in_steps(
    cls: type[M], buffer: Buffer, version: int, offset: int, max_elements: int, *, extension: bool = True
) -> Generator[int, None, tuple[M, int]]:
    """Decode like `decode_from`, or `decode_plain` if `extension` is false, in a generator that pauses regularly.

    The buffer must not change until the generator ends. MalformedTag is raised without a `partial` message.
    """
    decoders = _stepwise_decoders if extension else _stepwise_plain_decoders
    steps: Generator[int, None, tuple[M, int]] = decoders[cls][version](buffer, offset, max_elements)
    return steps


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """The key of a record that a newer release wrote. It is kept and passed on, but never interpreted."""

    id: int
    key: bytes


def record_version(value: Buffer) -> int:
    """Return the int16 at the beginning of a record value, a record key or versioned data. Raises DecodeError."""
    if len(value) < 2:
        raise DecodeError("the data is too short for a version", 0)
    version: int = _INT16.unpack_from(value)[0]
    return version


def encode_record_key(key: Message) -> bytes:
    """Return the key of an internal topic's record: its int16 id, then its fields. Raises EncodeError."""
    if key.spec.kind is not MessageKind.RECORD_KEY:
        raise EncodeError(f"{type(key).__name__} is not a record key")
    return _INT16.pack(key.spec.key) + encode(key, key.spec.versions.high)


def encode_record_value(value: Message, version: int) -> bytes:
    """Return the value of an internal topic's record: its int16 version, then its fields."""
    return _INT16.pack(version) + encode(value, version)


def decode_record_key(buffer: Buffer, classes: Iterable[type[Message]]) -> Message | UnknownRecord:
    """Decode a record key. Its int16 id selects the class among `classes`. Return UnknownRecord for an unknown id."""
    id = record_version(buffer)
    for cls in classes:
        if cls.spec.key == id:
            return decode(cls, buffer, cls.spec.versions.high, 2)
    return UnknownRecord(id, bytes(buffer))


def decode_record_value(cls: type[M], buffer: Buffer) -> M:
    """Decode a record value in the version that it begins with. Raises UnsupportedVersion for a newer version."""
    return decode(cls, buffer, record_version(buffer), 2)


def encode_versioned(message: Message, version: int) -> bytes:
    """Return versioned data (consumer subscriptions and assignments, markers): its int16 version, then its fields."""
    return _INT16.pack(version) + encode(message, version)


def decode_versioned(cls: type[M], buffer: Buffer, max_elements: int = MAX_ELEMENTS, *, newest: int | None = None) -> M:
    """Decode versioned data that another client may have written.

    Data of a newer version than `newest` (default: the definition's newest) is read as version `newest`, and bytes
    after the fields of that version are ignored, because Kafka appends the fields of new versions at the end. Raises
    DecodeError as `decode_from` does.
    """
    version = min(record_version(buffer), cls.spec.versions.high if newest is None else newest)
    return decode_from(cls, buffer, version, 2, max_elements)[0]
