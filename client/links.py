"""The client's sockets: at most one connection per (node, channel), opened on demand and reopened after a loss.

Links wait between attempts to connect (backoff), and close idle connections. They know addresses, not topics. A channel
separates requests that must not wait behind other requests, because responses come in order and a JoinGroup may take
minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..protocol.errors import ErrorCode
from .backoff import ExponentialBackoff
from .connection import Connection, ConnectionOptions
from .errors import NetworkError
from .metadata import Node
from .shared_task import outcome_of


class Link:
    """The state of one (node, channel): its open connection, the current attempt to connect, and the earliest time of
    the next attempt.
    """

    __slots__ = ("attempt", "connection", "failures", "next_attempt_at", "node", "silent_since")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.connection: Connection | None = None
        self.attempt: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.next_attempt_at = 0.0
        self.silent_since: float | None = None
        """Time when the peer accepted the current attempt's connection; None unless its first response is awaited."""


class Links:
    """All links of a client. Callers share an attempt to connect; its failure is raised in all of them."""

    def __init__(self, options: ConnectionOptions, backoff: ExponentialBackoff, max_idle_s: float) -> None:
        self._options = options
        self._backoff = backoff
        self._max_idle_s = max_idle_s
        self._links: dict[tuple[int, str], Link] = {}
        self.on_failure: Callable[[Node], None] | None = None

    def open_connection(self, node_id: int, channel: str = "") -> Connection | None:
        """Return the connection to a node if it is open now, else None."""
        link = self._links.get((node_id, channel))
        if link is None or link.connection is None or link.connection.is_closed:
            return None
        return link.connection

    async def connection(self, node: Node, channel: str = "") -> Connection:
        """Return an open connection to a node; if there is none, connect after the backoff. Raises as Connection.open
        does.
        """
        link = self._links.get((node.id, channel))
        if link is None:
            link = self._links[node.id, channel] = Link(node)
        if link.node[1:3] != node[1:3]:  # the broker has moved to another address
            link.node, link.failures, link.next_attempt_at = node, 0, 0.0
            if link.connection is not None:
                link.connection.close("the broker has another address now")
        if link.connection is not None and not link.connection.is_closed:
            return link.connection
        if link.attempt is None:
            link.attempt = asyncio.create_task(self._connect(link), name=f"connect to {node.host}:{node.port}")
            link.attempt.add_done_callback(lambda task: self._attempted(link, task))
        return await outcome_of(link.attempt)

    def failing(self, node_id: int) -> bool:
        """Return whether the last attempt to connect to the node failed."""
        return any(link.failures for (known, _), link in self._links.items() if known == node_id)

    def silent_peers(self) -> str:
        """Return a description of the peers that accepted a connection but have sent no response yet, or ""."""
        now = asyncio.get_running_loop().time()
        return "; ".join(
            f"connected to {link.node.host}:{link.node.port}, which has not answered ApiVersions within "
            f"{now - link.silent_since:.1f} s: {self._options.doubt}"
            for link in self._links.values()
            if link.silent_since is not None
        )

    def close_idle(self, now: float) -> None:
        """Close connections that were not used for connections.max.idle.ms."""
        for link in self._links.values():
            connection = link.connection
            if connection is not None and not connection.unanswered and now - connection.last_used > self._max_idle_s:
                connection.close("it was idle for connections.max.idle.ms")

    async def close(self) -> None:
        """Close every connection, and wait until the sockets are closed. A cancellation ends the wait only."""
        links = list(self._links.values())
        self._links.clear()
        attempts = [link.attempt for link in links if link.attempt is not None]
        for attempt in attempts:
            attempt.cancel()
        for link in links:
            if link.connection is not None:
                link.connection.close()
        await asyncio.gather(*attempts, return_exceptions=True)
        for link in links:
            if link.connection is not None:
                link.connection.close()
                await link.connection.wait_closed()

    async def _connect(self, link: Link) -> Connection:
        loop = asyncio.get_running_loop()
        wait = link.next_attempt_at - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)
        node = link.node
        try:
            connection = await Connection.open(
                node.host, node.port, self._options, lambda: setattr(link, "silent_since", loop.time())
            )
        except Exception:
            link.next_attempt_at = loop.time() + self._backoff(link.failures)
            link.failures += 1
            raise
        finally:
            link.silent_since = None
        if link.node[1:3] != node[1:3]:
            connection.close("the broker has another address now")
            raise NetworkError(
                ErrorCode.NETWORK_EXCEPTION, f"{connection.address}: node {node.id} has moved to another address"
            )
        # The first use of a connection resets the backoff. Until then the backoff stays, in case the connection breaks.
        link.failures = 0
        link.next_attempt_at = loop.time() + self._backoff(0)
        link.connection = connection
        return connection

    def _attempted(self, link: Link, task: asyncio.Task[Connection]) -> None:
        link.attempt = None
        if not task.cancelled() and task.exception() is not None and self.on_failure is not None:
            self.on_failure(link.node)
