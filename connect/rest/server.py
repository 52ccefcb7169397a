"""`RestServer`: serves the REST interface of a worker on its listeners."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ...version import VERSION
from ..errors import ConnectError
from ..herder.herder import Herder
from ..settings.rest import LISTENERS, RestAddress, RestSettings
from ..worker.metrics import CONTENT_TYPE
from . import connectors, loggers, plugins
from .client import RestClient
from .connection import IDLE_S, Connection
from .cross_origin import METHODS, cross_origin
from .errors import answer, errors, timeouts
from .forwarding import forwarding
from .messages import Handler, Request, Response
from .negotiation import negotiation
from .routing import Route, Router

if TYPE_CHECKING:
    from .access import RestAccess

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


MakeConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Connection]

_ACCEPT_AGAIN_S: Final = 1.0
"""The wait, in seconds, after the system has refused a connection, for example because no file descriptor is free."""

STOP_S: Final = 60.0
"""The longest wait, in seconds, for requests in progress when the worker stops."""

ROOT: Final = (
    Route("GET", "/", server_info),
    Route("GET", "/health", health),
    Route("GET", "/metrics", metrics),
)


def make_router(client: RestClient, settings: RestSettings) -> Router:
    """Return the router of the endpoints on `listeners`, which forwards requests to other workers through `client`."""
    routes = [*ROOT, *connectors.ROUTES, *plugins.ROUTES, *(loggers.ROUTES if settings.serves_admin else ())]
    others = [cross_origin(settings.origins, settings.methods or METHODS)] if settings.origins else []
    return Router(routes, [*others, errors, timeouts, negotiation, forwarding(client)])


ADMIN_ROUTER: Final = Router(loggers.ROUTES, [errors, timeouts, negotiation])
"""The endpoints under /admin, for the addresses in `admin.listeners`."""


class RestServer:
    """The REST listeners of a worker that are named in one setting: `listeners` or `admin.listeners`."""

    def __init__(
        self,
        addresses: Sequence[RestAddress],
        tls: ssl.SSLContext | None = None,
        access: RestAccess | None = None,
        *,
        max_connections: int,
        setting: str = LISTENERS,
    ) -> None:
        """Set up the listeners, without opening their sockets.

        `tls` is the context of https addresses. `access` decides which requests are admitted; None admits all. A
        connection beyond `max_connections` is closed immediately. `setting` is the name of the setting that lists the
        addresses, for error messages.
        """
        self._addresses, self._setting = addresses, setting
        self._tls, self._access, self._max_connections = tls, access, max_connections
        self._is_full = False
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._connections: dict[asyncio.Task[None], Connection | None] = {}
        """The open connections; None for a connection whose TLS handshake is not complete."""

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
                    f"{self._setting}: cannot listen on {address.host}:{address.port}: {error.strerror or error}; name"
                    " a free address"
                ) from error

    async def serve(self, herder: Herder, max_body_bytes: int, handler: Handler) -> None:
        """Start answering requests, first those that have arrived since `bind`."""

        def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Connection:
            return Connection(reader, writer, herder, handler, max_body_bytes, self._access)

        for address, each in zip(self._addresses, self._sockets, strict=True):
            accepting = self._accept(each, self._tls if address.encrypted else None, connection)
            self._accepting.append(asyncio.create_task(accepting, name="accept connections of the REST interface"))

    async def _accept(self, listener: socket.socket, tls: ssl.SSLContext | None, connection: MakeConnection) -> None:
        """Accept connections until cancelled. Each one counts towards the limit, even during its TLS handshake."""
        listener.setblocking(False)
        while True:
            try:
                client, _ = await asyncio.get_running_loop().sock_accept(listener)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                log.error("the REST interface cannot accept connections for %g s: %s", _ACCEPT_AGAIN_S, error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            if self._refuses_one_more():
                client.close()
                continue
            task = asyncio.create_task(self._run(client, tls, connection), name="connection of the REST interface")
            self._connections[task] = None
            task.add_done_callback(self._connections.pop)

    async def _run(self, client: socket.socket, tls: ssl.SSLContext | None, connection: MakeConnection) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        limit_s = IDLE_S if tls is not None else None
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, client, ssl=tls, ssl_handshake_timeout=limit_s
            )
        except OSError as error:
            log.debug("a client's connection has ended before its first request: %r", error)
            return
        assert task is not None
        made = self._connections[task] = connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
        await made.run()

    def _refuses_one_more(self) -> bool:
        """Return whether the limit of connections is reached. Of several refusals in a row, log the first."""
        was_full, self._is_full = self._is_full, len(self._connections) >= self._max_connections
        if self._is_full and not was_full:
            log.warning(
                "rest.max.connections = %d connections are open; further connections are closed",
                self._max_connections,
            )
        return self._is_full

    async def stop(self) -> None:
        """Close the listeners, finish the requests in progress within STOP_S, and close all connections."""
        for accepting in self._accepting:
            accepting.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        self.close_sockets()
        connections = dict(self._connections)
        for task, connection in connections.items():
            if connection is None:
                task.cancel()
            else:
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
