"""Serve one client connection: execute its requests in order and send their responses in order.

A connection owns both directions of its socket. The dispatcher decides what a request means.

* A request is executed as soon as its frame is complete, in the callback that delivered the last byte.
* A response that is not ready takes a place in `_pending`. Later responses wait behind it, but later requests are
  executed meanwhile.
* A handler that runs as a coroutine parks the connection: no later request is executed, and the receive buffer is
  pinned, so that the bytes of the frame stay in place.
* The connection executes no further request in four cases:

  * The peer does not read its responses.
  * More than `connection.write.buffer.bytes` of responses wait behind one that is not ready.
  * `connection.max.inflight.requests` responses are outstanding.
  * The client waits for its quota.

  The socket is then read only until the existing buffer is full, so that the broker notices a close, and TCP's flow
  control stops the peer from sending more.
* A connection does a limited amount of work in one turn of the event loop (`turns.py`), so that the other connections
  get their turns. Until its client has logged in, it also waits for a turn among the clients that log in.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from ...auth.principal import ANONYMOUS, Principal
from ...auth.tls_writes import write_in_portions
from ...protocol.framing import key_and_version
from ...protocol.schema import Buffer, Response
from ..api.handling import Answer, Deferred
from ..config import BrokerConfig
from ..dispatcher import Dispatcher, Exchange, MalformedRequest, Outcome
from ..observability.audit import AuditLog
from ..quotas.client_quotas import ClientQuotas
from ..security.client_host import network_of
from .answer_memory import COUNTED_BYTES, AnswerMemory
from .receive_buffer import INITIAL_BYTES, KEPT_BYTES, FrameSizeError, ReceiveBuffer
from .request_memory import GRACE_S, RequestMemory
from .turns import LOGIN_WORK, LONE_TURN_WORK, REQUEST_WORK, TURN_S, Newcomers, Turns

if TYPE_CHECKING:  # imported only for listeners with SASL
    from ..security.login import Login

TLS_READ_AHEAD: Final = 16 * 1024
"""Encrypted bytes that a TLS transport may read ahead while the connection does not read."""

UNKNOWN_HOST: Final = "unknown"
"""The host of a peer that reset its connection before the broker accepted it. The system has forgotten the address."""

LEAST_READ: Final = 16 * 1024
"""The minimum number of bytes that a connection may read at once, even if it may do no more work in its turn."""


class ConnectionOwner(Protocol):
    """The part of a listener that a connection uses."""

    name: str
    config: BrokerConfig
    log: Any
    audit: AuditLog
    quotas: ClientQuotas
    memory: RequestMemory
    answers: AnswerMemory
    turns: Turns
    newcomers: Newcomers

    def opened(self, connection: Connection, sock: socket.socket | None) -> None:
        """Register the new connection. If a limit is reached, call the connection's `abort` or `refuse`."""

    def principal_of(self, connection: Any) -> Principal | None:
        """Return the principal that a client's TLS certificate proves, or None if no mapping rule matches."""

    def new_login(self, connection: Connection) -> Login | None:
        """Return the login of a new connection; None without SASL."""

    def lost(self, connection: Connection) -> None:
        """Forget a closed connection."""


class _Slot:
    """The place of one response in the connection's queue.

    `ready` becomes true once either the result (`answer`), the exception (`failure`) or the encoded response (`pieces`)
    is known.
    """

    __slots__ = ("answer", "deferred", "exchange", "failure", "pieces", "ready")

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.ready = False
        self.answer: Any = None
        self.failure: BaseException | None = None
        self.deferred: Deferred[Any] | None = None
        self.pieces: list[Buffer] | None = None


