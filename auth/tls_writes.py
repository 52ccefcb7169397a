"""Write to TLS transports in portions, so that `pause_writing` is called when the peer does not read.

A TLS transport encrypts the bytes of one write immediately and passes all of them to the transport below, without
calling `pause_writing`. If the writes are small, the TLS transport stops encrypting as soon as the transport below is
full, and keeps the remaining bytes. When the transport below has room again, it gets all remaining bytes in one go, and
`get_write_buffer_size` of the TLS transport no longer counts them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

PORTION: Final = 64 * 1024
"""Maximum bytes of a write. The transport below is full after about two such portions."""


def write_in_portions(transport: asyncio.WriteTransport, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
    """Write all pieces to a TLS transport, at most PORTION bytes at a time."""
    for piece in pieces:
        if len(piece) <= PORTION:
            transport.write(piece)
            continue
        view = memoryview(piece).cast("B")
        for start in range(0, len(view), PORTION):
            transport.write(view[start : start + PORTION])
