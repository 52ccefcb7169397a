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

MESSAGE_HEADER_BYTES: Final = 4
"""The size of the header of a handshake message: its type, and the length of the rest (RFC 8446, section 4)."""

MAX_MESSAGE_BYTES: Final = 32 * 1024
"""The longest first message that is accepted."""

MAX_RECORDS: Final = 8
"""The number of records into which a client may divide its first message."""

HANDSHAKE_RECORD: Final = b"\x16"
"""The first byte of a record that belongs to a handshake."""


async def first_message(peer: socket.socket) -> None:
    """Wait until the peer's first handshake message has arrived, or bytes that are none.

    Raises OSError if the message has more than `MAX_RECORDS` records or `MAX_MESSAGE_BYTES`. Known clients send it in
    one record of a few kilobytes. The bytes stay in the socket. The kernel wakes the broker only a few times, even if
    the bytes arrive one at a time.
    """
    missing = RECORD_HEADER_BYTES
    while missing:
        await _until_received(peer, missing)
        arrived = peer.recv(missing, socket.MSG_PEEK)
        missing = 0 if len(arrived) < missing else needed(arrived)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def needed(arrived: bytes) -> int:
    """Return how many bytes have to arrive until more is known about the first message; 0 if nothing is missing.

    Nothing is missing, either, if the bytes are no handshake. Raises OSError as `first_message` does.
    """
    message, end = b"", 0
    for _ in range(MAX_RECORDS):
        header, start = arrived[end : end + RECORD_HEADER_BYTES], end + RECORD_HEADER_BYTES
        if len(header) < RECORD_HEADER_BYTES:
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
