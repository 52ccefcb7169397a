"""A transport and a TLS protocol without a socket: what arrives is given by the test, and nothing is decrypted."""

from __future__ import annotations

import asyncio
from typing import Any


class Wire(asyncio.Transport):
    """A transport that knows whether it is being read."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.closed = False
        self.protocol: Any = None

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_reading(self) -> bool:
        return self.reading

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self.protocol
        return protocol


class Full(asyncio.BufferedProtocol):
    """A TLS protocol that pauses reading when it has `most` bytes more than its reader has taken.

    `pieces` has the bytes of each delivery.
    """

    def __init__(self, wire: Wire, most: int) -> None:
        self.wire, self.most, self.received = wire, most, b""
        self.pieces: list[bytes] = []
        self.ended = self.paused = False
        self._taken = 0
        self._buffer = bytearray(256 * 1024)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def buffer_updated(self, nbytes: int) -> None:
        self.pieces.append(bytes(self._buffer[:nbytes]))
        self.received += self.pieces[-1]
        if len(self.received) - self._taken >= self.most and not self.paused:
            self.paused = True
            self.wire.pause_reading()

    def take(self) -> None:
        """Take all that has been received, as the reader does."""
        self._taken = len(self.received)
        if self.paused:
            self.paused = False
            self.wire.resume_reading()

    def eof_received(self) -> bool:
        self.ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
