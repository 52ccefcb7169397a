"""Define the properties of a client connection that the layers above the sockets use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from ...auth.principal import Principal

if TYPE_CHECKING:  # imported only for listeners with SASL
    from ..security.login import Login


class ConnectionInfo(Protocol):
    """The properties of the connection on which a request arrived, as handlers see them."""

    @property
    def id(self) -> int:
        """The connection's id, unique in this broker's lifetime."""

    @property
    def peer_host(self) -> str:
        """The client's address, without port."""

    @property
    def listener(self) -> str:
        """The name of the listener that accepted the connection, as in the setting `listeners`."""

    @property
    def local_address(self) -> tuple[str, int]:
        """The broker's host and port to which the client connected."""

    @property
    def principal(self) -> Principal:
        """The identity of the client; ANONYMOUS if the client has not proved who it is."""

    @property
    def login(self) -> Login | None:
        """The state of the client's login; None on a listener without SASL."""

    @property
    def answer_allowance(self) -> int:
        """The recommended size limit in bytes of a response that can be made smaller (`queued.max.response.bytes`)."""

    @property
    def closed(self) -> asyncio.Future[None]:
        """A future that is done when the connection is closed."""

    @property
    def state(self) -> dict[str, Any]:
        """Values that handlers keep for the connection's lifetime, for example the client's software name."""

    def close(self, reason: str) -> None:
        """Close the connection and cancel its running requests. `reason` is logged."""
