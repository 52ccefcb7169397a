"""Complete the TLS handshake of a connection that has been accepted.

A step of a handshake costs the broker up to a millisecond, and the client decides how many steps there are: in TLS 1.3,
a client can make the broker ask for another first message (HelloRetryRequest). So each TLS record that arrives before
the end of the handshake must wait until the broker has a turn for a handshake step (`TlsTurns.steps`).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from ..security.alerts import failed
from .tls_records import HEADER_BYTES, PORTION, Progress, RecordLimit
from .turns import TlsTurns

MAX_RECORD_BYTES: Final = 16384
"""The longest record that TLS allows in a handshake, without its header."""

MESSAGE_HEADER_BYTES: Final = 4
"""The size of the header of a handshake message: its type, and the length of the rest (RFC 8446, section 4)."""

MAX_MESSAGE_BYTES: Final = 32 * 1024
"""The longest first message that is accepted."""

MAX_RECORDS: Final = 8
"""The number of records into which a client may divide its first message."""

MAX_PROTECTED_RECORD_BYTES: Final = MAX_RECORD_BYTES + 2048
"""The longest record of any kind, without its header (RFC 5246, section 6.2.3)."""

RECORD_TYPES: Final = range(20, 24)
"""The first bytes of records: a change of the cipher, an alert, a handshake, data (RFC 8446, section 5.1)."""

HANDSHAKE_RECORD: Final = b"\x16"
"""The first byte of a record that belongs to a handshake."""


async def first_message(peer: socket.socket) -> None:
    """Wait until the peer's first handshake message, or something other than such a message, has arrived.

    Raises OSError if the message has more than `MAX_RECORDS` records or `MAX_MESSAGE_BYTES` bytes. Known clients send
    it in one record of a few kilobytes. The bytes stay in the socket. The kernel wakes the broker only a few times,
    even if the bytes arrive one at a time.
    """
    missing = HEADER_BYTES
    while missing:
        await _until_received(peer, missing)
        arrived = peer.recv(missing, socket.MSG_PEEK)
        missing = 0 if len(arrived) < missing else needed(arrived)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def needed(arrived: bytes) -> int:
    """Return how many bytes must arrive before more of the first message can be read; 0 if the message is complete.

    Also return 0 if the bytes are not a handshake. Raises OSError like `first_message`.
    """
    message, end = b"", 0
    for _ in range(MAX_RECORDS):
        header, start = arrived[end : end + HEADER_BYTES], end + HEADER_BYTES
        if len(header) < HEADER_BYTES:
            return start
        length = int.from_bytes(header[3:])
        if header[:1] != HANDSHAKE_RECORD or length > MAX_RECORD_BYTES:
            return 0
        end = start + length
        if len(arrived) < end:
            return end
        message += arrived[start:end]
        size = MESSAGE_HEADER_BYTES + int.from_bytes(message[1:MESSAGE_HEADER_BYTES])
        if len(message) >= MESSAGE_HEADER_BYTES:
            if size > MAX_MESSAGE_BYTES:
                break
            if len(message) >= size:
                return 0
    raise OSError(f"its first message has more than {MAX_RECORDS} records or {MAX_MESSAGE_BYTES:,} bytes")


async def _until_received(peer: socket.socket, count: int) -> None:
    """Wait until the socket holds `count` bytes or the peer has closed the connection."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(peer, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(peer)


def complete(arrived: bytes | bytearray) -> int:
    """Return the size in bytes of the record with which `arrived` begins, or 0 while that record is incomplete.

    If the bytes are not a TLS record, return the number of bytes that have arrived.
    """
    if len(arrived) < HEADER_BYTES:
        return 0
    length = int.from_bytes(arrived[3:HEADER_BYTES])
    if arrived[0] not in RECORD_TYPES or length > MAX_PROTECTED_RECORD_BYTES:
        return len(arrived)
    size = HEADER_BYTES + length
    return size if len(arrived) >= size else 0


