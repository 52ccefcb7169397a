"""Provide the functions that generated code calls in rare cases: long varints, unknown tags, failures.

These cases are too rare to be worth inlining. The emitted functions find these names in DECODE_ENVIRONMENT and
ENCODE_ENVIRONMENT.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from construct import ConstructError  # type: ignore[import-untyped]

from .errors import AnswerTooLarge, DecodeError, EncodeError, MalformedTag
from .formats import format_of
from .primitives import MAX_LENGTH, uvarint
from .schema import Buffer, Message, UnknownTags

MAX_ELEMENTS: Final = 1 << 20
"""The default limit of array elements (structs, strings and numbers alike) and tagged fields in one message.

A struct of three bytes on the wire becomes an object of about a hundred bytes, and a number of four bytes an object of
forty. Without this limit, one frame of the largest size that a broker accepts could fill the broker's memory.
"""

MAX_TAGS: Final = 1000
"""Maximum number of tagged fields in one section, because a section is read without a pause.

No message of Kafka defines as many as 100.
"""

STEP: Final = 500
"""Array elements between two pauses of stepwise encoding or decoding: well under a millisecond of work."""


def long_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint whose first byte is `first`. Return the value and the position after it."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            return value, position
    raise DecodeError("varint of more than 32 bits", position)


def unknown_tags(buffer: Buffer, position: int, end: int, path: str, left: int) -> tuple[UnknownTags, int, int]:
    """Read a section of tagged fields of a struct that defines no tagged fields in this version. Raises DecodeError.

    `left` is the number of elements that the message may still contain. Return the fields, the position after the
    section, and the reduced `left`.
    """
    count, position = _uvarint(buffer, position)
    if count > left:
        raise DecodeError(f"{path}: too many elements in one message", position)
    if count > MAX_TAGS:
        raise DecodeError(f"{path}: too many tagged fields", position)
    tags = []
    last = -1
    for _ in range(count):
        tag, position = _uvarint(buffer, position)
        size, position = _uvarint(buffer, position)
        if not last < tag <= MAX_LENGTH:
            raise DecodeError(f"{path}: tags out of order", position)
        if size > end - position:
            raise DecodeError(f"{path}: tagged field extends past the end of the message", position)
        tags.append((tag, bytes(buffer[position : position + size])))
        position += size
        last = tag
    return tuple(tags), position, left - count


def _uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    first = buffer[position]
    return (first, position + 1) if first < 0x80 else long_uvarint(buffer, position + 1, first)


def tag_section(tags: list[tuple[int, bytes]], path: str) -> bytes:
    """Return the bytes of a section of these tagged fields, sorted by tag. Raises EncodeError for an invalid tag."""
    tags.sort()
    pieces: list[Any] = [uvarint(len(tags))]
    last = -1
    for tag, value in tags:
        if not last < tag <= MAX_LENGTH:
            raise EncodeError(f"{path}: tag {tag} is repeated or out of range")
        last = tag
        pieces += (uvarint(tag), uvarint(len(value)), value)
    return b"".join(pieces)


def cut_short(title: str, position: int, error: Exception) -> DecodeError:
    """Return the DecodeError for a read that failed at or after `position`."""
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(f"{title}: a string is not UTF-8: {error.reason}", position)
    return DecodeError(f"{title}: the buffer ends before the message does", position)


def unfit(message: Message, version: int, error: Exception) -> EncodeError:
    """Return the EncodeError for a message that cannot be written. The error names the field at fault.

    To find the field, this function builds the whole message again with the slow `construct` format. It is called only
    after a bug: the compiled code itself raises the errors that clients' data can cause, such as a string that is too
    long.
    """
    title = f"{type(message).__name__} v{version}"
    try:
        format_of(type(message), version).build(message)
    except ConstructError as refusal:
        path = (refusal.path or "").removeprefix("(building)").replace(" -> ", ".")
        return EncodeError(f"{title}: {path.lstrip('.') or 'message'}: {str(refusal).splitlines()[-1]}")
    except (AttributeError, TypeError, ValueError) as refusal:
        return EncodeError(f"{title}: {refusal}")
    return EncodeError(f"{title}: {error}")


DECODE_ENVIRONMENT: Final[dict[str, Any]] = {
    "MAX_ELEMENTS": MAX_ELEMENTS,
    "MAX_TAGS": MAX_TAGS,
    "STEP": STEP,
    "DecodeError": DecodeError,
    "MalformedTag": MalformedTag,
    "cut_short": cut_short,
    "long_uvarint": long_uvarint,
    "new": object.__new__,
    "struct_error": struct.error,
    "unknown_tags": unknown_tags,
    "unpack_from": struct.unpack_from,
}

ENCODE_ENVIRONMENT: Final[dict[str, Any]] = {
    "AnswerTooLarge": AnswerTooLarge,
    "EncodeError": EncodeError,
    "STEP": STEP,
    "SHORT": [uvarint(size + 1) for size in range(127)],
    "join": b"".join,
    "pack": struct.pack,
    "struct_error": struct.error,
    "tag_section": tag_section,
    "unfit": unfit,
    "uvarint": uvarint,
}
