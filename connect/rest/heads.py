"""Reads the heads of requests, and refuses requests that h11 accepts but servers must refuse (RFC 9112)."""

from __future__ import annotations

import ipaddress
import re
from http import HTTPStatus
from typing import Final

import h11

from .messages import HttpError

_ABSOLUTE: Final = re.compile(r"https?://[^/?]*(.*)", re.IGNORECASE)
"""Matches a request target that contains an origin; the group is the path and the query."""

_HOST: Final = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::(?P<port>[0-9]{1,5}))?"
)
"""Matches a host and an optional port as in a URL (RFC 3986, 3.2)."""

_EMPTY_LINES: Final = re.compile(rb"(?:\r?\n)*")
_FOLD: Final = re.compile(rb"\n[ \t]")
_END: Final = re.compile(rb"\n\r?\n")


def without_empty_lines(received: bytes) -> bytes:
    """Return what was received, without the empty lines that may precede a request (RFC 9112, 2.2)."""
    match = _EMPTY_LINES.match(received)
    assert match is not None, "the pattern matches no line, too"
    return received[match.end() :]


def target_of(head: h11.Request) -> str:
    """Return the path and the query of a request, without the origin of a target such as http://host/path.

    The worker ignores the host of such a target, so that a request is never forwarded to a host that a client chooses.
    """
    target = head.target.decode()
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        return target
    return absolute[1] if absolute[1].startswith("/") else f"/{absolute[1]}"


def headers_of(head: h11.Request, received: bytes) -> dict[str, str]:
    """Return the headers by their names in lower case; the values of a repeated header are joined by commas.

    `received` begins with the bytes of the head. Raises HttpError with these statuses (sections are of RFC 9112):

    - 400 for a header that is continued on the next line (5.2)
    - 400 for Transfer-Encoding together with Content-Length, or in HTTP/1.0 (6.1)
    - 400 for a Host that is not the host of a URL (3.2)
    - 505 for a version other than HTTP/1.0 and 1.1

    After such an error, the connection is closed, because the body of the request is not read.
    """
    if head.http_version not in (b"1.0", b"1.1"):
        raise HttpError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    headers: dict[str, str] = {}
    for name, value in head.headers:
        known, text = name.decode(), value.decode("latin-1")
        headers[known] = f"{headers[known]}, {text}" if known in headers else text
    end = _END.search(received)
    assert end is not None, "h11 has found the end of the head"
    folded = _FOLD.search(received, 0, end.end()) is not None
    two_ends = "transfer-encoding" in headers and ("content-length" in headers or head.http_version == b"1.0")
    if folded or two_ends or not _is_host(headers.get("host")):
        raise HttpError(HTTPStatus.BAD_REQUEST)
    return headers


def _is_host(text: str | None) -> bool:
    """Return whether a Host header is valid. None is valid, because a client of HTTP/1.0 need not name a host."""
    if text is None:
        return True
    match = _HOST.fullmatch(text)
    if match is None or not 0 < int(match["port"] or 1) < 65_536:
        return False
    if match["ipv6"] is None:
        return True
    try:
        ipaddress.IPv6Address(match["ipv6"])
    except ValueError:
        return False
    return True