class Connection(asyncio.BufferedProtocol):
    """One accepted client connection: the protocol object to which the event loop delivers the socket's events."""

    def __init__(
        self, id: int, listener: ConnectionOwner, dispatcher: Dispatcher, loop: asyncio.AbstractEventLoop
    ) -> None:
        config = listener.config
        self.id = id
        self.listener = listener.name
        self.peer_host = ""
        self.local_address: tuple[str, int] = ("", 0)
        self.principal = ANONYMOUS
        self.login = listener.new_login(self)
        self.state: dict[str, Any] = {}
        self.closed: asyncio.Future[None] = loop.create_future()
        self.last_active = loop.time()
        self.answered = False
        self._unmute: asyncio.TimerHandle | None = None
        self._quotas = listener.quotas
        self._listener = listener
        self._dispatcher = dispatcher
        self._loop = loop
        self.below_tls: asyncio.WriteTransport | None = None
        """The transport of the socket below the TLS transport `_transport`; None without TLS."""
        self._transport: asyncio.Transport | None = None
        self._buffer = ReceiveBuffer(
            config.socket_request_max_bytes if self.login is None else config.sasl_server_max_receive_size
        )
        self._reserved = INITIAL_BYTES  # every connection has its initial buffer without a reservation
        self._max_inflight = config.connection_max_inflight_requests
        self._write_limit = config.connection_write_buffer_bytes
        self._pending: deque[_Slot] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._parked = False
        self._may_hurry = False
        self._outliving: asyncio.Task[Any] | None = None
        self._write_paused = False
        self._read_paused = False
        self._processing = False
        self._flushing = False
        self._waiting_for_memory = False
        self._draining = False
        self._yielding = False
        self._yielding_since = 0.0
        self._ended = False
        self._turn = loop.time()
        self._newcomer = self.login is not None
        self._work = 0 if self._newcomer else LONE_TURN_WORK
        self._frame_since = 0.0
        self._held = 0
        self._unsent_before = 0
        self._deadline: asyncio.TimerHandle | None = None

    # ---- callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Record the addresses of the new connection and register it; the listener closes it if a limit is reached."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer_host = str(peer[0]) if isinstance(peer, tuple) else UNKNOWN_HOST if peer is None else "local"
        local = transport.get_extra_info("sockname")
        self.local_address = (str(local[0]), int(local[1])) if isinstance(local, tuple) else ("", 0)
        tls = transport.get_extra_info("ssl_object")
        self._transport.set_write_buffer_limits(high=self._write_limit)
        if tls is not None:
            cast(Any, transport).set_read_buffer_limits(high=TLS_READ_AHEAD)
        if self.login is not None:
            self._limit_login()
        self._listener.opened(self, transport.get_extra_info("socket"))
        if self.peer_host == UNKNOWN_HOST:
            # The peer is gone. Limits and access rules need its address, so its remaining requests are not executed.
            self.abort()
        elif tls is not None:
            self._identify(tls)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the requests of the closed connection, except a request that must be executed to its end.

        While that request is running, the connection still counts as open, its memory as used, and its client as logged
        in.
        """
        self._transport = self.below_tls = None
        self._pending.clear()
        for timer in (self._deadline, self._unmute):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            if task is not self._outliving:
                task.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
        self._held = 0
        self._listener.answers.leave(self)
        if self._outliving is None:
            self._leave()

    def _leave(self) -> None:
        """Release what the connection has used, because none of its requests is being executed any longer."""
        self.login = None  # it refers to this object, whose memory would be kept until the next garbage collection
        self._listener.memory.leave(self)
        self._listener.lost(self)

    def eof_received(self) -> bool:
        """Handle the peer's end of stream; return whether the transport stays open.

        Kafka's clients never half-close, so the connection is closed; responses in the transport's buffer are still
        sent. A producer with acks=0 expects no response and closes as soon as its bytes are sent, so the transport
        stays open until its request is executed, as in Kafka. The same holds for requests that wait for a quota. A TLS
        transport cannot stay open after the end of the stream, so the TLS protocol learns of the end only later
        (`tls_records.RecordLimit`).
        """
        self._ended = True
        return (self._is_silent or self._has_muted_bytes) and self.below_tls is None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory into which the event loop reads from the socket.

        The size of this memory is limited by the work that the connection may still do in this turn.
        """
        now = self._loop.time()
        if now != self._turn:
            self._begin_turn(now)
        view = self._buffer.writable()
        if len(view) > LEAST_READ and len(view) > self._work:
            return view[: max(self._work, LEAST_READ)]
        return view

    def buffer_updated(self, nbytes: int) -> None:
        """Execute the requests that are complete now that `nbytes` more bytes have arrived."""
        self.last_active = self._turn
        if self._buffer.received(nbytes):
            self._frame_since = self._turn
        self._work -= nbytes
        self._process()

    def pause_writing(self) -> None:
        """Execute no further requests, because the peer is not reading its responses."""
        self._write_paused = True
        self.count_unsent()

    def resume_writing(self) -> None:
        """Continue to send responses and to execute requests, because the peer is reading again."""
        self._write_paused = False
        self.last_active = self._loop.time()
        self._flush()
        self._process()

    def refuse(self, wait_s: float) -> None:
        """Close the new connection after `wait_s`: its address has used up `connection_creation_rate` (KIP-612).

        A client that is refused at once would connect again at once.
        """
        if self._deadline is not None:
            self._deadline.cancel()
        self.mute(2 * wait_s)
        reason = "the client's address has used up its connection_creation_rate"
        self._deadline = self._loop.call_later(wait_s, self.evict, reason)

    # ---- login

    def _identify(self, tls: Any) -> None:
        """Take the principal from the client's certificate."""
        principal = self._listener.principal_of(tls)
        if principal is None:
            why = "no rule of ssl.principal.mapping.rules matches the subject of the client's certificate"
            self._listener.audit.login_refused("SSL", why, self.peer_host, self.listener)
            self.evict(why)
            return
        self.principal = principal
        if principal != ANONYMOUS:
            self._listener.audit.login_accepted("SSL", str(principal), self.peer_host, self.listener)

    def _limit_login(self) -> None:
        """Close the connection if its client does not log in within `connection.authentication.timeout.ms`."""
        timeout_ms = self._listener.config.connection_authentication_timeout_ms
        reason = "the client has not logged in within connection.authentication.timeout.ms"
        self._deadline = self._loop.call_later(timeout_ms / 1000, self.evict, reason)

    def login_begins(self) -> None:
        """Limit the size of messages, as in the first login, until the client has logged in again."""
        self._buffer.limit = self._listener.config.sasl_server_max_receive_size

    def logged_in(self, principal: Principal) -> None:
        """Serve the client as `principal`, because it has proved this identity."""
        self.principal = principal
        self._newcomer = False
        if self.login is not None:
            login = self.login
            self._listener.audit.login_accepted(
                login.mechanism, str(principal), self.peer_host, self.listener, login.token_id
            )
        self._buffer.limit = self._listener.config.socket_request_max_bytes
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def login_refused(self, mechanism: str, why: str) -> None:
        """Record a login that has failed."""
        self._listener.audit.login_refused(mechanism, why, self.peer_host, self.listener)

    def _take_login_message(self, login: Login, message: bytes) -> None:
        """Let `login` answer a SASL message. Neither the message nor the answer has a header."""
        from ..security.login import LoginRefused  # imported only for listeners with SASL

        self._parked = True
        task = self._loop.create_task(login.answer(message))
        self._tasks[task] = None

        def ended(done: asyncio.Task[tuple[bytes, int]]) -> None:
            self._tasks.pop(task, None)
            self._parked = False
            if self._transport is None or done.cancelled():
                return
            if (error := done.exception()) is not None:
                if isinstance(error, LoginRefused):
                    self.close("the login was refused")
                else:
                    self._broken(error)
                return
            challenge = done.result()[0]
            self._write([len(challenge).to_bytes(4, "big") + challenge])
            self._process()

        task.add_done_callback(ended)

    # ---- requests

    def close(self, reason: str) -> None:
        """Stop reading and close the connection; bytes already handed to the transport are still sent."""
        if self._transport is not None and not self._transport.is_closing():
            self._listener.log.info("connection_closed", reason=reason, connection=self.id, peer=self.peer_host)
            self._transport.close()

    def evict(self, reason: str) -> None:
        """Close the connection at once and discard the responses that are not sent yet; `reason` is logged."""
        self.close(reason)
        self.abort()

    def abort(self) -> None:
        """Close the connection at once and discard the responses that are not sent yet."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_registered(self) -> bool:
        """Whether the connection was registered with its listener."""
        return bool(self.peer_host)

    def send_rest(self) -> bool:
        """Close the connection if it uses TLS and is not busy; return whether it was closed.

        TLS then sends the bytes that it still holds, and its closing alert (close_notify).
        """
        if self.below_tls is None or self.busy or self._transport is None:
            return False
        self._transport.close()
        return True

    def give_up(self) -> None:
        """Close the connection and cancel all of its requests, even one that must be executed to its end.

        The listener calls this when the broker is stopping and has waited long enough.
        """
        outliving, self._outliving = self._outliving, None
        if outliving is not None:
            outliving.cancel()
            if self._transport is None:
                self._leave()
        self.abort()

    @property
    def busy(self) -> bool:
        """Whether requests are being executed or the socket has not accepted all responses."""
        if self._transport is None:
            return self._outliving is not None
        return bool(self._pending) or self._parked or self.unsent > 0

    @property
    def unsent(self) -> int:
        """The number of response bytes that the socket has not accepted yet or that wait behind an earlier response."""
        if self._transport is None:
            return 0
        if self.below_tls is None:
            return self._transport.get_write_buffer_size() + self._held
        return _waiting_in(self._transport) + _waiting_in(self.below_tls) + self._held

    def count_unsent(self) -> None:
        """Report the unsent bytes to the broker's `AnswerMemory` if they are more than `COUNTED_BYTES`.

        Called for large responses, when the peer stops reading, and at each sweep for idle connections.
        """
        unsent = self.unsent
        if unsent > COUNTED_BYTES:
            self._listener.answers.owes(self, unsent)

    def note_taken(self, now: float) -> None:
        """Mark the connection as active at `now` if the socket has sent response bytes since the last call."""
        unsent = self.unsent
        if unsent < self._unsent_before:
            self.last_active = now
        self._unsent_before = unsent

    @property
    def answer_allowance(self) -> int:
        """The recommended size limit in bytes of a response that can be made smaller (`queued.max.response.bytes`)."""
        return self._listener.answers.allowance

    @property
    def idle(self) -> bool:
        """Whether the connection is idle: no request is being executed, or the peer does not read its responses."""
        return self._write_paused or not (self._pending or self._parked)

    @property
    def receiving(self) -> bool:
        """Whether a request has arrived in part, and the broker is waiting only for the peer to send the rest."""
        return len(self._buffer) > 0 and not (
            self._waiting_for_memory or self._yielding or self._blocked or self._parked
        )

    @property
    def _blocked(self) -> bool:
        """Whether further requests must wait before they are executed."""
        return (
            self._write_paused
            or self._draining
            or self._unmute is not None
            or len(self._pending) >= self._max_inflight
            or self._held >= self._write_limit
        )

    @property
    def _has_muted_bytes(self) -> bool:
        """Whether a request that has at least partly arrived is waiting for a quota."""
        return self._unmute is not None and len(self._buffer) > 0

    @property
    def _is_silent(self) -> bool:
        """Whether the request being executed gets no response (acks=0)."""
        return self._parked and bool(self._pending) and self._pending[-1].exchange.is_silent

    @property
    def progress(self) -> tuple[bool, float]:
        """Whether requests that have arrived may still have to be executed; and the time of the last activity.

        The time is an event loop time. `tls_records.RecordLimit` uses both after the peer has closed the connection. A
        request counts if it has acks=0, or if it waits for a turn, for memory or for a quota. A request that only has
        to be answered does not count, because its client is gone.
        """
        is_behind = self._yielding or self._waiting_for_memory or self._is_silent or self._has_muted_bytes
        return is_behind and not self._draining, self.last_active

    def drain(self) -> None:
        """Stop executing requests; those that are already being executed are still answered."""
        self._draining = True
        self._pause_reading()

    def _process(self) -> None:
        """Execute the complete requests in the buffer, as far as the limits allow, then pause or resume reading."""
        if self._processing or self._yielding:
            return
        self._processing = True
        buffer = self._buffer
        ends = self._loop.time() + TURN_S
        try:
            while not (
                self._parked
                or self._write_paused
                or self._draining
                or self._unmute is not None
                or len(self._pending) >= self._max_inflight
                or self._held >= self._write_limit
            ):
                if self._transport is None or self._transport.is_closing():
                    return
                if self._work <= 0 and len(buffer):
                    self._yield()
                    return
                frame = buffer.next_frame()
                if frame is None:
                    break
                self._work -= len(frame) + REQUEST_WORK
                self._frame_since = self.last_active
                self._execute(frame)
                frame = None  # a buffer shrinks only if no frame is in use
                if len(buffer) and self._loop.time() >= ends:
                    self._work = min(self._work, 0)
        except (FrameSizeError, MalformedRequest) as error:
            self._listener.log.warning("request_refused", why=str(error), connection=self.id, peer=self.peer_host)
            if self._transport is not None:
                self._transport.close()  # the responses to earlier requests are still sent
            return
        except Exception as error:
            self._broken(error)
            return
        finally:
            self._processing = False
        self._adjust_reading()

    def _yield(self) -> None:
        """Let the other connections have their turns before this connection executes its next request."""
        self._yielding = True
        self._yielding_since = self._loop.time()
        self._pause_reading()
        if self._newcomer:
            self._listener.newcomers.wait(network_of(self.peer_host), self._next_turn)
        else:
            self._listener.turns.used_up(self.id)
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._yielding = False
        self._begin_turn(self._loop.time())
        if self._newcomer:
            self._work = LOGIN_WORK
            self._frame_since += self._turn - self._yielding_since  # the broker made the client wait
            self.last_active = self._turn
        if self._transport is not None:
            self._process()

    def _begin_turn(self, now: float) -> None:
        if self._newcomer:
            self._work = 0  # its turn as a newcomer is over
        else:
            self._work = self._listener.turns.begin(self.id, self._work, self._turn, now)
        self._turn = now

    def _broken(self, error: BaseException) -> None:
        """Log an unexpected error and close the connection, because later responses would not match their requests."""
        self._listener.log.error("connection_failed", connection=self.id, peer=self.peer_host, exc_info=error)
        self.abort()

    def _adjust_reading(self) -> None:
        """Pause or resume reading, depending on the buffer and on the memory reserved for the next frame.

        The frame may have to wait for memory (`queued.max.request.bytes`).
        """
        if self._ended:
            if not self._is_silent and self._unmute is None and self._transport is not None:
                self._transport.close()
            return
        buffer = self._buffer
        if self._unmute is not None and not (self._parked or self._waiting_for_memory):
            # The next request waits until the mute ends, so its bytes stay in the socket: others need the memory.
            if len(buffer) or self._pending:
                buffer.shrink()
            else:
                buffer.give_back()
            if buffer.capacity != self._reserved:
                self._reserve(buffer.capacity)
            if buffer.claim > buffer.capacity:
                self._pause_reading()
                return
        if not self._parked:
            claim = buffer.claim
            if claim > KEPT_BYTES and not len(buffer) and not self._pending:
                buffer.give_back()
                claim = INITIAL_BYTES
            if claim != self._reserved and not self._reserve(claim):
                self._pause_reading()
                return
        if buffer.full or self._draining or self._yielding:
            self._pause_reading()
        elif self._read_paused and self._transport is not None and not self._transport.is_closing():
            self._read_paused = False
            self._transport.resume_reading()

    def _reserve(self, claim: int) -> bool:
        """Reserve memory for `claim` bytes of buffer; return False if the reservation must wait."""
        if self._waiting_for_memory:
            return False
        if not self._listener.memory.reserve(self, claim - INITIAL_BYTES):
            self._waiting_for_memory = True
            return False
        self._reserved = claim
        return True

    def memory_available(self) -> None:
        """Continue reading the frame whose memory has now been reserved."""
        self._waiting_for_memory = False
        self._reserved = self._buffer.claim
        self._frame_since = self.last_active = self._loop.time()
        if self._transport is not None:
            self._adjust_reading()

    def give_back(self) -> None:
        """Shrink an empty buffer to its initial size, because memory for requests is short.

        The buffer keeps its size while a running request still uses a frame in it. A connection that is itself waiting
        for memory shrinks its buffer to the bytes that it holds, and gives back the reserved memory that it does not
        need now.
        """
        if self._processing:
            return
        if self._waiting_for_memory:
            self._buffer.shrink()
            self._listener.memory.reserve(self, self._buffer.capacity - INITIAL_BYTES)
        elif not len(self._buffer):
            self._buffer.shrink()
            self._reserve(self._buffer.claim)

    def frame_rate(self, now: float) -> float | None:
        """Return the rate in bytes per second at which the current frame arrives, or 0 if it has stopped arriving.

        Return None if no frame is arriving or if the frame began to arrive less than `GRACE_S` ago.
        """
        age = now - self._frame_since
        if (
            self._parked
            or self._waiting_for_memory
            or self._yielding
            or self._unmute is not None
            or not len(self._buffer)
            or age < GRACE_S
        ):
            return None
        return len(self._buffer) / age if now - self.last_active < GRACE_S else 0.0

    def _pause_reading(self) -> None:
        if not self._read_paused and self._transport is not None and not self._transport.is_closing():
            self._read_paused = True
            self._transport.pause_reading()

    def _execute(self, frame: memoryview) -> None:
        """Execute one request. Write its response at once if no earlier response is pending."""
        login = self.login
        if login is not None and login.admits_until != math.inf and self._loop.time() >= login.admits_until:
            if login.takes_bare_messages:
                self._take_login_message(login, bytes(frame))  # the frame's memory is used again
                return
            problem = login.problem(*key_and_version(frame)) if len(frame) >= 4 else None
            if problem is not None:
                raise MalformedRequest(problem)
        exchange = self._dispatcher.accept(self, frame)
        if self._quotas.active and not self._newcomer:
            reply = self._execute_measured(exchange, len(frame))
        else:
            reply = self._dispatcher.execute(exchange)
        if isinstance(reply, Response):
            if not self._pending:
                self._write(self._dispatcher.encode(exchange, reply))
                return
            slot = _Slot(exchange)
            self._pending.append(slot)
            self._hold(slot, self._dispatcher.encode(exchange, reply))
            self._hurry_waits()
        elif isinstance(reply, Deferred):
            slot = _Slot(exchange)
            self._pending.append(slot)
            self._wait_for(slot, reply)
            if slot.ready:
                self._flush()
        elif reply is not None:
            slot = _Slot(exchange)
            self._pending.append(slot)
            self._park(slot, reply)

    def _execute_measured(self, exchange: Exchange, size: int) -> Answer | Coroutine[Any, Any, Outcome]:
        """Execute a request of `size` bytes, and measure what it uses of the client's quotas."""
        context = exchange.context
        usage = self._quotas.admit(context.api_key, self.principal.name, context.client_id, size, self.mute)
        if usage is None:
            return self._dispatcher.execute(exchange)
        context.usage = usage
        return usage.measured(self._dispatcher.execute, exchange)

    def _conclude(self, slot: _Slot) -> Response | Coroutine[Any, Any, list[Buffer]] | None:
        arguments = slot.exchange, slot.deferred, slot.answer, slot.failure
        usage = slot.exchange.context.usage
        if usage is None:
            return self._dispatcher.conclude(*arguments)
        return usage.measured(self._dispatcher.conclude, *arguments)

    def mute(self, seconds: float) -> None:
        """Stop executing requests for `seconds`, because the client has used more than its quota (KIP-219)."""
        if self._unmute is not None:
            if self._unmute.when() >= self._loop.time() + seconds:
                return
            self._unmute.cancel()
        self._unmute = self._loop.call_later(seconds, self._end_mute)

    def _end_mute(self) -> None:
        self._unmute = None
        self._frame_since = self.last_active = self._loop.time()  # the broker made the client wait
        self._process()

    def _hurry_waits(self) -> None:
        """End the waits of earlier requests where possible, because a later response waits for their responses."""
        if self._may_hurry:
            self._may_hurry = False
            for slot in self._pending:
                if not slot.ready and slot.deferred is not None and slot.deferred.hurry is not None:
                    slot.deferred.hurry()

    def _wait_for(self, slot: _Slot, deferred: Deferred[Any]) -> None:
        if deferred.hurry is None:
            self._hurry_waits()
        else:
            self._may_hurry = True
        slot.deferred = deferred
        awaitable = deferred.awaitable
        if awaitable is None:
            slot.ready = True
            return
        future: asyncio.Future[Any]
        if isinstance(awaitable, asyncio.Future):
            future = awaitable
            if future.done():
                self._settle(slot, future)
                return
        else:
            task: asyncio.Task[Any] = self._loop.create_task(_await(awaitable))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
            future = task
        future.add_done_callback(lambda done: self._arrived(slot, done))

    def _settle(self, slot: _Slot, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            slot.failure = asyncio.CancelledError()
        else:
            slot.failure = future.exception()
            if slot.failure is None:
                slot.answer = future.result()
        slot.ready = True

    def _arrived(self, slot: _Slot, future: asyncio.Future[Any]) -> None:
        self._settle(slot, future)
        if self._transport is None:
            return
        if self._pending and self._pending[0] is slot:
            self._flush()
            self._process()

    def _park(self, slot: _Slot, coroutine: Coroutine[Any, Any, Outcome]) -> None:
        """Run the coroutine that executes a request.

        The buffer stays pinned until the coroutine ends, because the coroutine uses the frame.
        """
        self._parked = True
        self._buffer.pinned = True
        task = self._loop.create_task(coroutine)
        self._tasks[task] = None
        if slot.exchange.is_carried_out:
            self._outliving = task

        def ended(done: asyncio.Task[Outcome]) -> None:
            self._tasks.pop(task, None)
            if done.cancelled():
                slot.exchange.give_up()
            self._parked = False
            self._buffer.pinned = False
            outlived = self._outliving is task
            self._outliving = None
            if self._transport is None:
                if outlived:
                    self._leave()
                self._drop(slot, done)
                return
            reply = None if done.cancelled() or done.exception() is not None else done.result()
            if isinstance(reply, Deferred):
                self._wait_for(slot, reply)
            elif isinstance(reply, list):
                self._hold(slot, reply)
                self._hurry_waits()
            else:
                self._settle(slot, done)
                self._hurry_waits()
            if slot.ready and slot.deferred is None and slot.pieces is None and self._pending[0] is not slot:
                self._encode_early(slot)
            self._flush()
            self._process()

        task.add_done_callback(ended)

    def _drop(self, slot: _Slot, done: asyncio.Task[Outcome]) -> None:
        """Discard the result of a request whose connection is closed; an unexpected error is still logged."""
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            reply = done.result()
            if isinstance(reply, Deferred) and isinstance(reply.awaitable, Coroutine):
                reply.awaitable.close()
        elif isinstance(response := self._dispatcher.conclude(slot.exchange, None, None, error), Coroutine):
            response.close()

    # ---- responses

    def _flush(self) -> None:
        """Send the responses at the head of the queue that are ready. After `TURN_S`, continue in a later turn."""
        if self._flushing:
            return
        pending = self._pending
        ends = self._loop.time() + TURN_S if len(pending) > 1 else None
        while pending and pending[0].ready and not self._write_paused and self._transport is not None:
            slot = pending[0]
            if ends is not None and self._loop.time() >= ends:
                self._flushing = True
                self._loop.call_soon(self._flush_rest)
                return
            if slot.pieces is not None:
                pending.popleft()
                self._held -= sum(map(len, slot.pieces))
                self._write(slot.pieces)
                continue
            try:
                response = self._conclude(slot)
                if isinstance(response, Coroutine):
                    self._conclude_in_slices(slot, response)
                    return
                pending.popleft()
                if response is not None:
                    self._write(self._dispatcher.encode(slot.exchange, response))
            except Exception as error:
                self._broken(error)
                return

    def _flush_rest(self) -> None:
        self._flushing = False
        self._flush()
        if self._transport is not None:
            self._process()

    def _encode_early(self, slot: _Slot) -> None:
        """Encode a response that waits behind an earlier one, so that its real size counts as unsent bytes."""
        try:
            response = self._conclude(slot)
            if isinstance(response, Coroutine):
                self._conclude_in_slices(slot, response)
            else:
                self._hold(slot, [] if response is None else self._dispatcher.encode(slot.exchange, response))
        except Exception as error:
            self._broken(error)

    def _conclude_in_slices(self, slot: _Slot, concluding: Coroutine[Any, Any, list[Buffer]]) -> None:
        """Encode a large response in slices of work; it keeps its place in the queue until it is sent."""
        slot.ready = False
        task = self._loop.create_task(concluding)
        self._tasks[task] = None

        def ended(done: asyncio.Task[list[Buffer]]) -> None:
            self._tasks.pop(task, None)
            if self._transport is None or done.cancelled():
                return
            error = done.exception()
            if isinstance(error, Exception):
                self._broken(error)
                return
            self._hold(slot, done.result())
            self._flush()
            self._process()

        task.add_done_callback(ended)

    def _hold(self, slot: _Slot, pieces: list[Buffer]) -> None:
        """Keep an encoded response until all earlier responses have been sent."""
        slot.pieces, slot.answer, slot.ready = pieces, None, True
        self._held += sum(map(len, pieces))
        if self._held > COUNTED_BYTES:
            self.count_unsent()

    def _write(self, pieces: list[Buffer]) -> None:
        transport = self._transport
        if pieces and transport is not None and not transport.is_closing():
            self.last_active = self._loop.time()
            self.answered = True
            if self.below_tls is None:
                transport.writelines(pieces)
            else:
                write_in_portions(transport, pieces)
            if len(pieces) > 1 or len(pieces[0]) > COUNTED_BYTES:
                self.count_unsent()


def _waiting_in(transport: asyncio.WriteTransport) -> int:
    """Return the number of unsent bytes in one of the two transports of a TLS connection.

    Each transport counts only its own bytes. After the peer has closed its side, a TLS transport can no longer send its
    bytes, but it keeps them until the connection is closed.
    """
    try:
        return transport.get_write_buffer_size()
    except RuntimeError:  # uvloop's transport has been aborted and holds nothing
        return 0


async def _await(awaitable: Any) -> Any:
    return await awaitable
