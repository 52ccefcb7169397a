"""Forwards requests to the worker that can answer them: the leader, or the owner of a connector or task.

A request is forwarded at most twice. The user's worker forwards it with ?forward=true, the next worker with
?forward=false. If the third worker cannot answer either, it answers 409, because the group is rebalancing.
"""

from __future__ import annotations

import logging
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

from ..errors import RequestTargetError
from ..signatures import ALGORITHM_HEADER, SIGNATURE_HEADER
from .errors import REQUEST_TIMEOUT_S, Handler, error_answer

log = logging.getLogger(__name__)

_PASSED_ON: Final = ("Authorization", "Content-Type", SIGNATURE_HEADER, ALGORITHM_HEADER)


async def forward_to_target(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer the request here, or return the answer of the worker that a RequestTargetError names."""
    hops = request.query.get("forward", "").lower()
    try:
        return await handler(request)
    except RequestTargetError as error:
        if hops not in ("", "true"):
            return error_answer(
                409, "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
            )
        if error.url is None:
            return error_answer(
                409,
                "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was "
                "underway.",
            )
        return await _forwarded(request, error.url, "false" if hops else "true")


async def _forwarded(request: web.Request, worker: str, forward: str) -> web.StreamResponse:
    url = URL(worker).join(request.rel_url).update_query(forward=forward)
    headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(
                request.method,
                url,
                data=await request.read(),
                headers=headers,
                skip_auto_headers=["Content-Type"],
                allow_redirects=False,
            ) as answer,
        ):
            kept = {name: answer.headers[name] for name in ("Content-Type", "Location") if name in answer.headers}
            return web.Response(body=await answer.read(), status=answer.status, headers=kept)
    except (aiohttp.ClientError, TimeoutError) as error:
        log.warning("could not forward %s %s to %s: %r", request.method, request.path, worker, error)
        return error_answer(500, f"IO Error trying to forward REST request to {worker}: {error!r}")


forwarding: Final = web.middleware(forward_to_target)
"""Runs inside the middleware for errors, so that errors of forwarding become error responses."""
