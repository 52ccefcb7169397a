"""Simulate connections: the broker's real `Connection` behind a transport that breaks, and delays and loses frames.

A connection keeps its order, as TCP does. A fault may be drawn for each request: it never leaves, its response never
arrives, or it is slow. A client whose connection broke opens another one and repeats the request. With `late`, the
broker does not notice the broken connection, and may execute requests that were under way on it at any later time.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from oncelog.broker.network.connection import Connection
from oncelog.protocol.framing import decode_response, encode_request
from oncelog.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)


BETWEEN_FRAMES_S = 1e-5
"""Seconds between the arrivals of frames that must keep their order."""


class Disconnected(Exception):
    """The connection is broken, or the broker is down. It is unknown whether the request was executed."""


@dataclass
class Weather:
    """The state of the network, which the scenario changes as time passes. Times are in seconds."""

    rng: Random
    latency: float = 0.01
    breaks: float = 0.0
    slow: float = 0.0

    def delay(self) -> float:
        """Return the time that one frame takes, in seconds."""
        rng = self.rng
        if self.slow and rng.random() < self.slow:
            return rng.random() * 2.0
        return self.latency * (0.2 + rng.random())


class BrokerSide:
    """The transport to which the broker's connection writes."""

    def __init__(self, link: Link) -> None:
        self._link: Link | None = link
        self._closing = False
        self._paused = False
        self._ended = False
        self._arrived: deque[bytes] = deque()
        self.connection: Connection | None = None

    # --- what Connection calls

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 9092)}.get(name)

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        asyncio.get_running_loop().call_soon(self._feed)

    def writelines(self, pieces: Any) -> None:
        if self._link is not None:
            self._link.answered(b"".join(pieces))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self.lose)

    abort = close

    # --- what the network does

    def arrive(self, frame: bytes) -> None:
        """Pass a frame that has arrived to the broker."""
        self._arrived.append(frame)
        self._feed()

    def _feed(self) -> None:
        connection = self.connection
        while self._arrived and not self._paused and connection is not None and not self._closing:
            frame = self._arrived.popleft()
            room = connection.get_buffer(len(frame))
            count = min(len(room), len(frame))
            room[:count] = frame[:count]
            if count < len(frame):
                self._arrived.appendleft(frame[count:])
            connection.buffer_updated(count)
        if self._ended and not (self._arrived or self._paused or self._closing) and connection is not None:
            self._ended = False
            if not connection.eof_received():
                self.lose()

    def end(self) -> None:
        """Close the connection after the frames that have arrived, because the client has closed it."""
        self._ended = True
        self._feed()

    def forget_client(self) -> None:
        """Drop all responses from now on."""
        self._link = None

    def lose(self) -> None:
        """Let the broker find the connection closed."""
        self._closing = True
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.connection_lost(None)
        link, self._link = self._link, None
        if link is not None:
            link.broker_closed()


class Network:
    """All connections to one broker."""

    _ids = itertools.count(1)

    def __init__(self, broker: Any, weather: Weather) -> None:
        self.broker = broker
        self.weather = weather
        self.requests = 0
        self.open: dict[BrokerSide, None] = {}

    def connect(self, link: Link) -> BrokerSide:
        """Open a connection. Raises Disconnected while the broker is down."""
        if not self.broker.up:
            raise Disconnected
        listener = self.broker.listener
        side = BrokerSide(link)
        side.connection = Connection(
            next(self._ids), listener, self.broker.broker.dispatcher, asyncio.get_running_loop()
        )
        side.connection.connection_made(side)  # type: ignore[arg-type]
        self.open[side] = None
        return side

    def break_all(self) -> None:
        """Break all connections, because the broker has ended: nothing under way arrives on either side."""
        for side in list(self.open):
            side.lose()
        self.open.clear()


class Link:
    """A client's connection.

    `late`: after the connection broke, the broker may still execute requests that were under way. `in_order`: requests
    in flight together arrive one after the other, and none arrives after one that was lost.
    """

    def __init__(
        self, network: Network, client_id: str, *, late: bool, extension: int = -1, in_order: bool = False
    ) -> None:
        self._network = network
        self._client_id = client_id
        self._late = late
        self._in_order = in_order
        self._is_cut = False
        self._extension = extension
        self._side = network.connect(self)
        self._waiting: dict[int, tuple[asyncio.Future[Any], type[Response], int]] = {}
        self._correlation = 0
        self._there_at = 0.0
        self._back_at = 0.0
        self.broken = False

    def send(self, request: Request[R], version: int) -> asyncio.Future[R]:
        """Send a request. The future fails with Disconnected if the connection breaks before the response."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        if self.broken:
            future.set_exception(Disconnected())
            return future
        network = self._network
        network.requests += 1
        weather = network.weather
        self._correlation += 1
        self._waiting[self._correlation] = future, request.response, version
        frame = b"".join(encode_request(request, version, self._correlation, self._client_id, self._extension))
        self._there_at = max(self._there_at, loop.time() + weather.delay())
        if self._in_order:
            self._there_at += BETWEEN_FRAMES_S
            if self._is_cut:
                return future
        if weather.breaks and (luck := weather.rng.random()) < weather.breaks:
            self._is_cut = True
            if luck < weather.breaks / 2:
                loop.call_at(self._there_at, self.close)  # it never arrives
                return future
            # The request arrives, but its response does not. The client may give up before the request arrives.
            early = self._late and weather.rng.random() < 0.5
            loop.call_at(loop.time() + weather.delay() if early else self._there_at + weather.delay() / 2, self.close)
            if early:
                self._there_at += weather.rng.random() * 3.0
        loop.call_at(self._there_at, self._side.arrive, frame)
        return future

    @property
    def is_open(self) -> bool:
        """Whether the broker has not closed its side yet."""
        return self._side.connection is not None

    async def finish(self) -> None:
        """Close the connection after everything that was sent has arrived. Raises Disconnected if it broke before."""
        left_s = max(0.0, self._there_at - asyncio.get_running_loop().time())
        await asyncio.sleep(left_s + self._network.weather.delay())
        if self.broken or self._is_cut:
            raise Disconnected
        self._side.end()

    def answered(self, frame: bytes) -> None:
        """Receive a response of the broker."""
        loop = asyncio.get_running_loop()
        self._back_at = max(self._back_at, loop.time() + self._network.weather.delay())
        loop.call_at(self._back_at, self._receive, frame)

    def _receive(self, frame: bytes) -> None:
        if self.broken:
            return
        correlation = int.from_bytes(frame[4:8], "big")
        future, response, version = self._waiting.pop(correlation)
        if not future.done():
            future.set_result(decode_response(response, version, memoryview(frame)[4:])[1])

    def broker_closed(self) -> None:
        """Notice that the broker has closed the connection, or has ended."""
        loop = asyncio.get_running_loop()
        loop.call_at(max(self._back_at, loop.time() + self._network.weather.delay()), self.close)

    def close(self, *, late: bool = False) -> None:
        """Close the client's side.

        With `late`, requests under way still arrive at the broker, as they do on a connection that is always `late`.
        """
        if self.broken:
            return
        self.broken = True
        side = self._side
        side.forget_client()
        if self._late or late:
            loop = asyncio.get_running_loop()
            loop.call_at(max(self._there_at, loop.time()) + self._network.weather.delay(), side.lose)
        else:
            side.lose()
        waiting, self._waiting = self._waiting, {}
        for future, _, _ in waiting.values():
            if not future.done():
                future.set_exception(Disconnected())
                future.exception()
