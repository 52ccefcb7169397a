"""A TCP connection to a broker: requests are pipelined, and responses come back in the same order.

A connection handles correlation ids, framing, the negotiation of versions, the login and the timeout of each request.
It never retries or reconnects, and knows nothing about topics. When a response does not arrive in time, the connection
closes and all its unanswered requests fail.

If the broker limits the lifetime of a login, the client logs in again on the same connection (KIP-368). The first
request after most of the lifetime has passed starts the new login. All requests are held back until the login has
succeeded, because the broker accepts no other requests between the messages of a login. If the client has used more
than its quota, requests are also held back for the throttle time that the broker's response states (KIP-219).

Invariants: a response belongs to the oldest unanswered request, or the connection closes. A future of `send` or `post`
is always resolved, at the latest by its timeout. After `close` nothing is written.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import random
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ..auth.stores import reason_of
from ..auth.tls_writes import write_in_portions
from ..protocol.codec import DecodeError
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.framing import decode_response, encode_request
from ..protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ..protocol.schema import Buffer, Request, Response
from ..version import VERSION
from .errors import KafkaTimeoutError, NetworkError, NotKafkaError, TlsError, error_for
from .foreign import foreign_answer
from .versions import EXTENSION_VERSION, ApiVersionTable

if TYPE_CHECKING:
    from .login.mechanisms import Mechanism

R = TypeVar("R", bound=Response)
log = logging.getLogger(__name__)

SMALL: Final = 65_536
"""Size of the buffer for small responses, in bytes. A longer response gets its own buffer."""

_CORRELATION_IDS: Final = 2**31
RENEWAL_WINDOW: Final = (0.85, 0.95)
"""Minimum and maximum share of a login's lifetime after which a request starts a new login. As in Kafka's client, the
share is random.
"""
CLOSED_HERE: Final = "closed by this client"
SHUTDOWN_S: Final = 5.0
"""Maximum seconds for the shutdown of a TLS connection, during which its last bytes are sent."""
LOOK_S: Final = 0.005
"""Seconds between two checks of whether the socket has taken the bytes that TLS has passed on."""
_CLOSED_BY_PEER: Final = "the broker closed the connection"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Options of all connections of a client.

    `extension_version` is sent to brokers with the extension; -1 means none. `tls` encrypts the connections; None means
    no TLS. `login` logs in on each connection; None means no SASL.
    """

    client_id: str
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    max_response_bytes: int = 256 * 1024 * 1024
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    extension_version: int = EXTENSION_VERSION
    tls: ssl.SSLContext | None = None
    login: Mechanism | None = None

    @property
    def doubt(self) -> str:
        """The question that ends the error message about a broker that accepts a connection but does not respond."""
        sasl = "SASL_" if self.login is not None else ""
        if self.tls is None:
            return f"is that a {sasl}PLAINTEXT listener of a Kafka broker, or does it expect TLS?"
        listener = f"a {sasl}SSL" if sasl else "an SSL"
        return f"is that {listener} listener of a Kafka broker, and does it demand another certificate?"


class _Unanswered:
    """A request that waits for its response."""

    __slots__ = ("correlation_id", "deadline", "future", "request", "version")

    def __init__(
        self, correlation_id: int, request: Request[Any], version: int, future: asyncio.Future[Any], deadline: float
    ) -> None:
        self.correlation_id = correlation_id
        self.request = type(request)
        self.version = version
        self.future = future
        self.deadline = deadline


def _reason(error: Exception) -> str:
    """Return why no connection was made: the operating system's text if `error` has a code, else the error's text."""
    if isinstance(error, socket.gaierror):  # its codes are not those of strerror
        return f"{error.strerror}"
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


