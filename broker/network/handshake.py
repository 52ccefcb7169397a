"""Complete the TLS handshake of a connection that has been accepted."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar

from ..security.alerts import failed

P = TypeVar("P", bound=asyncio.BaseProtocol)

RECORD_HEADER_BYTES: Final = 5
"""The size of the header of a TLS record. Its last two bytes are the length of the rest (RFC 8446, section 5.1)."""

MAX_RECORD_BYTES: Final = 16384
"""The longest record that TLS allows in a handshake, without its header."""

HANDSHAKE_RECORD: Final = b"\x16"
"""The first byte of a record that belongs to a handshake."""


async def first_record(peer: socket.socket) -> None:
    """Wait until the peer's first TLS record has arrived, or bytes that are none. Raises OSError.

    The bytes stay in the socket. The kernel wakes the broker once, even if they arrive one at a time. The first record
    of all known clients contains their whole first message.
    """
    await _until_received(peer, RECORD_HEADER_BYTES)
    header = peer.recv(RECORD_HEADER_BYTES, socket.MSG_PEEK)
    length = int.from_bytes(header[3:5])
    if header[:1] == HANDSHAKE_RECORD and length <= MAX_RECORD_BYTES:
        await _until_received(peer, RECORD_HEADER_BYTES + length)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def _until_received(peer: socket.socket, count: int) -> None:
    """Wait until the socket holds `count` bytes or the peer has closed the connection."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(peer, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(peer)


async def shake_hands(
    make: Callable[[], P], peer: socket.socket, context: ssl.SSLContext, timeout_s: float
) -> tuple[asyncio.Transport, P]:
    """Return the transport and the protocol object, which `make` returns, of a connection that has been accepted.

    Raises OSError if the handshake fails (ssl.SSLError is one), after the peer has been sent the reason, and
    TimeoutError if it does not end within `timeout_s` seconds. The caller then closes `peer`.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    failures: list[ssl.SSLError] = []

    def end(error: ssl.SSLError) -> None:
        failures.append(error)
        loop.call_soon(task.cancel)  # when the alert is sent

    failed.set(end)
    try:
        return await loop.connect_accepted_socket(make, peer, ssl=context, ssl_handshake_timeout=timeout_s)
    except asyncio.CancelledError:
        if not failures:
            raise
        task.uncancel()
        raise failures[0] from None