class Gate(asyncio.Protocol):
    """Stands between a transport and its TLS protocol until the handshake has ended.

    In each handshake turn of this connection (`TlsTurns.steps`), the gate passes one TLS record to the TLS protocol.
    While a complete record waits for the next turn, nothing is read from the socket.
    """

    def __init__(self, turns: TlsTurns, network: str, progress: Progress | None = None) -> None:
        self._turns, self._network, self._progress = turns, network, progress
        self._transport: asyncio.Transport | None = None
        self._tls: Any = None
        self._held = bytearray()
        self._open = self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def enter(self) -> None:
        """Take the place of the transport's TLS protocol, before that protocol's `connection_made` is called."""
        assert self._transport is not None, "connected"
        loop = asyncio.get_running_loop()
        self._tls = self._transport.get_protocol()
        self._transport.set_protocol(self)
        loop.call_soon(partial(self._tls.connection_lost, None) if self._lost else self._continue)

    def open(self) -> None:
        """Hand the connection over to a `RecordLimit`, because the handshake has ended."""
        assert self._transport is not None, "connected"
        self._open = True
        limit = RecordLimit(self._transport, self._tls, self._turns.records, self._network, self._progress)
        self._transport.set_protocol(limit)
        self._transport.resume_reading()
        held, self._held = self._held, bytearray()  # the transport may refer to this object until it is closed
        if held:
            limit.hold(held)

    def close(self) -> None:
        """Close the connection, because the handshake has failed."""
        self._forget()
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hold the bytes until they can be passed to the TLS protocol."""
        self._held += data
        self._continue()

    def _continue(self) -> None:
        """Read until the next TLS record is complete; then wait for a turn in which the record is passed on."""
        if self._tls is None or self._transport is None or self._open or self._lost:
            return
        if not complete(self._held):
            self._transport.resume_reading()
            return
        self._transport.pause_reading()
        self._turns.steps.wait(self._network, self._step)

    def _step(self) -> None:
        if self._open or self._lost:
            return
        self._pass_on(complete(self._held))
        asyncio.get_running_loop().call_soon(self._continue)  # runs after `open` if the handshake has ended

    def _pass_on(self, count: int) -> None:
        """Pass the first `count` of the held bytes to the TLS protocol."""
        while count and not self._lost:
            portion = min(count, PORTION)
            self._tls.get_buffer(portion)[:portion] = self._held[:portion]
            del self._held[:portion]
            count -= portion
            self._tls.buffer_updated(portion)

    def _forget(self) -> None:
        self._lost = True
        self._held.clear()
        self._turns.steps.leave(self._network, self._step)

    def eof_received(self) -> bool | None:
        """Tell the TLS protocol that the peer sends nothing more."""
        return None if self._tls is None else cast("bool | None", self._tls.eof_received())

    def pause_writing(self) -> None:
        """Tell the TLS protocol that the peer is not reading."""
        if self._tls is not None:
            self._tls.pause_writing()

    def resume_writing(self) -> None:
        """Tell the TLS protocol that the peer is reading again."""
        if self._tls is not None:
            self._tls.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the TLS protocol that the connection has ended."""
        self._forget()
        if self._tls is not None:
            self._tls.connection_lost(error)


async def shake_hands(
    make: Callable[[asyncio.Transport], asyncio.BaseProtocol],
    peer: socket.socket,
    context: ssl.SSLContext,
    timeout_s: float,
    turns: TlsTurns,
    network: str,
    progress: Progress | None = None,
) -> asyncio.Transport:
    """Complete the handshake of an accepted connection; return its TLS transport, which uses the protocol from `make`.

    `make` is called with the transport of the socket, which sends and receives the encrypted bytes. It returns the
    protocol object of the connection. Each TLS record of the handshake waits for a turn of `network` in `turns.steps`.
    The caller must have waited for a turn before this call, because a TLS connection takes memory. `progress` is passed
    on to `RecordLimit`.

    Raises OSError (ssl.SSLError is a subclass) if the handshake fails or does not end within `timeout_s` seconds. The
    caller must then close `peer`. Before an ssl.SSLError is raised, the peer gets the reason in an alert.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    failures: list[ssl.SSLError] = []

    def end(error: ssl.SSLError) -> None:
        failures.append(error)
        loop.call_soon(task.cancel)  # runs after the alert has been sent

    failed.set(end)
    gate = Gate(turns, network, progress)
    try:
        plain, _ = await loop.connect_accepted_socket(lambda: gate, peer)
        loop.call_soon(gate.enter)  # runs after `start_tls` has set the protocol, before the handshake begins
        transport = await loop.start_tls(
            plain, asyncio.Protocol(), context, server_side=True, ssl_handshake_timeout=timeout_s
        )
        if transport is None or transport.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, "the peer has closed the connection")
        protocol = make(plain)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
    except asyncio.CancelledError:
        gate.close()
        if not failures:
            raise
        task.uncancel()
        raise failures[0] from None
    except BaseException:
        gate.close()
        raise
    gate.open()
    return transport
