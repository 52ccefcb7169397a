"""Answer `GET /metrics`, for Prometheus, and `GET /health` on a separate listener (`metrics.listener`).

A connection serves one request, whose headers may have at most `MAX_HEAD_BYTES` and must arrive within
`REQUEST_TIMEOUT_S`; other requests are refused. When `MAX_CONNECTIONS` are open, a new connection replaces the oldest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ..listener_config import ListenerConfig
from ..metrics import Metrics

MAX_HEAD_BYTES: Final = 8192
REQUEST_TIMEOUT_S: Final = 10.0
MAX_CONNECTIONS: Final = 16


class MetricsListener:
    """A bound socket that serves the metrics and the health of one broker."""

    def __init__(
        self, listener: ListenerConfig, metrics: Metrics, log: Any, problem: Callable[[], Awaitable[str | None]]
    ) -> None:
        """Prepare the listener. For `GET /health`, `problem` returns the reason why the broker cannot serve, if any."""
        self.host = listener.host
        self.port = listener.port
        self._metrics = metrics
        self._log = log
        self._server: asyncio.Server | None = None
        self._problem = problem
        self._serving: dict[asyncio.Task[Any], None] = {}

    async def start(self) -> None:
        """Bind the listener's address and accept connections. Afterwards `port` is the real port.

        Raises OSError if the address cannot be bound.
        """
        self._metrics.exposition()  # imports prometheus-client now, not while a client waits for the first response
        self._server = await asyncio.start_server(
            self._serve, self.host or None, self.port, limit=MAX_HEAD_BYTES, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._log.info("metrics_ready", host=self.host, port=self.port)

    async def stop(self) -> None:
        """Close the listening socket and the connections whose requests are still being answered."""
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
            del self._serving[oldest]  # several new connections may arrive before its task has ended
            oldest.cancel()
        self._serving[task] = None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head.split(b"\r\n", 1)[0].split(b" ")))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the peer closed the connection or sent no complete request
        except asyncio.CancelledError:
            writer.transport.abort()  # a newer connection needs the place, or the broker stops
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
