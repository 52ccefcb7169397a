"""The client's sockets: at most one connection per (node, channel), opened on demand and reopened after a loss.

The pool waits between attempts to connect (backoff), and closes idle connections. It deals with addresses, not with
topics. Responses on a connection come in order, and a JoinGroup may take minutes. So requests that must not wait behind
others have a channel of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ..protocol.errors import ErrorCode
from .backoff import ExponentialBackoff
from .connection import Connection, ConnectionOptions
from .errors import NetworkError
from .metadata import Node
from .shared_task import SharedTaskCancelledError, outcome_of


class ConnectionState:
    """The state of one channel to one node: the open connection, the current attempt to connect, and the earliest time
    of the next attempt.
    """

    __slots__ = ("attempt", "connection", "failures", "next_attempt_at", "node", "silent_since")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.connection: Connection | None = None
        self.attempt: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.next_attempt_at = 0.0
        self.silent_since: float | None = None
        """The time at which the peer accepted the connection of the current attempt, or None if the client is not
        waiting for the peer's first response.
        """


class ConnectionPool:
    """All connections of a client. Callers share an attempt to connect. If the attempt fails, all of these callers
    raise its error.
    """

    def __init__(self, options: ConnectionOptions, backoff: ExponentialBackoff, max_idle_s: float) -> None:
        self._options = options
        self._backoff = backoff
        self._max_idle_s = max_idle_s
        self._states: dict[tuple[int, str], ConnectionState] = {}
        self._closed = False
        self.on_failure: Callable[[Node], None] | None = None

    def open_connection(self, node_id: int, channel: str = "") -> Connection | None:
        """Return the connection to a node if it is open now, else None."""
        state = self._states.get((node_id, channel))
        if state is None or state.connection is None or state.connection.is_closed:
            return None
        return state.connection

    async def connection(self, node: Node, channel: str = "") -> Connection:
        """Return an open connection to a node; if there is none, connect after the backoff.

        Raises the same errors as `Connection.open`.
        """
        state = self._states.get((node.id, channel))
        if state is None:
            state = self._states[node.id, channel] = ConnectionState(node)
        if state.node[1:3] != node[1:3]:  # the broker has moved to another address
            state.node, state.failures, state.next_attempt_at = node, 0, 0.0
            if state.connection is not None:
                state.connection.close("the broker has another address now")
        while state.connection is None or state.connection.is_closed:
            if state.attempt is None:
                state.attempt = asyncio.create_task(self._connect(state), name=f"connect to {node.host}:{node.port}")
                state.attempt.add_done_callback(lambda task: self._attempted(state, task))
            try:
                return await outcome_of(state.attempt)
            except SharedTaskCancelledError:
                if self._closed:
                    raise
        return state.connection

    def adopt(self, bootstrap_id: int, brokers: Iterable[Node]) -> None:
        """If a broker has the address of the bootstrap node `bootstrap_id`, use the bootstrap node's connection for
        this broker.
        """
        state = self._states.get((bootstrap_id, ""))
        if state is None or state.attempt is not None:
            return
        for node in brokers:
            if node[1:3] == state.node[1:3] and (node.id, "") not in self._states:
                del self._states[bootstrap_id, ""]
                state.node = node
                self._states[node.id, ""] = state
                return

    def failing(self, node_id: int) -> bool:
        """Return whether the last attempt to connect to the node failed."""
        return any(state.failures for (known, _), state in self._states.items() if known == node_id)

    def silent_peers(self) -> str:
        """Return a description of the peers that accepted a connection but have sent no response yet, or ""."""
        now = asyncio.get_running_loop().time()
        return "; ".join(
            f"connected to {state.node.host}:{state.node.port}, which has not answered ApiVersions within "
            f"{now - state.silent_since:.1f} s: {self._options.doubt}"
            for state in self._states.values()
            if state.silent_since is not None
        )

    def close_idle(self, now: float) -> None:
        """Close connections that have not been used for connections.max.idle.ms."""
        for state in self._states.values():
            connection = state.connection
            if connection is not None and not connection.unanswered and now - connection.last_used > self._max_idle_s:
                connection.close("it was idle for connections.max.idle.ms")

    async def close(self) -> None:
        """Close every connection, and wait until the sockets are closed. If the wait is cancelled, they close later."""
        self._closed = True
        states = list(self._states.values())
        self._states.clear()
        attempts = [state.attempt for state in states if state.attempt is not None]
        for attempt in attempts:
            attempt.cancel()
        for state in states:
            if state.connection is not None:
                state.connection.close()
        await asyncio.gather(*attempts, return_exceptions=True)
        for state in states:
            if state.connection is not None:
                state.connection.close()
                await state.connection.wait_closed()

    async def _connect(self, state: ConnectionState) -> Connection:
        loop = asyncio.get_running_loop()
        wait = state.next_attempt_at - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)
        node = state.node
        try:
            connection = await Connection.open(
                node.host, node.port, self._options, lambda: setattr(state, "silent_since", loop.time())
            )
        except (Exception, SystemExit, KeyboardInterrupt):  # a program's token provider may exit
            state.next_attempt_at = loop.time() + self._backoff(state.failures)
            state.failures += 1
            raise
        finally:
            state.silent_since = None
        if state.node[1:3] != node[1:3]:
            connection.close("the broker has another address now")
            raise NetworkError(
                ErrorCode.NETWORK_EXCEPTION, f"{connection.address}: node {node.id} has moved to another address"
            )
        # A success resets the backoff. The next attempt waits for the first backoff, in case this connection breaks.
        state.failures = 0
        state.next_attempt_at = loop.time() + self._backoff(0)
        state.connection = connection
        return connection

    def _attempted(self, state: ConnectionState, task: asyncio.Task[Connection]) -> None:
        state.attempt = None
        if not task.cancelled() and task.exception() is not None and self.on_failure is not None:
            self.on_failure(state.node)
