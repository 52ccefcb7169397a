"""Lets pages of other origins use the REST interface (CORS), as the settings access.control.allow.* say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from .messages import Handler, Middleware, Request, Response

METHODS: Final = ("GET", "POST", "HEAD")
"""The methods that pages of other origins may use by default, as in Kafka Connect."""

_MAX_AGE_S: Final = 60
"""How long a browser may remember the response to a preflight request, in seconds; Kafka Connect's value."""


def cross_origin(origins: Sequence[re.Pattern[str]], methods: Sequence[str]) -> Middleware:
    """Return the middleware that adds the CORS headers for the origins that match one of the patterns.

    Requests from other origins are answered without these headers, so that browsers hide the responses from the pages
    of these origins.
    """

    async def with_headers(request: Request, handler: Handler) -> Response:
        response = await handler(request)
        headers = {**response.headers, "Vary": "Origin"}
        origin = request.headers.get("origin")
        if origin is not None and any(pattern.fullmatch(origin) for pattern in origins):
            headers["Access-Control-Allow-Origin"] = origin
            if request.method == "OPTIONS" and "access-control-request-method" in request.headers:
                headers["Access-Control-Allow-Methods"] = ",".join(methods)
                headers["Access-Control-Allow-Headers"] = "Content-Type"
                headers["Access-Control-Max-Age"] = str(_MAX_AGE_S)
        return replace(response, headers=headers)

    return with_headers
