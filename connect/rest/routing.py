"""`Router`: finds the handler of a request by its method and path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote

from .messages import Handler, HttpError, Middleware, Request, Response


class Route(NamedTuple):
    """The handler of a method and a path pattern. A variable such as {name} matches one part of a path."""

    method: str
    pattern: str
    handler: Handler


class _Resource:
    """A path pattern with the handlers of its methods. HEAD is answered like GET, OPTIONS with the allowed methods."""

    def __init__(self, pattern: str, routes: Iterable[Route]) -> None:
        self.pattern = pattern
        self._parts = pattern.split("/")
        self._handlers = {route.method: route.handler for route in routes}
        if "GET" in self._handlers:
            self._handlers["HEAD"] = self._handlers["GET"]
        self._methods = sorted({*self._handlers, "OPTIONS"})
        self._handlers["OPTIONS"] = self._options

    def match(self, parts: Sequence[str]) -> dict[str, str] | None:
        """Return the values of the variables, or None if the path does not match."""
        if len(parts) != len(self._parts):
            return None
        values = {}
        for part, expected in zip(parts, self._parts, strict=True):
            if expected.startswith("{") and part:
                values[expected.strip("{}")] = unquote(part)
            elif part != expected:
                return None
        return values

    def handler(self, method: str) -> Handler | None:
        """Return the handler of a method, or None if the method is not allowed."""
        return self._handlers.get(method)

    async def _options(self, request: Request) -> Response:
        headers = {"Allow": ",".join(self._methods), "Content-Type": "text/plain; charset=utf-8"}
        return Response(body=", ".join(self._methods).encode(), headers=headers)

    async def not_allowed(self, request: Request) -> Response:
        """Refuse a method that the path does not support."""
        raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": ",".join(self._methods)})


class Router:
    """Calls the handler of each request through the middlewares, the first of which is the outermost.

    A path may end with a slash. Middlewares see requests of unknown paths and methods, too; the handler of such a
    request raises HttpError with the status 404 or 405.
    """

    def __init__(self, routes: Sequence[Route], middlewares: Sequence[Middleware] = ()) -> None:
        self._resources = [
            _Resource(pattern, (route for route in routes if route.pattern == pattern))
            for pattern in dict.fromkeys(route.pattern for route in routes)
        ]
        self._middlewares = middlewares

    async def __call__(self, request: Request) -> Response:
        """Return the response to a request."""
        request, handler = self._resolve(request)
        for middleware in reversed(self._middlewares):
            handler = _through(middleware, handler)
        return await handler(request)

    def _resolve(self, request: Request) -> tuple[Request, Handler]:
        # As in JAX-RS, a path parameter such as ;x=1 does not belong to its part of the path.
        parts = [part.partition(";")[0] for part in (request.path.removesuffix("/") or "/").split("/")]
        for resource in self._resources:
            values = resource.match(parts)
            if values is not None:
                handler = resource.handler(request.method)
                if handler is None:
                    return request, resource.not_allowed
                return replace(request, route=resource.pattern, parameters=values), handler
        return request, _not_found


async def _not_found(request: Request) -> Response:
    raise HttpError(HTTPStatus.NOT_FOUND)


def _through(middleware: Middleware, handler: Handler) -> Handler:
    async def call(request: Request) -> Response:
        return await middleware(request, handler)

    return call
