"""Run the HTTP server of Connect's REST interface with a test's handler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from oncelog.connect.herder.herder import Herder
from oncelog.connect.rest.messages import Handler
from oncelog.connect.rest.server import RestServer
from oncelog.connect.settings.rest import RestAddress


@asynccontextmanager
async def serving(handler: Handler, max_body_bytes: int = 100, *, max_connections: int = 100) -> AsyncIterator[str]:
    """Serve requests with a handler that needs no herder, on a free port of 127.0.0.1. Yield the URL."""
    server = RestServer([RestAddress(False, "127.0.0.1", 0)], max_connections=max_connections)
    server.bind()
    await server.serve(cast(Herder, None), max_body_bytes, handler)
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()
