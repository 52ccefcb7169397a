"""The endpoints under /admin/loggers."""

from __future__ import annotations

from typing import Final

from ..errors import BadRequestError, ConnectError, NotFoundError
from ..logging_levels import LEVELS, all_levels, level_of, set_level
from .bodies import read_settings
from .errors import answer
from .messages import Request, Response
from .routing import Route


async def loggers(request: Request) -> Response:
    """Return the levels of all loggers of this worker."""
    return answer(all_levels())


async def logger(request: Request) -> Response:
    """Return the level of a logger of this worker."""
    return answer(level_of(request.parameters["logger"]))


async def put_logger(request: Request) -> Response:
    """Set a logger's level on this worker, or with ?scope=cluster on all workers."""
    level = read_settings(request).get("level")
    if level is None:
        raise BadRequestError("Desired 'level' parameter was not specified in request.")
    if not level:
        raise ConnectError("Illegal null or empty Level name.")
    if level.strip().upper() not in LEVELS:
        raise NotFoundError(f"invalid log level '{level}'.")
    name = request.parameters["logger"]
    if request.query.get("scope", ["worker"])[0].lower() == "cluster":
        await request.herder.set_logger_level(name, level.strip().upper())
        return Response(status=204)
    return answer(set_level(name, level.strip()))


ROUTES: Final = (
    Route("GET", "/admin/loggers", loggers),
    Route("GET", "/admin/loggers/{logger}", logger),
    Route("PUT", "/admin/loggers/{logger}", put_logger),
)
