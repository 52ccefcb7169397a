"""`RestServer`: serves the REST interface of a worker on its listeners."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final

from ..errors import ConnectError
from ..herder.herder import Herder
from ..settings.rest import RestAddress
from ..version import VERSION
from ..worker.metrics import CONTENT_TYPE
from . import connectors, loggers, plugins
from .access import RestAccess
from .client import RestClient
from .connection import IDLE_S, Connection
from .errors import answer, errors, timeouts
from .forwarding import forwarding
from .messages import Handler, Request, Response
from .negotiation import negotiation
from .routing import Route, Router

log = logging.getLogger(__name__)

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
"""The longest wait, in seconds, for requests in progress when the worker stops."""

ROOT: Final = (
    Route("GET", "/", server_info),
    Route("GET", "/health", health),
    Route("GET", "/metrics", metrics),
)


def make_router(client: RestClient, *, admin: bool) -> Router:
    """Return the router of all endpoints, which forwards requests to other workers by `client`.

    `admin` says whether it includes the endpoints under /admin.
    """
    routes = [*ROOT, *connectors.ROUTES, *plugins.ROUTES, *(loggers.ROUTES if admin else ())]
    return Router(routes, [errors, timeouts, negotiation, forwarding(client)])


ADMIN_ROUTER: Final = Router(loggers.ROUTES, [errors, timeouts, negotiation])
"""The endpoints under /admin, for the addresses in `admin.listeners`."""


class RestServer:
    """The listeners of a worker."""

    def __init__(
        self,
        addresses: Sequence[RestAddress],
        tls: ssl.SSLContext | None = None,
        access: RestAccess | None = None,
        *,
        max_connections: int,
    ) -> None:
        """`tls` is the context of https addresses. `access` decides which requests are admitted; None admits all.

        A connection beyond `max_connections` is closed at once.
        """
        self._addresses = addresses
        self._tls, self._access, self._max_connections = tls, access, max_connections
        self._is_full = False
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], Connection] = {}

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.port_of(self._addresses[0])

    def port_of(self, address: RestAddress) -> int:
        """Return the actual port of a listener, after `bind`."""
        return int(self._sockets[self._addresses.index(address)].getsockname()[1])

    def bind(self) -> None:
        """Open the listening sockets. Raises ConnectError if an address is in use."""
        for address in self._addresses:
            try:
                self._sockets.append(_listener(address.host, address.port))
            except OSError as error:
                self.close_sockets()
                raise ConnectError(
                    f"listeners: cannot listen on {address.host}:{address.port}: {error.strerror or error}; name a"
                    " free address"
                ) from error

    async def serve(self, herder: Herder, max_body_bytes: int, handler: Handler) -> None:
        """Start answering requests, first those that have arrived since `bind`."""

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self._refuses_one_more():
                writer.transport.abort()
                return
            connection = Connection(reader, writer, herder, handler, max_body_bytes, self._access)
            task = asyncio.create_task(connection.run(), name="connection of the REST interface")
            self._connections[task] = connection
            task.add_done_callback(self._connections.pop)

        for address, each in zip(self._addresses, self._sockets, strict=True):
            tls: dict[str, Any] = {"ssl": self._tls, "ssl_handshake_timeout": IDLE_S} if address.encrypted else {}
            self._servers.append(await asyncio.start_server(connected, sock=each, **tls))

    def _refuses_one_more(self) -> bool:
        """Return whether the limit of connections is reached; the first refusal in a row is logged."""
        was_full, self._is_full = self._is_full, len(self._connections) >= self._max_connections
        if self._is_full and not was_full:
            log.warning(
                "rest.max.connections = %d connections are open; further ones are closed", self._max_connections
            )
        return self._is_full

    async def stop(self) -> None:
        """Close the listeners, finish the requests in progress within STOP_S, and close all connections."""
        for server in self._servers:
            server.close()
        self.close_sockets()
        connections = dict(self._connections)
        for connection in connections.values():
            connection.end()
        if connections:
            _, late = await asyncio.wait(connections, timeout=STOP_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def close_sockets(self) -> None:
        """Close the listening sockets."""
        for each in self._sockets:
            each.close()


def _listener(host: str, port: int) -> socket.socket:
    if not host:
        dual = socket.has_dualstack_ipv6()
        return socket.create_server(("", port), family=socket.AF_INET6 if dual else socket.AF_INET, dualstack_ipv6=dual)
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server((str(address[0]), port), family=family)
