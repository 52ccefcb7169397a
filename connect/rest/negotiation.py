"""Refuses requests that Kafka Connect's server refuses before it looks at their bodies.

Paths that are not valid (400), content types other than JSON (415), and clients that accept no JSON (406). Requests of
unknown paths (404) and methods (405) are refused before.
"""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web

from .errors import Handler

_INVALID_PATH: Final = re.compile(r"//|%(?![0-9A-Fa-f]{2})|%00")
_JSON: Final = re.compile(r"\s*application/json\s*(;.*)?", re.IGNORECASE)
_ACCEPTS_JSON: Final = re.compile(r"\s*(application/json|application/\*|\*/\*|\*)\s*(;.*)?", re.IGNORECASE)

_JSON_ONLY: Final = ("/connectors", "/connector-plugins", "/admin")
"""Below these a request with another content type is refused, whether it needs a body or not."""

_INTERNAL: Final = ("/connectors/{name}/tasks", "/connectors/{name}/fence")
_OURS: Final = "/metrics"


async def refuse_foreign_formats(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer the request; raises HTTPBadRequest, HTTPUnsupportedMediaType, HTTPNotAcceptable."""
    path = request.raw_path.partition("?")[0]
    if path.startswith("/") and _INVALID_PATH.search(path):
        raise web.HTTPBadRequest
    resource = request.match_info.route.resource
    if resource is None or request.method == "OPTIONS" or resource.canonical == _OURS:
        return await handler(request)
    internal = request.method in ("PUT", "POST") and resource.canonical.rstrip("/") in _INTERNAL
    content_type = request.headers.get("Content-Type")
    if not internal and content_type is not None and resource.canonical.startswith(_JSON_ONLY):
        require_json(content_type)
    accept = request.headers.get("Accept", "").strip()
    if accept and not any(map(_ACCEPTS_JSON.fullmatch, accept.split(","))):
        raise web.HTTPNotAcceptable
    return await handler(request)


def require_json(content_type: str | None) -> None:
    """Raise HTTPUnsupportedMediaType for another content type, or none; HTTPBadRequest for what is no content type."""
    if content_type is not None and "/" not in content_type:
        raise web.HTTPBadRequest
    if content_type is None or not _JSON.fullmatch(content_type):
        raise web.HTTPUnsupportedMediaType


negotiation: Final = web.middleware(refuse_foreign_formats)
