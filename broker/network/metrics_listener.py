"""Answer `GET /metrics`, for Prometheus, and `GET /health` on a separate listener (`metrics.listener`).

A connection serves one request, whose headers may have at most `MAX_HEAD_BYTES`. The connection is closed after
`REQUEST_TIMEOUT_S`, even if the TLS handshake, the request or the response has not ended. When `MAX_CONNECTIONS` are
open, a new connection replaces the oldest.

If users (`metrics.users.location`) or tokens (`metrics.bearer.token.location`) are configured, requests need
credentials. Without credentials, clients learn from `GET /health` only whether the broker is healthy. If
`metrics.health.public` is false, they do not learn even that.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from ...auth.http_access import HttpAccess, NamedFile
from ...auth.stores import reason_of
from ...settings import ConfigError
from ..config import BrokerConfig
from ..observability.metrics import Metrics
from ..security.client_host import network_of
from ..system.ports import Lane, Threads
from .acceptor import ACCEPTED_AT_ONCE, PAUSE_S
from .handshake import first_message, shake_hands
from .listeners import WatchedContext
from .turns import TlsTurns

MAX_HEAD_BYTES: Final = 8192
REQUEST_TIMEOUT_S: Final = 10.0
MAX_CONNECTIONS: Final = 16
BACKLOG: Final = 100
"""The maximum number of connections that wait to be accepted."""

_USERS: Final = "metrics.users.location"
_TOKENS: Final = "metrics.bearer.token.location"


class MetricsListener:
    """The sockets that serve the metrics and the health of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        threads: Threads,
        metrics: Metrics,
        log: Any,
        problem: Callable[[], Awaitable[str | None]],
    ) -> None:
        """Prepare the listener. For `GET /health`, `problem` returns the reason why the broker cannot serve, if any."""
        row = config.read_metrics_listener()
        assert row is not None, "metrics.listener is set"
        self.host = row.host
        self.port = row.port
        self._row = row
        self._config = config
        self._threads = threads
        self._metrics = metrics
        self._log = log
        self._problem = problem
        self._access: HttpAccess | None = None
        self._tls: WatchedContext | None = None
        self._accepting: list[asyncio.Task[None]] = []
        self._serving: dict[asyncio.Task[Any], None] = {}
        self._files_usable = True
        self._turns = TlsTurns()

    async def start(self) -> None:
        """Read the files, bind the listener's address, set `port` to the real port, and accept connections.

        Raises OSError if the address cannot be bound, and ConfigError if a file cannot be used.
        """
        self._metrics.exposition()  # imports prometheus-client now, so that the first client need not wait for it
        self._access = await self._threads.run(Lane.LOGIN, self._read_credentials)
        if self._row.protocol.uses_tls:
            from ..security.tls import ListenerTls

            tls = ListenerTls(self._row, self._config.of_listener(self._row.name))
            self._tls = WatchedContext(tls, self._threads, self._log)
            await self._tls.start(self._config.ssl_reload_interval_ms / 1000)
        for listening in _bind(self.host, self.port):
            self.port = listening.getsockname()[1]
            task = asyncio.create_task(self._accept(listening))
            task.add_done_callback(partial(_close, listening))
            self._accepting.append(task)
        scheme = "http" if self._tls is None else "https"
        self._log.info("metrics_ready", scheme=scheme, host=self.host, port=self.port)

    def _read_credentials(self) -> HttpAccess | None:
        """Return the object that decides which clients are admitted; None admits all. Blocks. Raises ConfigError."""
        users = NamedFile(_USERS, self._config.metrics_users_location)
        tokens = NamedFile(_TOKENS, self._config.metrics_bearer_token_location)
        if not (users.path or tokens.path):
            return None
        return HttpAccess.of_files(
            users,
            tokens,
            lambda check: self._threads.run(Lane.LOGIN, check),
            ConfigError,
        )

    async def stop(self) -> None:
        """Close the listening sockets and the connections whose requests are still being answered."""
        if self._tls is not None:
            self._tls.stop()
        tasks = [*self._accepting, *self._serving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for count in itertools.count(1):
            if count % ACCEPTED_AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                peer, address = await loop.sock_accept(listening)
            except OSError as error:  # no descriptor is left, or the peer has gone
                self._log.debug("metrics_connection_not_accepted", error=str(error))
                await asyncio.sleep(PAUSE_S)
                continue
            if len(self._serving) >= MAX_CONNECTIONS:
                oldest = next(iter(self._serving))
                del self._serving[oldest]  # several new connections may arrive before its task has ended
                oldest.cancel()
            task = loop.create_task(self._serve(peer, str(address[0])))
            self._serving[task] = None
            task.add_done_callback(partial(self._served, peer))

    def _served(self, peer: socket.socket, task: asyncio.Task[None]) -> None:
        self._serving.pop(task, None)
        peer.close()  # already closed by the transport, unless there was none

    async def _serve(self, peer: socket.socket, host: str) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                reader, writer = await self._connected(peer, host)
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head.split(b"\r\n"), host))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except ssl.SSLError as error:
            if writer is None:
                self._log.info("tls_handshake_failed", listener=self._row.name, peer=host, why=reason_of(error))
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the peer closed the connection or sent no complete request
        finally:
            if writer is not None:
                writer.transport.abort()

    async def _connected(self, peer: socket.socket, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Complete the TLS handshake, if any, and return the connection's streams. Raises OSError and TimeoutError."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        if self._tls is None:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, peer)
        else:
            network = network_of(host)
            await first_message(peer)
            await self._turns.steps.turn(network)
            context, turns = self._tls.get(), self._turns
            transport = await shake_hands(lambda _: protocol, peer, context, REQUEST_TIMEOUT_S, turns, network)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _answer(self, head: list[bytes], host: str) -> bytes:
        method, target = (*head[0].split(b" "), b"", b"")[:2]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET /metrics or /health\n")
        path = target.partition(b"?")[0]
        try:
            admitted = await self._admits(head[1:], host)
        except (OSError, ValueError):
            return _response("503 Service Unavailable", b"the credentials cannot be checked; see the broker's log\n")
        if not admitted and not (path == b"/health" and self._config.metrics_health_public):
            assert self._access is not None
            challenge = f"WWW-Authenticate: {self._access.challenge}\r\n"
            return _response("401 Unauthorized", b"send credentials\n", challenge)
        status = "200 OK"
        match path:
            case b"/metrics":
                body = self._metrics.exposition()
            case b"/health":
                problem = await self._problem()
                status = "503 Service Unavailable" if problem else status
                reason = problem if admitted or problem is None else "unhealthy"
                body = f"{reason or 'healthy'}\n".encode()
            case _:
                return _response("404 Not Found", b"/metrics and /health are here\n")
        answer = _response(status, body)
        return answer[: len(answer) - len(body)] if method == b"HEAD" else answer

    async def _admits(self, fields: list[bytes], host: str) -> bool:
        """Return whether a request with these header fields is admitted.

        Raises OSError or ValueError if a file with credentials cannot be used.
        """
        if self._access is None:
            return True
        authorization = _authorization(fields)
        try:
            admitted = await self._access.admits(authorization)
        except (OSError, ValueError) as error:
            if self._files_usable:
                remedy = "correct the file; until then requests with credentials are answered with 503"
                self._log.error("metrics_credentials_unusable", why=str(error), remedy=remedy)
            self._files_usable = False
            raise
        if authorization is not None:
            self._files_usable = True
            if not admitted:
                self._log.info("metrics_credentials_refused", peer=host)
        return admitted


def _close(listening: socket.socket, _: asyncio.Task[None]) -> None:
    listening.close()  # not earlier: the event loop may watch the socket until the task has ended


def _authorization(fields: list[bytes]) -> str | None:
    """Return the value of the header `Authorization`, or None if the header is missing or repeated."""
    named = [field.partition(b":") for field in fields]
    values = [value for name, _, value in named if name.lower() == b"authorization"]
    return values[0].strip().decode("latin-1") if len(values) == 1 else None


def _bind(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of the host, or one for all interfaces. Raises OSError."""
    if not host:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        bound = [socket.create_server(("", port), family=family, backlog=BACKLOG, dualstack_ipv6=dual)]
    else:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        bound = []
        try:
            for family, address in dict.fromkeys((info[0], info[4]) for info in infos):
                bound.append(socket.create_server((str(address[0]), port), family=family, backlog=BACKLOG))
        except OSError:
            for listening in bound:
                listening.close()
            raise
    for listening in bound:
        listening.setblocking(False)
    return bound


def _response(status: str, body: bytes, fields: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n{fields}Connection: close\r\n\r\n"
    )
    return head.encode() + body
