"""Recognises a peer that does not speak Kafka's protocol, by the first bytes that it sends."""

from __future__ import annotations

from typing import Final

_TLS_RECORDS: Final = {0x15: "a TLS alert", 0x16: "a TLS handshake"}
_SHOWN: Final = 60
"""Maximum number of characters of a peer's response that an error message quotes."""


def foreign_answer(head: bytes, max_frame_bytes: int) -> str | None:
    """Return a description of a peer's first bytes (at least four) if no Kafka frame can begin with them, else None."""
    size = int.from_bytes(head[:4], "big")
    if head[0] in _TLS_RECORDS and head[1] == 3 and head[2] <= 4:
        return f"answered with {_TLS_RECORDS[head[0]]}: it expects TLS, which this connection does not use"
    line = head.split(b"\n")[0].rstrip(b"\r")[:_SHOWN]
    if len(line) >= 4 and all(0x20 <= byte < 0x7F for byte in line):
        return f"answered {line.decode('ascii')!r}"
    if size < 4 or size > max_frame_bytes:
        return f"answered with bytes that no frame begins with: {head[:8].hex(' ')}"
    return None
