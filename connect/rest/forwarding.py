"""Forwards requests to the worker that can answer them: the leader, or the owner of a connector or task.

A request is forwarded at most twice: by the first worker with ?forward=true, and by the second with ?forward=false. If
the third worker cannot carry out the request either, it answers 409, because the group is rebalancing.
"""

from __future__ import annotations

import logging
from typing import Final
from urllib.parse import urlsplit

from ..errors import RequestTargetError
from ..signatures import ALGORITHM_HEADER, SIGNATURE_HEADER
from .client import RestClient
from .errors import error_answer
from .messages import Handler, Middleware, Request, Response

log = logging.getLogger(__name__)

_PASSED_ON: Final = ("Authorization", "Content-Type", SIGNATURE_HEADER, ALGORITHM_HEADER)


def forwarding(client: RestClient) -> Middleware:
    """Return the middleware that uses `client` to forward the requests that another worker has to answer."""

    async def answered(request: Request, handler: Handler) -> Response:
        """Answer the request here, or return the response of the worker that a RequestTargetError names."""
        given = request.query.get("forward")
        try:
            return await handler(request)
        except RequestTargetError as error:
            if given is not None and given[0].lower() != "true":
                return error_answer(
                    409, "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
                )
            if error.url is None:
                return error_answer(
                    409,
                    "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was "
                    "underway.",
                )
            return await _forwarded(client, request, error.url, "true" if given is None else "false")

    return answered


async def _forwarded(client: RestClient, request: Request, worker: str, forward: str) -> Response:
    path, _, query = request.target.partition("?")
    kept = [pair for pair in query.split("&") if pair and pair.partition("=")[0] != "forward"]
    url = f"{worker.rstrip('/')}{path}?{'&'.join([*kept, f'forward={forward}'])}"
    headers = {name: request.headers[name.lower()] for name in _PASSED_ON if name.lower() in request.headers}
    try:
        response = await client.send(request.method, url, request.body, headers)
    except OSError as error:
        log.warning("could not forward %s %s to %s: %r", request.method, request.path, worker, error)
        return error_answer(500, f"IO Error trying to forward REST request to {worker}: {error!r}")
    returned = {}
    if "content-type" in response.headers:
        returned["Content-Type"] = response.headers["content-type"]
    if "location" in response.headers:  # it names the other worker, which the client may not be able to reach
        returned["Location"] = request.absolute(urlsplit(response.headers["location"]).path)
    return Response(response.status, response.body, returned)
