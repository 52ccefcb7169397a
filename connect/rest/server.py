"""`RestServer`: serves the REST interface of a worker on its listeners."""

from __future__ import annotations

import asyncio
import socket
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from ..errors import ConfigValueError, ConnectError
from ..herder.herder import Herder
from ..version import VERSION
from ..worker.metrics import CONTENT_TYPE
from . import connectors, loggers, plugins
from .errors import Handler, answer, errors, timeouts
from .forwarding import forwarding
from .negotiation import negotiation

HEALTH_TIMEOUT_S: Final = 10.0
"""The maximum duration of a health check, in seconds; Kafka Connect's value."""


async def server_info(request: web.Request) -> web.Response:
    """Return the versions of the worker and the id of the Kafka cluster."""
    cluster_id = request.app[connectors.HERDER].cluster_id
    return answer({"version": VERSION, "commit": "unknown", "kafka_cluster_id": cluster_id})


async def health(request: web.Request) -> web.Response:
    """Return whether the worker can answer requests (KIP-1017): 503 while it starts, 500 if it is too busy."""
    herder = request.app[connectors.HERDER]
    if herder.ready is not None:
        return answer({"status": "starting", "message": f"{herder.ready}."}, 503)
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_S):
            await herder.alive()
    except TimeoutError:
        message = (
            "Worker was unable to handle this request and may be unable to handle other requests. It has not come to "
            f"this request within {HEALTH_TIMEOUT_S:g} s."
        )
        return answer({"status": "unhealthy", "message": message}, 500)
    message = "Worker has completed startup and is ready to handle requests."
    return answer({"status": "healthy", "message": message})


async def metrics(request: web.Request) -> web.Response:
    """Return the metrics of this worker in Prometheus' text format."""
    text = request.app[connectors.HERDER].metrics()
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


ROOT: Final = (
    web.get("/", server_info),
    web.get("/health", health),
    web.get("/metrics", metrics),
)


def application(herder: Herder, max_body_bytes: int) -> web.Application:
    """Return the web application with all endpoints for a herder."""
    app = web.Application(middlewares=[errors, timeouts, negotiation, forwarding], client_max_size=max_body_bytes)
    app[connectors.HERDER] = herder
    for table in (ROOT, connectors.ROUTES, plugins.ROUTES, loggers.ROUTES):
        for each in table:
            for path in sorted({each.path, each.path.removesuffix("/") + "/"}):
                app.add_routes([web.route(each.method, _with_any_name(path), each.handler)])
    methods: dict[str, set[str]] = {}
    for route in list(app.router.routes()):
        assert route.resource is not None
        methods.setdefault(route.resource.canonical, set()).add(route.method)
    for path, possible in methods.items():
        app.router.add_route("OPTIONS", _with_any_name(path), _options(sorted({*possible, "OPTIONS"})))
    return app


def _with_any_name(path: str) -> str:
    """Return the path with variables that match every character but a slash; by default they exclude braces."""
    return path.replace("}", ":[^/]+}")


class RestServer:
    """The listeners of a worker. The worker advertises the first listener to other workers."""

    def __init__(self, listeners: list[str]) -> None:
        """Raise ConfigValueError for a listener that is not an http:// address."""
        self._addresses = [_address(listener) for listener in listeners]
        self._sockets: list[socket.socket] = []
        self._runner: web.AppRunner | None = None
        self.host, self.port = self._addresses[0]

    def bind(self) -> None:
        """Open the listening sockets; afterwards `port` is the actual port.

        Raises ConnectError if an address is in use.
        """
        for host, port in self._addresses:
            try:
                self._sockets.append(_listener(host, port))
            except OSError as error:
                self._close_sockets()
                raise ConnectError(
                    f"listeners: cannot listen on {host}:{port}: {error.strerror or error}; name a free address"
                ) from error
        self.port = self._sockets[0].getsockname()[1]

    async def serve(self, herder: Herder, max_body_bytes: int) -> None:
        """Start to answer requests. Requests that arrived since `bind` have waited."""
        self._runner = web.AppRunner(application(herder, max_body_bytes), access_log=None)
        await self._runner.setup()
        for each in self._sockets:
            await web.SockSite(self._runner, each).start()

    async def stop(self) -> None:
        """Stop answering, and close the listeners."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()


def _listener(host: str, port: int) -> socket.socket:
    if not host:
        dual = socket.has_dualstack_ipv6()
        return socket.create_server(("", port), family=socket.AF_INET6 if dual else socket.AF_INET, dualstack_ipv6=dual)
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server((str(address[0]), port), family=family)


def _address(listener: str) -> tuple[str, int]:
    parts = urlsplit(listener if "://" in listener else f"http://{listener}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme.lower() != "http" or port is None:
        raise ConfigValueError("listeners", listener, "must be http://host:port; TLS is not supported")
    return parts.hostname or "", port


def _options(methods: list[str]) -> Handler:
    async def options(request: web.Request) -> web.Response:
        return web.Response(text=", ".join(methods), headers={"Allow": ",".join(methods)})

    return options
