"""Requests and responses of the REST interface, independent of sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from urllib.parse import parse_qs

from ..herder.herder import Herder


@dataclass(frozen=True)
class Request:
    """A request with its whole body.

    `target` is the path and the query as they were sent, without the origin of a target such as http://host/path. The
    names of `headers` are in lower case; the values of a repeated header are joined by commas.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    herder: Herder
    route: str | None = None
    """The pattern that the path matches, for example /connectors/{name}; None if the path or the method is unknown."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The decoded values of the pattern's variables."""
    scheme: str = "http"
    """The scheme of the connection: http or https."""

    @cached_property
    def path(self) -> str:
        """The path as it was sent, without the query."""
        return self.target.partition("?")[0]

    def absolute(self, path: str) -> str:
        """Return the URL of a path on the host that the request names, or the path alone if it names none."""
        host = self.headers.get("host")
        return f"{self.scheme}://{host}{path}" if host else path

    @cached_property
    def query(self) -> dict[str, list[str]]:
        """The decoded values of each parameter of the query, in order."""
        return parse_qs(self.target.partition("?")[2], keep_blank_values=True)


@dataclass(frozen=True)
class Response:
    """A response with its whole body."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]
Middleware = Callable[[Request, Handler], Awaitable[Response]]
"""A function that answers a request itself or calls the next handler."""


class HttpError(Exception):
    """Raised to answer a request with this status code and these headers."""

    def __init__(self, status: HTTPStatus, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"HTTP {status.value} {status.phrase}")
        self.status = status.value
        self.headers = headers or {}
