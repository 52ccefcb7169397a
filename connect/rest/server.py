"""`RestServer`: serves the REST interface of a worker on its listeners."""

from __future__ import annotations

import asyncio
import socket
from typing import Final
from urllib.parse import urlsplit

from ..errors import ConfigValueError, ConnectError
from ..herder.herder import Herder
from ..version import VERSION
from ..worker.metrics import CONTENT_TYPE
from . import connectors, loggers, plugins
from .connection import Connection
from .errors import answer, errors, timeouts
from .forwarding import forwarding
from .messages import Handler, Request, Response
from .negotiation import negotiation
from .routing import Route, Router

HEALTH_TIMEOUT_S: Final = 10.0
"""The maximum duration of a health check, in seconds; Kafka Connect's value."""


async def server_info(request: Request) -> Response:
    """Return the versions of the worker and the id of the Kafka cluster."""
    cluster_id = request.herder.cluster_id
    return answer({"version": VERSION, "commit": "unknown", "kafka_cluster_id": cluster_id})


async def health(request: Request) -> Response:
    """Return whether the worker can answer requests (KIP-1017): 503 while it starts, 500 if it is too busy."""
    herder = request.herder
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


async def metrics(request: Request) -> Response:
    """Return the metrics of this worker in Prometheus' text format."""
    text = request.herder.metrics()
    return Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


STOP_S: Final = 60.0
"""The longest wait, in seconds, for requests that are under way when the worker stops."""

ROOT: Final = (
    Route("GET", "/", server_info),
    Route("GET", "/health", health),
    Route("GET", "/metrics", metrics),
)


ROUTER: Final = Router(
    [*ROOT, *connectors.ROUTES, *plugins.ROUTES, *loggers.ROUTES], [errors, timeouts, negotiation, forwarding]
)
"""All endpoints."""


class RestServer:
    """The listeners of a worker. The worker advertises the first listener to other workers."""

    def __init__(self, listeners: list[str]) -> None:
        """Raise ConfigValueError for a listener that is not an http:// address."""
        self._addresses = [_address(listener) for listener in listeners]
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], Connection] = {}
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

    async def serve(self, herder: Herder, max_body_bytes: int, handler: Handler = ROUTER) -> None:
        """Start to answer requests. Requests that arrived since `bind` have waited."""

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = Connection(reader, writer, herder, handler, max_body_bytes)
            task = asyncio.create_task(connection.run(), name="connection of the REST interface")
            self._connections[task] = connection
            task.add_done_callback(self._connections.pop)

        for each in self._sockets:
            self._servers.append(await asyncio.start_server(connected, sock=each))

    async def stop(self) -> None:
        """Close the listeners, answer the requests that are under way, within STOP_S, and close all connections."""
        for server in self._servers:
            server.close()
        self._close_sockets()
        connections = dict(self._connections)
        for connection in connections.values():
            connection.end()
        if connections:
            _, late = await asyncio.wait(connections, timeout=STOP_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

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
