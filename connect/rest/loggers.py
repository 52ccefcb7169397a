"""The endpoints under /admin/loggers."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from ..errors import BadRequestError, ConnectError, NotFoundError
from ..logging_levels import LEVELS, all_levels, level_of, set_level
from .bodies import read_settings
from .connectors import HERDER
from .errors import answer


async def loggers(request: web.Request) -> web.Response:
    """Return the levels of all loggers of this worker."""
    return answer(all_levels())


async def logger(request: web.Request) -> web.Response:
    """Return the level of a logger of this worker."""
    return answer(level_of(request.match_info["logger"]))


async def put_logger(request: web.Request) -> web.Response:
    """Set a logger's level on this worker, or with ?scope=cluster on all workers."""
    level = (await read_settings(request)).get("level")
    if level is None:
        raise BadRequestError("Desired 'level' parameter was not specified in request.")
    if not level:
        raise ConnectError("Illegal null or empty Level name.")
    if level.strip().upper() not in LEVELS:
        raise NotFoundError(f"invalid log level '{level}'.")
    name = request.match_info["logger"]
    if request.query.get("scope", "worker").lower() == "cluster":
        await request.app[HERDER].set_logger_level(name, level.strip().upper())
        return web.Response(status=204)
    return answer(set_level(name, level.strip()))


ROUTES: Final = (
    web.get("/admin/loggers", loggers),
    web.get("/admin/loggers/{logger}", logger),
    web.put("/admin/loggers/{logger}", put_logger),
)
