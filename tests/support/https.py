"""Send one HTTP request as monitoring systems do, over TLS or not."""

from __future__ import annotations

import asyncio
import base64
import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oncelog.auth.password_hash import PasswordHash

TOKEN = "0123456789abcdef0123456789abcdef"
PASSWORD = "süß:secret"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: str


async def get(
    port: int,
    path: str,
    context: ssl.SSLContext | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    method: str = "GET",
    host: str = "localhost",
    body: bytes | None = None,
) -> Answer:
    """Return the response to a request to a port of this machine. `context` is None for HTTP."""

    def ask() -> Answer:
        connection = (
            http.client.HTTPConnection(host, port, timeout=60)
            if context is None
            else http.client.HTTPSConnection(host, port, timeout=60, context=context)
        )
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.headers), answer.read().decode())
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


def basic(name: str, password: str = PASSWORD) -> dict[str, str]:
    """Return the header of HTTP basic authentication."""
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def bearer(token: str = TOKEN) -> dict[str, str]:
    """Return the header with a token."""
    return {"Authorization": f"Bearer {token}"}


def users_file(directory: Path, *names: str, password: str = PASSWORD) -> Path:
    """Write a file of users that all have the same password."""
    path = directory / "users"
    path.write_text("# users\n" + "".join(f"{name}:{PasswordHash.of_password(password)}\n" for name in names))
    return path


def tokens_file(directory: Path, *tokens: str) -> Path:
    """Write a file of tokens."""
    path = directory / "tokens"
    path.write_text("\n".join(tokens or (TOKEN,)) + "\n")
    return path
