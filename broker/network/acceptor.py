"""Accept the connections of a listener at a limited rate (KIP-612), and shake hands with TLS peers.

A TLS connection counts towards all limits from the moment it is accepted. If the handshake fails or does not end within
`connection.authentication.timeout.ms`, the connection is closed, and a log line states the reason.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ...auth.stores import reason_of
from ..security.client_host import network_of
from .connection import Connection
from .connection_rate import ConnectionRate
from .handshake import first_message, shake_hands
from .shared_limits import SharedLimits

PAUSE_S: Final = 1.0
"""Seconds until the next attempt to accept a connection after an attempt has failed, as in asyncio's servers."""

ACCEPTED_AT_ONCE: Final = 32
"""The number of waiting connections that are accepted before the event loop gets time for other tasks."""

LEAST_TIMEOUT_S: Final = 1.0
"""The minimum number of seconds that a handshake may take from its beginning, even if the peer begins it late."""

NO_CERTIFICATE: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
"""The reason that OpenSSL reports if a client has not sent the required certificate."""

_OF_THE_PEER: Final = (errno.ECONNABORTED, errno.EPROTO, errno.EINTR)
"""Errors of `accept` after which it is called again at once, usually because the peer has closed its connection."""


class Acceptor:
    """Accepts the connections of one listening socket, and shakes hands with many TLS peers at a time."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], Connection],
        context: Callable[[], ssl.SSLContext] | None,
        limits: SharedLimits,
        rates: Sequence[ConnectionRate],
        timeout_s: float,
        log: Any,
        refused: Callable[[str, str], None],
    ) -> None:
        """Prepare to accept connections on the socket `listening`, which listens already.

        `make` returns the protocol object of a connection. With TLS, it is called after the handshake. The acceptor
        counts each TLS connection in `limits` as soon as it is accepted. The listener counts all other connections.
        `context` returns the TLS context for a new handshake; it is None for a listener without TLS. `rates` limit how
        fast connections are accepted. `refused` is called with the address of a client whose certificate is missing or
        not trusted, and with the reason.
        """
        self._listening = listening
        self._make = make
        self._context = context
        self._limits = limits
        self._rates = rates
        self._timeout_s = timeout_s
        self._log = log
        self._refused = refused
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._accepting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Accept connections until `stop`."""
        self._accepting = self._loop.create_task(self._accept())
        # The event loop may watch the socket until the task has ended.
        self._accepting.add_done_callback(self._ended)

    def _ended(self, accepting: asyncio.Task[None]) -> None:
        self._listening.close()
        if not accepting.cancelled() and (error := accepting.exception()) is not None:
            self._log.error("listener_failed", exc_info=error)

    def stop(self) -> None:
        """Close the listening socket and the connections whose handshake has not ended."""
        for task in (self._accepting, *self._handshakes):
            if task is not None:
                task.cancel()

    async def _accept(self) -> None:
        for count in itertools.count(1):
            if count % ACCEPTED_AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                peer, address = await self._loop.sock_accept(self._listening)
            except OSError as error:
                if error.errno not in _OF_THE_PEER:
                    remedy = "if the limit of open files is reached, raise it (ulimit -n)"
                    self._log.warning("connection_not_accepted", error=str(error), remedy=remedy)
                    await asyncio.sleep(PAUSE_S)
                continue
            try:
                await self._until_the_rate_admits_one()
            except asyncio.CancelledError:
                peer.close()
                raise
            made: list[Connection] = []
            if self._context is None:
                self._begin(self._connect(peer, made), peer, None, made)
                continue
            host = str(address[0])
            if (limit := self._limits.opened(host)) is not None:
                self._log.warning("connection_refused", limit=limit.name, value=limit.value, peer=host)
                peer.close()
                self._limits.closed(host)
                continue
            if wait_s := self._limits.quotas.connect(host):
                self.take_back()
                self._begin(self._refuse(host, wait_s), peer, host, made)
            else:
                self._begin(self._shake_hands(peer, host, self._context, made), peer, host, made)

    def _begin(
        self, work: Coroutine[Any, Any, None], peer: socket.socket, counted: str | None, made: list[Connection]
    ) -> None:
        """Start `work`, which makes a connection from the socket `peer`, and adds its protocol object to `made`.

        If `work` ends before the connection is registered with the listener, `peer` is closed here and no longer counts
        towards the limits. A registered connection is closed by the listener. `counted`: the host for which `peer` was
        counted, or None.
        """

        def ended(task: asyncio.Task[None]) -> None:  # also runs if `work` is cancelled before it begins
            del self._handshakes[task]
            if made and made[0].is_registered:
                return
            peer.close()
            if counted is not None:
                self._limits.closed(counted)

        task = self._loop.create_task(work)
        self._handshakes[task] = None
        task.add_done_callback(ended)

    def _made(self, made: list[Connection], below_tls: asyncio.WriteTransport | None = None) -> Connection:
        connection = self._make()
        connection.below_tls = below_tls
        made.append(connection)
        return connection

    async def _until_the_rate_admits_one(self) -> None:
        now = self._loop.time()
        if wait_s := max((rate.record(now) for rate in self._rates), default=0.0):
            await asyncio.sleep(wait_s)

    def take_back(self) -> None:
        """Stop counting the last accepted connection towards the rates, because it exceeds the limit of its address."""
        now = self._loop.time()
        for rate in self._rates:
            rate.take_back(now)

    async def _connect(self, peer: socket.socket, made: list[Connection]) -> None:
        """Serve a connection without TLS."""
        with suppress(OSError):  # the peer has gone
            await self._loop.connect_accepted_socket(lambda: self._made(made), peer)

    async def _shake_hands(
        self, peer: socket.socket, host: str, context: Callable[[], ssl.SSLContext], made: list[Connection]
    ) -> None:
        deadline = self._loop.time() + self._timeout_s
        try:
            turns, network = self._limits.tls, network_of(host)
            await self._until_its_turn(peer, network, deadline)
            timeout_s = max(deadline - self._loop.time(), LEAST_TIMEOUT_S)
            make = partial(self._made, made)
            await shake_hands(make, peer, context(), timeout_s, turns, network, lambda: made[0].progress)
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            self._failed(host, error)

    async def _until_its_turn(self, peer: socket.socket, network: str, deadline: float) -> None:
        """Wait until the peer begins its handshake, then for a turn (`turns.py`). Raises OSError or TimeoutError."""
        try:
            async with asyncio.timeout_at(deadline):
                await first_message(peer)
                await self._limits.tls.steps.turn(network)
        except TimeoutError:
            raise TimeoutError("the handshake has not begun within connection.authentication.timeout.ms") from None

    async def _refuse(self, host: str, wait_s: float) -> None:
        """Close a connection after a delay, because its address has used up `connection_creation_rate` (KIP-612)."""
        await asyncio.sleep(wait_s)
        reason = "the client's address has used up its connection_creation_rate"
        self._log.info("connection_closed", reason=reason, peer=host)

    def _failed(self, host: str, error: OSError) -> None:
        if isinstance(error, ssl.SSLCertVerificationError) or getattr(error, "reason", "") == NO_CERTIFICATE:
            self._refused(host, reason_of(error))
        self._log.info("tls_handshake_failed", peer=host, why=reason_of(error))
