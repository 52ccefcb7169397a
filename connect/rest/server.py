"""`RestServer`: serves the REST interface of a worker on its listeners."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from ..errors import ConfigValueError, ConnectError
from ..herder.herder import Herder
from ..version import VERSION
from . import connectors, loggers, plugins
from .errors import Handler, answer, errors
from .forwarding import forwarding


async def server_info(request: web.Request) -> web.Response:
    """Return version and cluster."""
    cluster_id = request.app[connectors.HERDER].cluster_id
    return answer({"version": VERSION, "commit": "unknown", "kafka_cluster_id": cluster_id})


async def health(request: web.Request) -> web.Response:
    """Return whether the worker can answer (KIP-1017): 503 while it starts."""
    problem = request.app[connectors.HERDER].ready
    if problem is not None:
        return answer({"status": "starting", "message": f"{problem}."}, 503)
    message = "Worker has completed startup and is ready to handle requests."
    return answer({"status": "healthy", "message": message})


ROOT: Final = (
    web.get("/", server_info),
    web.get("/health", health),
)


def application(herder: Herder, max_body_bytes: int) -> web.Application:
    """Return the endpoints on a herder."""
    app = web.Application(middlewares=[errors, forwarding], client_max_size=max_body_bytes)
    app[connectors.HERDER] = herder
    for table in (ROOT, connectors.ROUTES, plugins.ROUTES, loggers.ROUTES):
        app.add_routes(table)
    methods: dict[str, set[str]] = {}
    for route in list(app.router.routes()):
        assert route.resource is not None
        methods.setdefault(route.resource.canonical, set()).add(route.method)
    for path, possible in methods.items():
        app.router.add_route("OPTIONS", path, _options(sorted({*possible, "OPTIONS"})))
    return app


class RestServer:
    """The listeners of a worker; the first is the one that it advertises to other workers."""

    def __init__(self, listeners: list[str]) -> None:
        """Raise ConfigValueError for what is no http:// address."""
        self._addresses = [_address(listener) for listener in listeners]
        self._runner: web.AppRunner | None = None
        self.host, self.port = self._addresses[0]

    async def start(self, herder: Herder, max_body_bytes: int) -> None:
        """Bind and answer; afterwards `port` is the real one. Raises ConnectError where an address is taken."""
        self._runner = web.AppRunner(application(herder, max_body_bytes), access_log=None)
        await self._runner.setup()
        for host, port in self._addresses:
            site = web.TCPSite(self._runner, host or None, port)
            try:
                await site.start()
            except OSError as error:
                raise ConnectError(
                    f"listeners: cannot listen on {host}:{port}: {error.strerror or error}; name a free address"
                ) from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the listeners."""
        if self._runner is not None:
            await self._runner.cleanup()


def _address(listener: str) -> tuple[str, int]:
    parts = urlsplit(listener if "://" in listener else f"http://{listener}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme.lower() != "http" or port is None:
        raise ConfigValueError("listeners", listener, "must be http://host:port; TLS is not offered")
    return parts.hostname or "", port


def _options(methods: list[str]) -> Handler:
    async def options(request: web.Request) -> web.Response:
        return web.Response(text=", ".join(methods), headers={"Allow": ",".join(methods)})

    return options
