"""`RestClient`: sends requests to the REST interfaces of other workers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

import h11

from .errors import REQUEST_TIMEOUT_S
from .messages import Response

_READ_BYTES = 65_536


class RestClient:
    """Sends requests over HTTP or HTTPS."""

    def __init__(self, context: Callable[[], ssl.SSLContext] = ssl.create_default_context) -> None:
        """Set up the client. `context` returns the TLS context for a new connection.

        The default context trusts the system's authorities.
        """
        self._context = context

    async def send(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Response:
        """Return the response to a request; the names of its headers are in lower case.

        Raises OSError if there is no complete response within REQUEST_TIMEOUT_S.
        """
        parts = urlsplit(url)
        context = self._context() if parts.scheme == "https" else None
        port = parts.port or (80 if context is None else 443)
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
            try:
                sent = {**headers, "Host": parts.netloc, "Content-Length": str(len(body)), "Connection": "close"}
                target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
                http = h11.Connection(h11.CLIENT)
                encoded = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
                events = h11.Request(method=method, target=target, headers=encoded), h11.Data(body), h11.EndOfMessage()
                writer.writelines([http.send(event) or b"" for event in events])
                await writer.drain()
                return await _response(http, reader)
            except h11.ProtocolError as error:
                raise ConnectionError(f"{url}: {error}") from error
            finally:
                writer.close()


async def _response(http: h11.Connection, reader: asyncio.StreamReader) -> Response:
    status, headers, body = HTTPStatus.OK.value, {}, bytearray()
    while not isinstance(event := http.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
        elif event is h11.NEED_DATA:
            http.receive_data(await reader.read(_READ_BYTES))
    return Response(status, bytes(body), headers)
