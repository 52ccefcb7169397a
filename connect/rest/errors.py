"""Maps exceptions to status codes and error bodies, in one table."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from ..errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    NotReadyError,
    RebalanceNeededError,
)

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 90.0
"""The maximum duration of a request, in seconds; Kafka Connect's value."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

STATUS: Final[dict[type[Exception], int]] = {
    BadRequestError: 400,
    ForbiddenError: 403,
    NotFoundError: 404,
    AlreadyExistsError: 409,
    ConflictError: 409,
    RebalanceNeededError: 409,
    NotReadyError: 503,
}
"""The status code of each exception. Other exceptions are answered with 500, as Kafka Connect does."""


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return a response with a value as JSON."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    given = {**(headers or {}), "Content-Type": "application/json"}
    return web.Response(body=body, status=status, headers=given)


def error_answer(status: int, message: str) -> web.Response:
    """Return an error response in Kafka Connect's format."""
    return answer({"error_code": status, "message": message}, status)


async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Call the handler, and answer its exceptions in Kafka Connect's format."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return error_answer(error.status, f"HTTP {error.status} {error.reason}")
    except Exception as error:
        status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
        if status == 500:
            log.error("%s %s failed", request.method, request.path, exc_info=error)
        return error_answer(status, str(error) or type(error).__name__)


async def end_in_time(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 500 if a request takes longer than REQUEST_TIMEOUT_S. Changes that the request started may continue."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            return await handler(request)
    except TimeoutError:
        log.error("%s %s timed out", request.method, request.path)
        return error_answer(500, "Request timed out")


errors: Final = web.middleware(answer_errors)
timeouts: Final = web.middleware(end_in_time)
