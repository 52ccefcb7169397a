"""Call an ASGI application as a server does, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def post(app: Any, path: str, bodies: Iterable[bytes]) -> list[int]:
    """Start the application, post all bodies at the same time, stop it, and return the status of each response."""
    events: asyncio.Queue[str] = asyncio.Queue()
    started, stopped = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        return {"type": await events.get()}

    async def send(message: dict[str, Any]) -> None:
        assert message["type"] in ("lifespan.startup.complete", "lifespan.shutdown.complete"), message
        (started if message["type"] == "lifespan.startup.complete" else stopped).set()

    lifespan = asyncio.create_task(app({"type": "lifespan", "state": {}}, receive, send))
    events.put_nowait("lifespan.startup")
    await started.wait()
    statuses = await asyncio.gather(*(_request(app, path, body) for body in bodies))
    events.put_nowait("lifespan.shutdown")
    await stopped.wait()
    await lifespan
    return statuses


async def _request(app: Any, path: str, body: bytes) -> int:
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "server": ("127.0.0.1", 80),
        "root_path": "",
        "scheme": "http",
    }
    await app(scope, receive, send)
    return statuses[0]
