"""Refuses requests that Kafka Connect's server refuses before it reads their bodies.

The server refuses invalid paths and media types (400), content types other than JSON (415), and clients that do not
accept JSON (406). If the path (404) or the method (405) is unknown, only the syntax of the path and of the content type
is checked.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_to_bytes

from .messages import Handler, HttpError, Request, Response

_INVALID_PATH: Final = re.compile(
    r"//|%(?![0-9A-F]{2})|%[01][0-9A-F]|%7F|/(?:\.?%2E|%2E\.|%2E%2E)(?=/|$)", re.IGNORECASE
)
"""Matches empty path parts, malformed escapes, escaped control characters, and escaped dots as a path part."""

_CHARACTERS: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TYPE: Final = re.compile(rf"{_CHARACTERS}/{_CHARACTERS}")
_RANGE: Final = re.compile(rf"{_CHARACTERS}(/{_CHARACTERS})?")
_PARAMETER: Final = re.compile(rf"{_CHARACTERS}\s*=\s*({_CHARACTERS}|\"[^\"]*\")")
_WEIGHT: Final = re.compile(r"(?!q\s*=).*|q\s*=\s*(0(\.[0-9]{0,3})?|1(\.0{0,3})?)", re.IGNORECASE | re.DOTALL)
"""Matches any parameter except a q=… with a weight outside of 0 to 1 (RFC 9110)."""

_JSON: Final = re.compile(r"\s*(application|\*)/json\s*(;.*)?", re.IGNORECASE)
_JSON_RANGE: Final = re.compile(r"\s*((application|\*)/(json|\*)|\*)\s*(;.*)?", re.IGNORECASE)
"""Matches the media types that may be JSON."""

_JSON_ONLY: Final = ("/connectors", "/connector-plugins", "/admin")
"""Below these paths, a content type other than JSON is refused even if the request needs no body."""

_INTERNAL: Final = ("/connectors/{name}/tasks", "/connectors/{name}/fence")
_OURS: Final = "/metrics"


async def negotiation(request: Request, handler: Handler) -> Response:
    """Pass the request on, or raise HttpError to refuse it: 400, 406 or 415."""
    path = request.path
    if path.startswith("/") and (_INVALID_PATH.search(path) or not _is_utf8(unquote_to_bytes(path))):
        raise HttpError(HTTPStatus.BAD_REQUEST)
    route = request.route
    content_type = request.headers.get("content-type")
    if content_type is not None and not _well_formed(content_type, _TYPE):
        raise HttpError(HTTPStatus.BAD_REQUEST)
    if route is None or route == _OURS:
        return await handler(request)
    accepted = _accepted(request.headers.get("accept", ""))
    if request.method == "OPTIONS":
        return await handler(request)
    internal = request.method in ("PUT", "POST") and route in _INTERNAL
    needs_json = content_type is not None and not internal and route.startswith(_JSON_ONLY)
    if needs_json and not _JSON_RANGE.fullmatch(content_type or ""):
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    if accepted and not any(map(_JSON_RANGE.fullmatch, accepted)):
        raise HttpError(HTTPStatus.NOT_ACCEPTABLE)
    return await handler(request)


def _accepted(header: str) -> list[str]:
    """Return the media types that a client accepts. Raises HttpError if one is malformed. An empty list means any type.

    As in Kafka Connect's server, a comma may follow the last media type.
    """
    accepted = header.strip().split(",")
    if not accepted[-1].strip():
        del accepted[-1]
    if not all(_well_formed(each, _RANGE, weighted=True) for each in accepted):
        raise HttpError(HTTPStatus.BAD_REQUEST)
    return accepted


def _well_formed(media_type: str, kind: re.Pattern[str], *, weighted: bool = False) -> bool:
    name, *given = (part.strip() for part in media_type.split(";"))
    parameters = [parameter for parameter in given if parameter]
    if not kind.fullmatch(name) or not all(map(_PARAMETER.fullmatch, parameters)):
        return False
    return not weighted or all(map(_WEIGHT.fullmatch, parameters))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def require_json(content_type: str | None) -> None:
    """Raise HttpError (415) unless a body has the content type JSON."""
    if content_type is None or not _JSON.fullmatch(content_type):
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
