"""Encode and decode whole frames: the int32 size, the request or response header, and the message.

This module decides which header version goes with which API version. To the decoding functions, a frame is the bytes
after the size. The connection reads the size from the socket and refuses frames that are too large.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from .apis import request_class
from .codec import decode, decode_from, decode_plain, decoders_of, encode, encode_in_steps, encode_pieces, encoders_of
from .errors import DecodeError
from .messages.headers import RequestHeader, ResponseHeader
from .schema import MAX_VERSION, Buffer, Request, Response

R = TypeVar("R", bound=Response)

API_VERSIONS: Final = 18
"""The key of ApiVersions, whose responses always have header v0: the client does not know the broker's versions yet."""

key_and_version: Final = struct.Struct(">hh").unpack_from
"""Read the API key and the API version from a request frame. The frame must have at least four bytes."""

_INT32: Final = struct.Struct(">i")
_SIZE_AND_ID: Final = struct.Struct(">ii")


class _FirstFlexible(dict[int, int]):
    """The first flexible version of each API's request. For an unknown API: a number above all versions."""

    def __missing__(self, api_key: int) -> int:
        cls = request_class(api_key)
        if cls is None:  # unknown keys are not stored, because clients can send any number
            return MAX_VERSION + 1
        self[api_key] = cls.spec.flexible.low if cls.spec.flexible.high >= 0 else MAX_VERSION + 1
        return self[api_key]


_first_flexible: Final = _FirstFlexible()
_request_headers: Final = decoders_of(RequestHeader)

MAX_HEADER_TAGS: Final = 64
"""Maximum number of tagged fields in a request's header. KIP-482 defines none there yet; the extension defines one."""

MAX_RESPONSE_ELEMENTS: Final = 1 << 22
"""Maximum number of elements in a response. Clients trust the broker: its metadata may describe some 500,000
partitions.
"""


def request_header_version(api_key: int, version: int) -> int:
    """Return the version of the header that precedes a request: 2 for flexible versions, else 1."""
    return 2 if version >= _first_flexible[api_key] else 1


def response_header_version(cls: type[Response], version: int) -> int:
    """Return the version of a response's header: 1 for flexible versions of all APIs but ApiVersions, else 0."""
    return 1 if version in cls.spec.flexible and cls.spec.key != API_VERSIONS else 0


def encode_request(
    message: Request[R], version: int, correlation_id: int, client_id: str | None, extension_version: int = -1
) -> list[Buffer]:
    """Return a whole request, including its size, as buffers for `writelines`. Raises EncodeError.

    In flexible versions, the header announces the version of the extension that the client supports (-1 for none).
    """
    key = message.spec.key
    flexible = version in message.spec.flexible
    header = RequestHeader(key, version, correlation_id, client_id, extension_version if flexible else -1)
    pieces = encode_pieces(message, version)
    lead = encode(header, 2 if flexible else 1)
    return _led_by(_INT32.pack(sum(map(len, pieces)) + len(lead)) + lead, pieces)


def encode_response(message: Response, version: int, correlation_id: int) -> list[Buffer]:
    """Return a whole response, including its size, as buffers for `writelines`. Raises EncodeError."""
    return response_encoder(type(message), version)(message, correlation_id)


def response_encoder(cls: type[Response], version: int) -> Callable[[Response, int], list[Buffer]]:
    """Return a function of (message, correlation id) that does what `encode_response` does for this class and version.

    A caller on a hot path keeps the function and saves the look-ups of class and version.
    """
    encode = encoders_of(cls)[version]
    tags = b"\0" if response_header_version(cls, version) else b""
    header_size = 4 + len(tags)
    pack = _SIZE_AND_ID.pack

    def encode_whole(message: Response, correlation_id: int) -> list[Buffer]:
        pieces = encode(message)
        size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        return _led_by(pack(size + header_size, correlation_id) + tags, pieces)

    return encode_whole


def encode_response_in_steps(
    message: Response, version: int, correlation_id: int, max_bytes: int
) -> Generator[int, None, list[Buffer]]:
    """Encode a response like `encode_response`, but as a generator that pauses regularly and returns the buffers.

    Raises AnswerTooLarge when the response, not counting large records, is larger than `max_bytes`.
    """
    pieces = yield from encode_in_steps(message, version, max_bytes)
    tags = b"\0" if response_header_version(type(message), version) else b""
    size = sum(map(len, pieces)) + 4 + len(tags)
    return _led_by(_SIZE_AND_ID.pack(size, correlation_id) + tags, pieces)


def _led_by(lead: bytes, pieces: list[Buffer]) -> list[Buffer]:
    """Return the buffers with `lead` in front. A small first buffer is joined with `lead`, to save a buffer."""
    if len(pieces[0]) < 16384:
        pieces[0] = lead + pieces[0]
    else:
        pieces.insert(0, lead)
    return pieces


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Decode a request's header. Return the header and the position where the body begins.

    For an unknown API, only the fields of header v1 can be read. Raises DecodeError, or its subclass MalformedTag if
    the only error is in the value of an extension tag.
    """
    try:
        api_key, version = key_and_version(frame)
    except struct.error:
        raise DecodeError("the frame is too short for a request header", 0) from None
    return header_decoder(api_key, version)(frame, 0, MAX_HEADER_TAGS)


def header_decoder(api_key: int, version: int) -> Callable[[Buffer, int, int], tuple[RequestHeader, int]]:
    """Return the decoder of an API's request headers. Its arguments are the frame, the position 0 and
    MAX_HEADER_TAGS.
    """
    return _request_headers[request_header_version(api_key, version)]


def decode_plain_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Decode a request's header like `decode_request_header`, but do not interpret the extension's tag.

    Call this only with a frame that `decode_request_header` has accepted, or refused with MalformedTag.
    """
    api_key, version = key_and_version(frame)
    return decode_plain(RequestHeader, frame, request_header_version(api_key, version), 0, MAX_HEADER_TAGS)


def decode_response(cls: type[R], version: int, frame: Buffer) -> tuple[int, R]:
    """Decode a response's header and body. Return (correlation id, response). Raises DecodeError."""
    header, position = decode_from(ResponseHeader, frame, response_header_version(cls, version))
    return header.correlation_id, decode(cls, frame, version, position, MAX_RESPONSE_ELEMENTS)
