"""Accept connections within the configured limits, close idle ones, and shut down in an orderly way.

Each listener of the broker has a `Listener`, which owns its open connections. These connections share their limits with
the connections of the other listeners (`SharedLimits`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...auth.principal import ANONYMOUS, Principal
from ..config import BrokerConfig
from ..dispatcher import Dispatcher
from ..listener_config import ListenerConfig
from ..observability.audit import AuditLog
from .acceptor import PAUSE_S, Acceptor
from .connection import Connection
from .connection_rate import ConnectionRate
from .shared_limits import SharedLimits

if TYPE_CHECKING:  # imported only for listeners with SASL
    from ..security.login import Login, LoginRules

IDLE_SWEEP_S: Final = 30.0
SWEPT_AT_ONCE: Final = 200
"""The number of connections examined in one turn of the event loop. Closing one takes about 15 microseconds."""
STALLED_S: Final = 0.5
"""Seconds for which a stopping listener waits while no peer reads its responses."""
_ids = itertools.count(1)


class TlsSide(Protocol):
    """What TLS provides to a listener: the contexts for handshakes, and the principals of clients."""

    def get(self) -> ssl.SSLContext:
        """Return the context for a handshake that begins now."""

    def principal(self, connection: Any) -> Principal | None:
        """Return the principal of a client after its handshake, or None if no mapping rule matches its subject."""


class Listener:
    """A bound socket and its open connections."""

    def __init__(
        self,
        listener: ListenerConfig,
        config: BrokerConfig,
        dispatcher: Dispatcher,
        log: Any,
        limits: SharedLimits,
        audit: AuditLog,
        tls: TlsSide | None = None,
        logins: LoginRules | None = None,
    ) -> None:
        """Prepare a listener.

        `tls` is None for a listener without TLS, and `logins` for one without SASL.
        """
        self.name = listener.name
        self.config = config
        self.log = log.bind(listener=listener.name)
        self.limits = limits
        self.audit = audit
        self.memory, self.answers = limits.memory, limits.answers
        self.turns, self.newcomers = limits.turns, limits.newcomers
        self.quotas = limits.quotas
        self.host = listener.host
        self.port = listener.port
        self._tls = tls
        self._logins = logins
        self._dispatcher = dispatcher
        self._bound: socket.socket | None = None
        self._listening: socket.socket
        self._server: asyncio.Server | None = None
        self._rates: Sequence[ConnectionRate] = ()
        self._acceptor: Acceptor | None = None
        self._connections: dict[Connection, None] = {}
        self._sweep: asyncio.Handle | None = None
        self._stopping = False
        self._all_closed: asyncio.Event = asyncio.Event()

    def bind(self) -> None:
        """Bind the listener's address and set `port` to the real port. Clients cannot connect to it yet.

        Raises OSError.
        """
        self._bound = self._bind()
        self._bound.setblocking(False)
        self.port = self._bound.getsockname()[1]

    async def accept(self) -> None:
        """Accept connections. Raises OSError if another program has begun to listen on the address."""
        assert self._bound is not None, "bound"
        loop = asyncio.get_running_loop()
        sock, self._bound = self._bound, None
        await self._serve(sock, loop)
        self._schedule_sweep(loop)

    async def _serve(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """Accept connections on a bound socket."""
        backlog = self.config.socket_listen_backlog_size
        try:
            sock.listen(backlog)  # uvloop's create_server does not report that another program listens
        except OSError:
            sock.close()
            raise
        self._rates = self.limits.rates(self.name)
        if self._needs_acceptor:
            self._start_acceptor(sock, loop)
            return
        self._listening = sock
        self._server = await loop.create_server(lambda: self._make(loop), sock=sock, backlog=backlog)

    @property
    def _needs_acceptor(self) -> bool:
        """Whether an `Acceptor` is needed: for TLS, or to delay connections above a rate."""
        return self._tls is not None or any(rate.is_limited for rate in self._rates)

    def _start_acceptor(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        context = None if self._tls is None else self._tls.get
        timeout_s = self.config.connection_authentication_timeout_ms / 1000
        self._acceptor = Acceptor(
            sock, lambda: self._make(loop), context, self.limits, self._rates, timeout_s, self.log, self._refused
        )
        self._acceptor.start()

    def limits_changed(self) -> None:
        """Use an `Acceptor` if a new limit on the rate of connections (`SharedLimits.changed`) requires one."""
        if self._server is None or not self._needs_acceptor or self._stopping:
            return
        loop = asyncio.get_running_loop()
        try:
            sock = self._listening.dup()  # keeps the connections that wait to be accepted
        except OSError as error:  # there is no descriptor left
            self.log.warning(
                "connection_rate_not_limited",
                error=str(error),
                remedy="no action is needed: the broker tries again every second",
            )
            loop.call_later(PAUSE_S, self.limits_changed)
            return
        self._server.close()
        self._server = None
        self._start_acceptor(sock, loop)

    def _refused(self, host: str, why: str) -> None:
        self.audit.login_refused("SSL", why, host, self.name)

    def _make(self, loop: asyncio.AbstractEventLoop) -> Connection:
        """Return the protocol object of a new connection."""
        return Connection(next(_ids), self, self._dispatcher, loop)

    def _bind(self) -> socket.socket:
        """Return a bound socket. An empty host means all interfaces, including IPv6 where the system supports it."""
        host = self.host
        if host in ("", "::"):
            if socket.has_dualstack_ipv6():
                with contextlib.suppress(OSError):
                    return self._bind_one(socket.AF_INET6, ("::", self.port), dual=True)
            host = "0.0.0.0"
        infos = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = infos[0]
        return self._bind_one(family, address)

    def _bind_one(self, family: int, address: Any, dual: bool = False) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if dual:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            if self.config.socket_receive_buffer_bytes > 0:
                # Set this before listen(): accepted sockets inherit it, and the handshake agrees on the window scale.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.config.socket_receive_buffer_bytes)
            sock.bind(address)
        except OSError:
            sock.close()
            raise
        return sock

    # ---- connections

    def principal_of(self, connection: Any) -> Principal | None:
        """Return the principal that a client's TLS certificate proves, or None if no mapping rule matches its subject.

        A client without TLS is ANONYMOUS. A client of a SASL listener is ANONYMOUS, too, until it has logged in.
        """
        return ANONYMOUS if self._tls is None or self._logins is not None else self._tls.principal(connection)

    def new_login(self, connection: Connection) -> Login | None:
        """Return the login of a new connection; None without SASL."""
        if self._logins is None:
            return None
        from ..security.login import Login

        return Login(self._logins, connection, asyncio.get_running_loop().time)

    def opened(self, connection: Connection, sock: socket.socket | None) -> None:
        """Register a new connection, and close it if a limit is reached (`SharedLimits.opened`) or the listener stops.

        A TLS connection has been counted before its handshake.
        """
        self._connections[connection] = None
        limit = self.limits.opened(connection.peer_host) if self._tls is None else None
        if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Keepalive detects a peer that disappeared without closing, even while its request waits for hours.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self.config.socket_send_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.config.socket_send_buffer_bytes)
        if self._stopping:
            connection.abort()  # accepted before the listening socket was closed
        elif limit is not None:
            self.log.warning("connection_refused", limit=limit.name, value=limit.value, peer=connection.peer_host)
            connection.abort()
        elif self._tls is None and (wait_s := self.quotas.connect(connection.peer_host)):
            if self._acceptor is not None:
                self._acceptor.take_back()
            connection.refuse(wait_s)

    def lost(self, connection: Connection) -> None:
        """Forget a closed connection."""
        del self._connections[connection]
        self.limits.closed(connection.peer_host)
        if not self._connections:
            self._all_closed.set()

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def _schedule_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        limits = [self.config.connections_max_idle_ms, self.config.connection_request_idle_ms]
        pauses = [limit / 2000 for limit in limits if limit > 0]
        if pauses:
            self._sweep = loop.call_later(min(IDLE_SWEEP_S, *pauses), self._close_idle, loop)

    def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        self._close_idle_among(iter(list(self._connections)), loop)

    def _close_idle_among(self, connections: Iterator[Connection], loop: asyncio.AbstractEventLoop) -> None:
        """Close the idle ones of `connections`. Examine `SWEPT_AT_ONCE` connections in each turn of the event loop."""
        now = loop.time()
        idle_s = self.config.connections_max_idle_ms / 1000
        request_s = self.config.connection_request_idle_ms / 1000
        portion = list(itertools.islice(connections, SWEPT_AT_ONCE))
        for connection in portion:
            if connection not in self._connections:
                continue
            connection.count_unsent()
            connection.note_taken(now)
            quiet_s = now - connection.last_active
            if 0 < idle_s < quiet_s and connection.idle:
                connection.evict("idle for connections.max.idle.ms")
            elif 0 < request_s < quiet_s and connection.receiving:
                connection.evict("its request arrived in part and did not continue for connection.request.idle.ms")
        if len(portion) == SWEPT_AT_ONCE:
            self._sweep = loop.call_soon(self._close_idle_among, connections, loop)
        else:
            self._schedule_sweep(loop)

    # ---- shutdown

    def stop_accepting(self) -> None:
        """Close the listening socket; open connections stay open."""
        self._stopping = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for listening in (self._bound, self._server):
            if listening is not None:
                listening.close()
        if self._acceptor is not None:
            self._acceptor.stop()

    def drain(self) -> None:
        """Stop executing requests; those that are already being executed are still answered."""
        for connection in list(self._connections):
            connection.drain()

    async def finish(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds until the requests being executed are answered, then close all connections.

        The wait ends early if all remaining peers have read nothing for `STALLED_S` seconds.
        """
        loop = asyncio.get_running_loop()
        started = moved = loop.time()
        unsent_before = -1
        self.drain()
        # A transport does not report when its buffer is empty, so the buffers are polled.
        while (now := loop.time()) < started + timeout_s:
            busy = [connection for connection in self._connections if connection.busy]
            unsent = sum(connection.unsent for connection in busy)
            if unsent != unsent_before or not all(connection.unsent for connection in busy):
                moved, unsent_before = now, unsent
            if not busy or now - moved >= STALLED_S:
                break
            await asyncio.sleep(0.005)
        abandoned = sum(connection.busy for connection in self._connections)
        if abandoned:
            waited_ms = round((loop.time() - started) * 1000)
            self.log.warning("requests_abandoned", connections=abandoned, waited_ms=waited_ms)
        self._all_closed.clear()
        closing = [connection.send_rest() for connection in list(self._connections)]
        if any(closing):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STALLED_S):
                    await self._all_closed.wait()
        for connection in list(self._connections):
            connection.give_up()
        if self._connections:
            self._all_closed.clear()
            await self._all_closed.wait()
