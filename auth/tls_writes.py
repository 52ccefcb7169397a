"""Write to TLS transports in portions, so that the transport counts the bytes that it has not sent yet.

A TLS transport encrypts the bytes of a write immediately, and passes all of them to the transport below. Its
`get_write_buffer_size` does not count these bytes, and it does not call `pause_writing` for them. If the writes are
small, it stops encrypting as soon as the transport below is full, and counts the remaining bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

PORTION: Final = 64 * 1024
"""Maximum bytes of a write. About two such portions still are not counted."""


def write_in_portions(transport: asyncio.WriteTransport, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
    """Write all pieces to a TLS transport, at most PORTION bytes at a time."""
    for piece in pieces:
        if len(piece) <= PORTION:
            transport.write(piece)
            continue
        view = memoryview(piece).cast("B")
        for start in range(0, len(view), PORTION):
            transport.write(view[start : start + PORTION])
