"""Send a request through a running broker's dispatcher without a socket, from its frame to the response's bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from oncelog.auth.principal import ANONYMOUS
from oncelog.broker.api.handling import Deferred
from oncelog.broker.dispatcher import MalformedRequest
from oncelog.broker.node import BrokerNode
from oncelog.protocol.framing import encode_request
from oncelog.protocol.schema import Request, Response

PATIENCE_S = 0.2
"""The limit of waiting for a response that may never come, such as that of a JoinGroup that waits for other members."""


class Peer:
    """A stand-in for the connection on which a frame arrived."""

    def __init__(self) -> None:
        self.id = 1
        self.listener = "PLAINTEXT"
        self.peer_host = "127.0.0.1"
        self.local_address = ("127.0.0.1", 9092)
        self.principal = ANONYMOUS
        self.login = None
        self.state: dict[str, Any] = {}
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_open = True
        self.answer_allowance = 1 << 30

    def close(self, reason: str) -> None:
        self.is_open = False


class Bugs:
    """A logger that stores the unexpected exceptions of handlers."""

    def __init__(self) -> None:
        self.found: list[BaseException] = []

    def error(self, event: str, exc_info: BaseException | None = None, **fields: Any) -> None:
        if exc_info is not None:
            self.found.append(exc_info)

    def warning(self, event: str, **fields: Any) -> None: ...

    def info(self, event: str, **fields: Any) -> None: ...


def frame_of(request: Request[Any], version: int) -> bytes:
    """Return a request's frame, without its size."""
    return b"".join(encode_request(request, version, 1, "c"))[4:]


async def sent(broker: BrokerNode, frame: bytes) -> bytes | None:
    """Return the broker's response, without its size. Raises exceptions that no handler may raise.

    Return None if the broker closes the connection, sends no response, or lets the client wait.
    """
    peer = Peer()
    try:
        return await asyncio.wait_for(_answered(broker, peer, frame), PATIENCE_S)
    except TimeoutError:
        return None
    finally:
        peer.closed.set_result(None)


async def _answered(broker: BrokerNode, peer: Peer, frame: bytes) -> bytes | None:
    dispatcher = broker.dispatcher
    try:
        exchange = dispatcher.accept(peer, memoryview(bytearray(frame)))
    except MalformedRequest:
        return None
    deferred, answer = None, None
    failure: BaseException | None = None
    try:
        reply: Any = dispatcher.execute(exchange)
        if isinstance(reply, Coroutine):
            reply = await reply
        if isinstance(reply, list):
            return b"".join(reply)[4:] or None
        if isinstance(reply, Deferred):
            deferred = reply
            if reply.awaitable is not None:
                awaited = asyncio.ensure_future(reply.awaitable)
                try:
                    await asyncio.wait([awaited])
                finally:
                    awaited.cancel()
                if awaited.cancelled():
                    failure = asyncio.CancelledError()  # as in a connection
                else:
                    answer = awaited.result()
        else:
            answer = reply
    except Exception as error:
        failure = error
    response = dispatcher.conclude(exchange, deferred, answer, failure)
    if isinstance(response, Response):
        return b"".join(dispatcher.encode(exchange, response))[4:]
    pieces = await response if isinstance(response, Coroutine) else None
    return b"".join(pieces)[4:] if pieces else None
