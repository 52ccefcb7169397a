"""Frames: the int32 size, the request and response headers, and the message behind them.

Owns which header version goes with which API version. A frame here is what follows the size: reading the size off a
socket, and refusing too large ones, is the connection's business.
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
"""The one API whose responses always have header v0: the client does not know yet what the broker understands."""

key_and_version: Final = struct.Struct(">hh").unpack_from
"""Read API key and version off a request frame of at least four bytes."""

_INT32: Final = struct.Struct(">i")
_SIZE_AND_ID: Final = struct.Struct(">ii")


class _FirstFlexible(dict[int, int]):
    """The first flexible version of each API's request; above all versions for an API that is not known."""

    def __missing__(self, api_key: int) -> int:
        cls = request_class(api_key)
        if cls is None:  # not kept: keys come off the wire
            return MAX_VERSION + 1
        self[api_key] = cls.spec.flexible.low if cls.spec.flexible.high >= 0 else MAX_VERSION + 1
        return self[api_key]


_first_flexible: Final = _FirstFlexible()
_request_headers: Final = decoders_of(RequestHeader)

MAX_HEADER_TAGS: Final = 64
"""The most tagged fields in a request's header; KIP-482 has none there yet, the extension has one."""

MAX_RESPONSE_ELEMENTS: Final = 1 << 22
"""The most elements in a response: a broker is trusted with the metadata of some 500,000 partitions."""


def request_header_version(api_key: int, version: int) -> int:
    """Return the version of the header in front of a request: 2 for flexible versions, else 1."""
    return 2 if version >= _first_flexible[api_key] else 1


def response_header_version(cls: type[Response], version: int) -> int:
    """Return the version of the header in front of a response: 1 for flexible versions, else 0."""
    return 1 if version in cls.spec.flexible and cls.spec.key != API_VERSIONS else 0


def encode_request(
    message: Request[R], version: int, correlation_id: int, client_id: str | None, extension_version: int = -1
) -> list[Buffer]:
    """Return a whole request, size included, for `writelines`; raises EncodeError."""
    key = message.spec.key
    flexible = version in message.spec.flexible
    header = RequestHeader(key, version, correlation_id, client_id, extension_version if flexible else -1)
    pieces = encode_pieces(message, version)
    lead = encode(header, 2 if flexible else 1)
    return _led_by(_INT32.pack(sum(map(len, pieces)) + len(lead)) + lead, pieces)


def encode_response(message: Response, version: int, correlation_id: int) -> list[Buffer]:
    """Return a whole response, size included, for `writelines`; raises EncodeError."""
    return response_encoder(type(message), version)(message, correlation_id)


def response_encoder(cls: type[Response], version: int) -> Callable[[Response, int], list[Buffer]]:
    """Return `encode_response` of one class in one version: a function of the message and the correlation id.

    For a caller so hot that it keeps the function.
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
    """As `encode_response`, as a generator that pauses now and then and returns the buffers.

    Raises AnswerTooLarge for more than `max_bytes`, records apart.
    """
    pieces = yield from encode_in_steps(message, version, max_bytes)
    tags = b"\0" if response_header_version(type(message), version) else b""
    size = sum(map(len, pieces)) + 4 + len(tags)
    return _led_by(_SIZE_AND_ID.pack(size, correlation_id) + tags, pieces)


def _led_by(lead: bytes, pieces: list[Buffer]) -> list[Buffer]:
    """Put size and header in front; a small first piece is joined with them, which spares the socket a buffer."""
    if len(pieces[0]) < 16384:
        pieces[0] = lead + pieces[0]
    else:
        pieces.insert(0, lead)
    return pieces


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Read a request's header; returns it and where the body begins.

    Of an API that is not known, only the fields of header v1 can be read. Raises DecodeError; MalformedTag if the only
    thing wrong is the value of an extension tag.
    """
    try:
        api_key, version = key_and_version(frame)
    except struct.error:
        raise DecodeError("no room for a request header", 0) from None
    return header_decoder(api_key, version)(frame, 0, MAX_HEADER_TAGS)


def header_decoder(api_key: int, version: int) -> Callable[[Buffer, int, int], tuple[RequestHeader, int]]:
    """Return the decoder of an API's request headers, called with frame, position (0) and MAX_HEADER_TAGS."""
    return _request_headers[request_header_version(api_key, version)]


def decode_plain_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """As `decode_request_header`, for a frame that it read at least in part: the extension's tag is not interpreted."""
    api_key, version = key_and_version(frame)
    return decode_plain(RequestHeader, frame, request_header_version(api_key, version), 0, MAX_HEADER_TAGS)


def decode_response(cls: type[R], version: int, frame: Buffer) -> tuple[int, R]:
    """Read a response's header and body; returns (correlation id, response). Raises DecodeError."""
    header, position = decode_from(ResponseHeader, frame, response_header_version(cls, version))
    return header.correlation_id, decode(cls, frame, version, position, MAX_RESPONSE_ELEMENTS)
