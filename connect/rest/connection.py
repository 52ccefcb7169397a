"""`Connection`: one client's connection to the REST interface, as HTTP/1.1."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import h11

from ..herder.herder import Herder
from .errors import REQUEST_TIMEOUT_S, refusal
from .heads import headers_of, target_of, without_empty_lines
from .messages import Handler, HttpError, Request, Response

if TYPE_CHECKING:
    from .access import RestAccess

log = logging.getLogger(__name__)

IDLE_S: Final = 30.0
"""The longest wait, in seconds, until a client sends or accepts bytes; the value of Kafka Connect's server."""

BODY_S: Final = REQUEST_TIMEOUT_S
"""The longest time, in seconds, until a client has sent the body of a request."""

_LINGER_S: Final = 5.0
"""The longest wait, in seconds, until a client has sent the rest of a body that is discarded."""

_READ_BYTES: Final = 65_536


class Connection:
    """Answers the requests of one connection, one after another.

    `run` returns when the connection has ended. `end` ends the connection after the request in progress.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        herder: Herder,
        handler: Handler,
        max_body_bytes: int,
        access: RestAccess | None = None,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._herder, self._handler, self._max_body_bytes = herder, handler, max_body_bytes
        self._access = access
        self._scheme = "http" if writer.get_extra_info("ssl_object") is None else "https"
        self._http = h11.Connection(h11.SERVER)
        self._early = b""
        """The bytes that arrived together with the previous request, but after its end."""
        self._answering = False
        self._ending = False

    async def run(self) -> None:
        """Answer requests until the client or `end` ends the connection."""
        try:
            while await self._exchange() and not self._ending:
                self._early = self._http.trailing_data[0]
                self._http = h11.Connection(h11.SERVER)
        except (OSError, h11.LocalProtocolError) as error:  # the client is gone, or too slow
            log.debug("a client's connection has ended: %r", error)
        finally:
            await self._close()

    async def _close(self) -> None:
        """Close the connection, and give the client IDLE_S seconds to accept the rest of the last response."""
        self._writer.close()
        try:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(IDLE_S):
                    await self._writer.wait_closed()
        finally:
            self._writer.transport.abort()

    def end(self) -> None:
        """End the connection as soon as no request is in progress."""
        self._ending = True
        if not self._answering:
            self._writer.close()

    async def _exchange(self) -> bool:
        """Receive a request and answer it. Return whether another request may follow."""
        method = ""
        try:
            async with asyncio.timeout(IDLE_S):  # even for a client that sends its head byte by byte
                received, head = await self._head()
            if not isinstance(head, h11.Request):
                return False
            self._answering = True
            method, target = head.method.decode(), target_of(head)
            headers = headers_of(head, received)
            refused = None if self._access is None else await self._access.refusal(method, target, headers)
            if refused is not None:  # before the body is received
                response = refused
            else:
                request = Request(method, target, headers, await self._body(headers), self._herder, scheme=self._scheme)
                response = await self._handler(request)
        except h11.RemoteProtocolError as error:
            response = refusal(HttpError(HTTPStatus(error.error_status_hint)))
        except HttpError as error:
            response = refusal(error)
        await self._respond(method, response)
        self._answering = False
        if self._http.their_state is h11.SEND_BODY:
            await self._linger()
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _head(self) -> tuple[bytes, h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]]:
        """Return the first event of a request, and the bytes from the request's head on. Skip empty lines before it."""
        received, ended = without_empty_lines(self._early), False
        while received in (b"", b"\r") and not ended:
            data = await self._read()
            received, ended = without_empty_lines(received + data), not data
        if received:
            self._http.receive_data(received)
        if ended:
            self._http.receive_data(b"")
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._read())
            received = self._http.trailing_data[0]
        return received, event

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        """Return the body of a request. Raises HttpError if it is too large or takes longer than BODY_S."""
        if int(headers.get("content-length", "0")) > self._max_body_bytes:
            raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S) as deadline:
                while isinstance(event := await self._event(), h11.Data):
                    body += event.data
                    if len(body) > self._max_body_bytes:
                        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        except TimeoutError:
            if deadline.expired():
                raise HttpError(HTTPStatus.REQUEST_TIMEOUT) from None
            raise
        return bytes(body)

    async def _respond(self, method: str, response: Response) -> None:
        headers = {"Date": formatdate(usegmt=True), **response.headers}
        if response.status != HTTPStatus.NO_CONTENT:
            headers["Content-Length"] = str(len(response.body))
        if self._ending or self._http.their_state is not h11.DONE:
            headers["Connection"] = "close"
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        reason = HTTPStatus(response.status).phrase.encode()
        body = [h11.Data(response.body)] if response.body and method != "HEAD" else []
        await self._send(h11.Response(status_code=response.status, headers=encoded, reason=reason), *body)
        await self._send(h11.EndOfMessage())

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._read())
        return event

    async def _read(self) -> bytes:
        async with asyncio.timeout(IDLE_S):
            return await self._reader.read(_READ_BYTES)

    async def _send(self, *events: h11.Event) -> None:
        self._writer.writelines([self._http.send(event) or b"" for event in events])
        async with asyncio.timeout(IDLE_S):
            await self._writer.drain()

    async def _linger(self) -> None:
        """Discard the rest of a body, because closing the connection too early could destroy the response.

        The sending direction is closed first, so that the client sees the end at once. TLS does not allow this.
        """
        if self._writer.can_write_eof():
            self._writer.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                while await self._reader.read(_READ_BYTES):
                    pass
