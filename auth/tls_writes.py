"""Write to TLS transports in portions, so that the transport counts the bytes that it has not sent yet.

A TLS transport encrypts a write at once, and hands it to the transport below as a whole. Its `get_write_buffer_size`
does not count those bytes, and it does not call `pause_writing` for them. With small writes it stops encrypting as soon
as the transport below is full, and counts the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

PORTION: Final = 64 * 1024
"""Bytes that are written at a time. The transport still does not count about two portions."""


def write_in_portions(transport: asyncio.WriteTransport, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
    """Write all pieces to a TLS transport."""
    for piece in pieces:
        if len(piece) <= PORTION:
            transport.write(piece)
            continue
        view = memoryview(piece).cast("B")
        for start in range(0, len(view), PORTION):
            transport.write(view[start : start + PORTION])
