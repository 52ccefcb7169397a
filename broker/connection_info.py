"""What everyone above the sockets may know of a connection."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol


class ConnectionInfo(Protocol):
    """What a handler may know of the connection that a request came by."""

    @property
    def id(self) -> int:
        """Unique in this broker's lifetime."""

    @property
    def peer_host(self) -> str:
        """The client's address, without port."""

    @property
    def listener(self) -> str:
        """Name of the listener that accepted it, as in `listeners`."""

    @property
    def local_address(self) -> tuple[str, int]:
        """Our side of it: the address by which the client came."""

    @property
    def answer_allowance(self) -> int:
        """Bytes that an answer should have at most, if it can be made smaller (`queued.max.response.bytes`)."""

    @property
    def closed(self) -> asyncio.Future[None]:
        """Done when the connection is closed."""

    @property
    def state(self) -> dict[str, Any]:
        """What handlers keep for the connection's lifetime (the client's software name, a principal)."""

    def close(self, reason: str) -> None:
        """Close it; requests in hand are given up."""