class Connection(asyncio.BufferedProtocol):
    """An open connection to a broker, made by `Connection.open`."""

    def __init__(self, address: str, options: ConnectionOptions) -> None:
        self.address = address
        self.options = options
        self.versions = ApiVersionTable(ApiVersionsResponse())
        self.last_used = 0.0
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._below_tls: asyncio.Transport | None = None
        """The transport of the socket if `_transport` is the transport of TLS; None without TLS."""
        self.extension_aware = False
        """Whether broker and client both use the transaction extension. Each connection negotiates it, because a
        restart may upgrade or downgrade the broker.
        """
        self._unanswered: deque[_Unanswered] = deque()
        self._posted: deque[tuple[asyncio.Future[None], float]] = deque()
        """Requests that `post` has written and the socket has not taken yet: (future, deadline in loop time)."""
        self._choked = False
        """Whether asyncio has paused writing, because its write buffer for the socket is full."""
        self._looking: asyncio.Handle | None = None
        """The scheduled next check whether the socket has taken what TLS has passed on."""
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._has_read = False
        """Whether bytes have arrived since the timer fired."""
        self._why: str | None = None
        self._has_posted = False
        self._speaks_kafka = False
        """Whether the peer has sent a valid response. Until then its bytes may belong to another protocol."""
        self._is_ready = False
        """Whether the peer has answered a request other than ApiVersions."""
        self._login_due = math.inf
        """Loop time from which the next request starts a new login."""
        self._login: asyncio.Task[None] | None = None
        self._held: list[tuple[list[Buffer], _Unanswered | None]] | None = None
        """Requests that wait for the end of a new login or of a throttle time; None outside of these. A request of
        `post` has no _Unanswered.
        """
        self._throttle: asyncio.TimerHandle | None = None
        """The timer that ends the current throttle time; None outside of a throttle time."""
        self._foreign = False
        self._refused = False
        """Whether the broker has ended the TLS handshake."""
        self._small = bytearray(SMALL)
        self._small_view = memoryview(self._small)
        self._filled = 0
        self._large: bytearray | None = None

    @classmethod
    async def open(
        cls, host: str, port: int, options: ConnectionOptions, connected: Callable[[], None] = lambda: None
    ) -> Connection:
        """Connect, negotiate versions and log in.

        Raises NetworkError, KafkaTimeoutError, UnsupportedVersionError or AuthenticationError.

        `connected` is called when the peer has accepted the connection, before it has sent a response.
        """
        address = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        connection = cls(address, options)
        scope = asyncio.timeout(options.connect_timeout_s)
        try:
            async with scope:
                if options.tls is None:
                    await loop.create_connection(lambda: connection, host, port)
                else:
                    await connection._connect_with_tls(host, port, options.tls)
        except ssl.SSLError as error:
            reason = reason_of(error)
            if _is_alert(error):
                reason += f": {options.doubt}"
            raise TlsError(ErrorCode.NETWORK_EXCEPTION, f"no connection to {address}: {reason}") from error
        except (OSError, ValueError, OverflowError) as error:  # ValueError, OverflowError: invalid host or port
            if not scope.expired():
                reason = _reason(error)
                if options.tls is not None and isinstance(error, ConnectionResetError):
                    reason = f"it was closed during the TLS handshake: {options.doubt}"
                raise NetworkError(ErrorCode.NETWORK_EXCEPTION, f"no connection to {address}: {reason}") from error
            raise KafkaTimeoutError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"no connection to {address} within socket.connection.setup.timeout.ms = "
                f"{options.connect_timeout_s * 1000:.0f}",
            ) from None
        connected()
        try:
            await connection._negotiate()
            await connection._log_in()
        except BaseException:
            connection.close("the negotiation of versions or the login failed")
            raise
        return connection

    async def _connect_with_tls(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Connect and do the TLS handshake. Raises OSError, such as its subclass ssl.SSLError."""
        plain, _ = await self._loop.create_connection(asyncio.Protocol, host, port)
        reset = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if plain.is_closing():
            raise reset
        transport = await self._loop.start_tls(
            plain,
            self,
            context,
            server_hostname=host,
            ssl_handshake_timeout=self.options.connect_timeout_s,  # the time to connect includes the handshake
            ssl_shutdown_timeout=SHUTDOWN_S,
        )
        if transport is None:
            raise reset
        if self._why is None:
            self._below_tls = plain
            self.connection_made(transport)
        else:  # the peer has refused the certificate, or has sent something that is not Kafka's protocol
            transport.abort()

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed, so that no request can be sent."""
        return self._transport is None

    @property
    def finalized_features(self) -> dict[str, int]:
        """The cluster's finalized features, name → level (KIP-584)."""
        return self.versions.finalized_features

    @property
    def unanswered(self) -> int:
        """The number of requests that have not been written, or have no response yet."""
        return len(self._unanswered) + len(self._posted) + len(self._held or ())

    def version_of(self, request: type[Request[Any]], at_most: int = 32767) -> int:
        """Return the newest version that client and broker share. Raises UnsupportedVersionError if there is none."""
        return self.versions.version_of(request, at_most)

    def supports(self, request: type[Request[Any]], version: int) -> bool:
        """Return whether client and broker both support exactly this version."""
        return self.versions.supports(request, version)

    def send(
        self, request: Request[R], version: int | None = None, timeout_s: float | None = None
    ) -> asyncio.Future[R]:
        """Write a request. The returned future gets the response, or fails with NetworkError or KafkaTimeoutError.

        Without `version` the newest version that client and broker both support is used. Error codes in the response
        are not checked. Raises NetworkError at once on a closed connection, and EncodeError for a value that the
        version cannot carry; in both cases nothing was written.
        """
        if version is None:
            version = self.versions.version_of(type(request))
        if self._loop.time() >= self._login_due:
            self._renew_login()
        return self._request(request, version, timeout_s, self._held)

    async def call(self, request: Request[R], version: int | None = None, timeout_s: float | None = None) -> R:
        """Send a request and return its response. Raises the errors of `send` and of its future."""
        return await self.send(request, version, timeout_s)

    def post(self, request: Request[Any], version: int | None = None) -> asyncio.Future[None]:
        """Write a request without a response (Produce with acks=0).

        The future is done when the socket has taken the request, or the connection is closed. Whether the request
        arrives is unknown. Raises NetworkError at once on a closed connection.
        """
        if self._transport is not None:
            # asyncio then calls resume_writing when everything is written; for that, TLS needs a limit above 0.
            self._transport.set_write_buffer_limits(int(self.options.tls is not None), 0)
        self._has_posted = True
        if self._loop.time() >= self._login_due:
            self._renew_login()
        _, pieces = self._encoded(request, self.versions.version_of(type(request)) if version is None else version)
        if self._held is None:
            self._write(pieces)
        else:
            self._held.append((pieces, None))
        self.last_used = now = self._loop.time()
        future: asyncio.Future[None] = self._loop.create_future()
        if self._choked or self._held is not None or self._has_bytes_below_tls():
            deadline = self._sent_at(now) + self.options.request_timeout_s
            self._posted.append((future, deadline))
            self._arm(deadline)
            if not self._choked and self._held is None:
                self._look_again(self._loop.call_soon(self._look))
        else:
            future.set_result(None)
        return future

    def close(self, why: str = CLOSED_HERE) -> None:
        """Close the connection now; unanswered requests fail with NetworkError."""
        if self._why is None:
            self._why = why
        transport = self._transport
        if transport is not None:
            self._lost()
            if self._has_posted and self._why == CLOSED_HERE and self.options.tls is not None:
                transport.close()  # sends the bytes of requests that the TLS transport may hold, but does not report
            else:
                transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed."""
        await asyncio.shield(self.closed)

    # -- writing

    def _request(
        self,
        request: Request[R],
        version: int,
        timeout_s: float | None,
        held: list[tuple[list[Buffer], _Unanswered | None]] | None,
    ) -> asyncio.Future[R]:
        """Write a request, or append it to `held`. Return the future of its response."""
        correlation_id, pieces = self._encoded(request, version)
        now = self._loop.time()
        begun = now if held is None else self._sent_at(now)
        deadline = begun + (self.options.request_timeout_s if timeout_s is None else timeout_s)
        future: asyncio.Future[R] = self._loop.create_future()
        unanswered = _Unanswered(correlation_id, request, version, future, deadline)
        if held is None:
            self._write(pieces)
            self._unanswered.append(unanswered)
        else:
            held.append((pieces, unanswered))
        self.last_used = now
        self._arm(deadline)
        return future

    def _sent_at(self, now: float) -> float:
        """Return the earliest time, as far as it is known, at which requests that are held back can be written."""
        return now if self._throttle is None else max(now, self._throttle.when())

    def _encoded(self, request: Request[Any], version: int) -> tuple[int, list[Buffer]]:
        """Return a new correlation id and the request's bytes. Raises NetworkError on a closed connection."""
        if self._transport is None:
            raise self._network_error()
        self._correlation_id = correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        options = self.options
        extension = options.extension_version if self.extension_aware else -1
        return correlation_id, encode_request(request, version, correlation_id, options.client_id, extension)

    def _write(self, pieces: list[Buffer]) -> None:
        assert self._transport is not None
        if self.options.tls is None:
            self._transport.writelines(pieces)
        else:
            write_in_portions(self._transport, pieces)

    # -- negotiation

    async def _negotiate(self) -> None:
        newest = ApiVersionsRequest.spec.stable.high
        response = await self.call(_hello(), newest)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The response is in v0, and since Kafka 2.4 it lists the broker's versions of ApiVersions (KIP-511).
            theirs = ApiVersionTable(response).highest(ApiVersionsRequest)
            response = await self.call(_hello(), max(0, min(theirs, newest - 1)))
        if response.error_code:
            raise error_for(response.error_code, f"{self.address} refused ApiVersions")
        self.versions = ApiVersionTable(response)
        self.extension_aware = self.versions.has_extension and self.options.extension_version >= EXTENSION_VERSION

    # -- login

    async def _log_in(self) -> None:
        mechanism = self.options.login
        if mechanism is None:
            return
        from .login.exchange import log_in  # slow to import, and not needed without SASL

        lifetime_s = await log_in(
            mechanism, self.address, self.versions, lambda request, version: self._request(request, version, None, None)
        )
        if lifetime_s:
            self._login_due = self._loop.time() + lifetime_s * random.uniform(*RENEWAL_WINDOW)

    def _renew_login(self) -> None:
        """Begin a new login, and hold all requests back until it has succeeded."""
        if self._transport is None:
            raise self._network_error()
        if self._login is not None:
            return  # it has ended just now, and the session is about to expire again
        self._login_due = math.inf
        self._held = self._held or []
        self._login = asyncio.create_task(self._log_in(), name=f"new login at {self.address}")
        # Not a part of the task: other code may cancel the task before its first step.
        self._login.add_done_callback(self._login_ended)

    def _login_ended(self, task: asyncio.Task[None]) -> None:
        self._login = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self._write_held()
            return
        # If the error persists, the next attempt to connect raises it to the callers.
        if isinstance(error, Exception) and not isinstance(error, KafkaError):
            log.error("could not log in again at %s to renew the session", self.address, exc_info=error)
        self.close(f"the login could not be renewed: {str(error) or type(error).__name__}")

    # -- quotas

    def _wait(self, seconds: float) -> None:
        """Hold all requests back for this time, because the client has used more than its quota."""
        if self._transport is None:
            return
        if self._throttle is not None:
            if self._throttle.when() >= self._loop.time() + seconds:
                return
            self._throttle.cancel()
        self._held = self._held or []
        self._throttle = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._throttle = None
        self._write_held()

    def _write_held(self) -> None:
        """Write the requests that were held back, unless a login or a throttle time is in progress."""
        if self._login is not None or self._throttle is not None or self._transport is None:
            return
        held, self._held = self._held or [], None
        for pieces, unanswered in held:
            self._write(pieces)
            if unanswered is not None:
                self._unanswered.append(unanswered)
        if not self._choked:
            self._have_left()

    # -- callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass of asyncio's
        self.last_used = self._loop.time()
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.options.send_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.options.send_buffer_bytes)
            if self.options.receive_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.options.receive_buffer_bytes)

    def pause_writing(self) -> None:
        self._choked = True

    def resume_writing(self) -> None:
        self._choked = False
        if self._held is None:
            self._have_left()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return memoryview(self._large)[self._filled :]
        return self._small_view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self._has_read = True
        large = self._large
        if large is not None:
            if self._filled == len(large):
                self._large, self._filled = None, 0
                self._answer(memoryview(large))
            return
        position, filled = 0, self._filled
        if not self._speaks_kafka and filled >= 4:
            answer = foreign_answer(bytes(self._small[: min(filled, 256)]), self.options.max_response_bytes)
            if answer is not None:
                self._not_kafka(answer)
                return
        while filled - position >= 4:
            size = int.from_bytes(self._small[position : position + 4], "big")
            end = position + 4 + size
            if size < 4 or size > self.options.max_response_bytes:
                self.close(
                    f"{self.address} sent a response of {size} bytes, above receive.message.max.bytes = "
                    f"{self.options.max_response_bytes}: is it a Kafka listener?"
                )
                return
            if end > filled:
                if size + 4 > SMALL:
                    self._large = bytearray(size)
                    have = filled - position - 4
                    self._large[:have] = self._small_view[position + 4 : filled]
                    self._filled = have
                    return
                break
            self._answer(memoryview(bytes(self._small_view[position + 4 : end])))
            if self._transport is None:
                return
            position = end
        if position:
            rest = filled - position
            if rest:
                self._small[:rest] = self._small[position:filled]
            self._filled = rest

    def eof_received(self) -> None:
        # Close here, because the transport would first send its buffer. A peer that does not read would keep the
        # connection open, and further requests would be written to it.
        self.close(_CLOSED_BY_PEER)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._why is None:
            reason = reason_of(exc) if isinstance(exc, ssl.SSLError) else exc
            self._why = f"the connection broke: {reason}" if exc else _CLOSED_BY_PEER
            # In TLS 1.3, the broker checks the client's certificate when the client's part of the handshake has ended.
            self._refused = isinstance(exc, ssl.SSLError) and _is_alert(exc) and not self._speaks_kafka
        self._lost()
        if not self.closed.done():
            self.closed.set_result(None)

    def _answer(self, frame: Buffer) -> None:
        if not self._unanswered:
            self.close(f"{self.address} sent a response without a request")
            return
        oldest = self._unanswered[0]
        version = oldest.version
        if oldest.request is ApiVersionsRequest and _is_refusal(frame):
            version = 0
        try:
            correlation_id, response = decode_response(oldest.request.response, version, frame)
        except Exception as error:
            if not isinstance(error, DecodeError):
                log.exception("a response of %s to %s could not be decoded", self.address, oldest.request.__name__)
            self._broke_protocol(f"sent a malformed answer to {oldest.request.__name__} v{version}: {error}")
            return
        if correlation_id != oldest.correlation_id:
            self._broke_protocol(f"answered request {correlation_id} instead of {oldest.correlation_id}")
            return
        self._speaks_kafka = True
        self._is_ready = self._is_ready or oldest.request is not ApiVersionsRequest
        self._unanswered.popleft()
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._wait(throttle_ms / 1000)
        if not oldest.future.done():  # the caller may have been cancelled
            oldest.future.set_result(response)

    def _broke_protocol(self, how: str) -> None:
        if self._speaks_kafka:
            self.close(f"{self.address} {how}")
        else:
            self._not_kafka(how)

    def _not_kafka(self, how: str) -> None:
        self._foreign = True
        self.close(f"the peer at {self.address} does not speak Kafka's protocol: it {how}")

    # -- timeouts and closing

    def _arm(self, deadline: float) -> None:
        """Call `_timer_fired` at `deadline`, or earlier if the timer is already armed for an earlier time."""
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._timer_fired)

    def _timer_fired(self) -> None:
        """Expire late requests, but only after the bytes in the socket have been read.

        Otherwise, a response that arrived in time could be dropped. The program may block the event loop until the
        deadline has passed, and asyncio reads only one buffer per iteration of the loop.
        """
        self._has_read = False
        # A callback runs before its loop iteration polls the sockets, so the second callback runs after a poll.
        self._loop.call_soon(self._loop.call_soon, self._expire)

    def _expire(self) -> None:
        if self._transport is None:
            return
        if self._has_read:
            self._timer_fired()
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._loop.time()
        waiting = [*self._unanswered, *(one for _, one in self._held or () if one is not None)]
        late = [one for one in waiting if one.deadline <= now]
        for one in late:
            if not one.future.done():
                name = one.request.__name__.removesuffix("Request")
                text = f"{self.address} did not answer {name} v{one.version} in time"
                if not self._speaks_kafka:
                    text += f": {self.options.doubt}"
                one.future.set_exception(KafkaTimeoutError(ErrorCode.REQUEST_TIMED_OUT, text))
        if self._posted and self._posted[0][1] <= now:
            self.close("a request was not written to the socket in time")
        elif late:
            # Responses come in order, so the later ones would be late as well. A new connection starts without that
            # delay.
            self.close("a response did not arrive in time")
        elif waiting or self._posted:
            self._arm(min([*(one.deadline for one in waiting), *(deadline for _, deadline in self._posted)]))

    def _has_bytes_below_tls(self) -> bool:
        """Return whether the socket's transport, to which TLS passes its bytes, still buffers some of them."""
        below = self._below_tls
        return below is not None and not below.is_closing() and below.get_write_buffer_size() > 0

    def _look_again(self, look: asyncio.Handle) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._looking = look

    def _look(self) -> None:
        """Try again to resolve the futures of `post`. While requests are held back, or the transport's buffer is full,
        do nothing.
        """
        self._looking = None
        if not self._choked and self._held is None:
            self._have_left()

    def _have_left(self) -> None:
        """Resolve the futures of `post`, because the transport has passed on all requests.

        With TLS, first wait until the socket has taken the bytes. The transport below TLS does not report this, so look
        again every LOOK_S.
        """
        if self._posted and self._has_bytes_below_tls():
            self._look_again(self._loop.call_later(LOOK_S, self._look))
            return
        posted, self._posted = self._posted, deque()
        for future, _ in posted:
            if not future.done():
                future.set_result(None)

    def _lost(self) -> None:
        self._transport = self._below_tls = None
        self._large, self._filled = None, 0
        self._have_left()
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None
        if self._login is not None:
            self._login.cancel()
        waiting = [*self._unanswered, *(one for _, one in self._held or () if one is not None)]
        self._unanswered, self._held = deque(), None
        for one in waiting:
            if not one.future.done():
                one.future.set_exception(self._network_error())

    def _network_error(self) -> NetworkError:
        if self._foreign:
            return NotKafkaError(ErrorCode.NETWORK_EXCEPTION, self._why)
        if self._refused:
            return TlsError(ErrorCode.NETWORK_EXCEPTION, f"{self.address}: {self._why}: {self.options.doubt}")
        if not self._speaks_kafka and self._why == _CLOSED_BY_PEER:
            why = f"{self._why} before it answered: {self.options.doubt}"
            return NetworkError(ErrorCode.NETWORK_EXCEPTION, f"{self.address}: {why}")
        if not self._is_ready and self.options.login is None and self._why == _CLOSED_BY_PEER:
            why = f"{self._why} after ApiVersions: does it require a login, as listeners with SASL do?"
            return NetworkError(ErrorCode.NETWORK_EXCEPTION, f"{self.address}: {why}")
        return NetworkError(ErrorCode.NETWORK_EXCEPTION, f"{self.address}: {self._why or 'not connected'}")


def _is_alert(error: ssl.SSLError) -> bool:
    """Return whether the peer has sent this error as a TLS alert, which means that the peer refuses the handshake."""
    return "alert" in reason_of(error)


def _is_refusal(frame: Buffer) -> bool:
    """Return whether an ApiVersions response has the error UNSUPPORTED_VERSION. Such a response is always in v0."""
    return int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION


def _hello() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="oncelog", client_software_version=VERSION)
