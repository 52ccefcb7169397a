"""Answers `GET /metrics`, for Prometheus, and `GET /health` on a listener of its own (`metrics.listener`).

One request per connection, headers read up to a bound and within a time; everything else is refused. Where
`MAX_CONNECTIONS` are open, the oldest makes room for a new one. Reads the metrics, never changes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ..config import Listener as ListenerConfig
from ..metrics import Metrics

MAX_HEAD_BYTES: Final = 8192
REQUEST_TIMEOUT_S: Final = 10.0
MAX_CONNECTIONS: Final = 16


class MetricsListener:
    """A bound socket that serves the metrics of one broker."""

    def __init__(
        self, listener: ListenerConfig, metrics: Metrics, log: Any, problem: Callable[[], Awaitable[str | None]]
    ) -> None:
        """`problem` says what keeps the broker from serving, for `GET /health`."""
        self.host = listener.host
        self.port = listener.port
        self._metrics = metrics
        self._log = log
        self._server: asyncio.Server | None = None
        self._problem = problem
        self._serving: dict[asyncio.Task[Any], None] = {}

    async def start(self) -> None:
        """Bind and answer. Raises OSError where the address cannot be had; afterwards `port` is the real one."""
        self._metrics.exposition()  # prometheus-client is imported now, not while clients wait for the first answer
        self._server = await asyncio.start_server(
            self._serve, self.host or None, self.port, limit=MAX_HEAD_BYTES, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._log.info("metrics_ready", host=self.host, port=self.port)

    async def stop(self) -> None:
        """Close the socket, and what is being answered."""
        if self._server is not None:
            self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._serving) >= MAX_CONNECTIONS:
            oldest = next(iter(self._serving))
            del self._serving[oldest]  # several may come before it has ended
            oldest.cancel()
        self._serving[task] = None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head.split(b"\r\n", 1)[0].split(b" ")))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the peer is gone, or sends no request
        except asyncio.CancelledError:
            writer.transport.abort()  # another connection needs the place, or the broker stops
        finally:
            self._serving.pop(task, None)
            writer.close()

    async def _answer(self, request_line: list[bytes]) -> bytes:
        method, path = (*request_line, b"", b"")[:2]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET /metrics or /health\n")
        status = "200 OK"
        match path.partition(b"?")[0]:
            case b"/metrics":
                body = self._metrics.exposition()
            case b"/health":
                problem = await self._problem()
                status = "503 Service Unavailable" if problem else status
                body = f"{problem or 'healthy'}\n".encode()
            case _:
                return _response("404 Not Found", b"/metrics and /health are here\n")
        answer = _response(status, body)
        return answer[: len(answer) - len(body)] if method == b"HEAD" else answer


def _response(status: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
