"""Refuses requests that Kafka Connect's server refuses before it reads their bodies.

The server refuses invalid paths (400), content types other than JSON (415), and clients that do not accept JSON (406).
Requests of unknown paths (404) and methods (405) are refused earlier.
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
"""Matches each parameter except q=… with a weight that is not between 0 and 1 (RFC 9110)."""

_JSON: Final = re.compile(r"\s*application/json\s*(;.*)?", re.IGNORECASE)
_ACCEPTS_JSON: Final = re.compile(r"\s*(application/json|application/\*|\*/\*|\*)\s*(;.*)?", re.IGNORECASE)

_JSON_ONLY: Final = ("/connectors", "/connector-plugins", "/admin")
"""Below these paths, requests with another content type are refused even if they need no body."""

_INTERNAL: Final = ("/connectors/{name}/tasks", "/connectors/{name}/fence")
_OURS: Final = "/metrics"


async def negotiation(request: Request, handler: Handler) -> Response:
    """Pass the request on, or raise HttpError to refuse it: 400, 406 or 415."""
    path = request.path
    if path.startswith("/") and (_INVALID_PATH.search(path) or not _is_utf8(unquote_to_bytes(path))):
        raise HttpError(HTTPStatus.BAD_REQUEST)
    route = request.route
    if route is None or request.method == "OPTIONS" or route == _OURS:
        return await handler(request)
    internal = request.method in ("PUT", "POST") and route in _INTERNAL
    content_type = request.headers.get("content-type")
    if not internal and content_type is not None and route.startswith(_JSON_ONLY):
        require_json(content_type)
    accept = request.headers.get("accept", "").strip()
    if accept and not all(_well_formed(each, _RANGE, weighted=True) for each in accept.split(",")):
        raise HttpError(HTTPStatus.BAD_REQUEST)
    if accept and not any(map(_ACCEPTS_JSON.fullmatch, accept.split(","))):
        raise HttpError(HTTPStatus.NOT_ACCEPTABLE)
    return await handler(request)


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
    """Raise HttpError unless the content type is JSON: 415, or 400 if it is malformed."""
    if content_type is not None and not _well_formed(content_type, _TYPE):
        raise HttpError(HTTPStatus.BAD_REQUEST)
    if content_type is None or not _JSON.fullmatch(content_type):
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
