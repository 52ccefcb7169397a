"""Maps exceptions to status codes and error bodies, in one table."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from ..errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    NotReadyError,
    RebalanceNeededError,
)
from .messages import Handler, HttpError, Request, Response

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 90.0
"""The maximum duration of a request, in seconds; Kafka Connect's value."""

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


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a value as JSON."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(status, body, {**(headers or {}), "Content-Type": "application/json"})


def error_answer(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error response in Kafka Connect's format."""
    return answer({"error_code": status, "message": message}, status, headers)


def refusal(error: HttpError) -> Response:
    """Return the response to a request that is refused before a handler has answered it."""
    return error_answer(error.status, str(error), error.headers)


async def errors(request: Request, handler: Handler) -> Response:
    """Call the handler, and answer its exceptions in Kafka Connect's format."""
    try:
        return await handler(request)
    except HttpError as error:
        return refusal(error)
    except Exception as error:
        status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
        if status == 500:
            log.error("%s %s failed", request.method, request.path, exc_info=error)
        return error_answer(status, str(error) or type(error).__name__)


async def timeouts(request: Request, handler: Handler) -> Response:
    """Answer 500 if a request takes longer than REQUEST_TIMEOUT_S. Changes that the request started may continue."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            return await handler(request)
    except TimeoutError:
        log.error("%s %s timed out", request.method, request.path)
        return error_answer(500, "Request timed out")
