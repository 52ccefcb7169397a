"""A minimal broker that checks logins. It serves ApiVersions, SaslHandshake, SaslAuthenticate and Metadata.

It closes a connection that sends another request before or between the messages of a login, as Apache Kafka does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

from oncelog.auth.scram import ScramError, ScramServer
from oncelog.auth.scram_credentials import SCRAM_MECHANISMS, ScramCredential, ScramDecoys
from oncelog.protocol.apis import request_class
from oncelog.protocol.codec import decode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import decode_request_header, encode_response
from oncelog.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

FAILED = "Authentication failed: Invalid username or password"


class _Refused(Exception):
    """The login failed; the text is sent to the client."""


class Session:
    """The state of one connection."""

    def __init__(self, broker: SaslBroker) -> None:
        self.broker = broker
        self.user: str | None = None
        self.mechanism = ""
        self.exchange: ScramServer | None = None
        self.refused = b""
        self.under_way = False

    def login(self, message: bytes) -> bytes:
        """Take a message of the mechanism, and return the broker's answer. Sets `under_way` to False at the end."""
        if self.mechanism == "PLAIN":
            _, name, password = message.decode().split("\0")
            if self.broker.users.get(name) != password:
                raise _Refused(FAILED)
            return self.succeed(name, b"")
        if self.mechanism == "OAUTHBEARER":
            return self.bearer(message)
        if self.exchange is None:
            mechanism = SCRAM_MECHANISMS[self.mechanism]
            self.exchange = ScramServer(mechanism)
            self.name = self.exchange.receive(message).name
            password = self.broker.users.get(self.name, "")
            decoy = self.broker.decoys.credential(mechanism, self.name)
            credential = ScramCredential.of_password(mechanism, password) if password else decoy
            return self.exchange.challenge(credential)
        try:
            return self.succeed(self.name, self.exchange.finish(message))
        except ScramError:
            raise _Refused(FAILED) from None

    def bearer(self, message: bytes) -> bytes:
        if self.refused:
            assert message == b"\1"
            raise _Refused("the token is not valid")
        head, token, *extensions = message.decode().removesuffix("\1\1").split("\1")
        assert head == "n,,"
        self.broker.tokens.append(token.removeprefix("auth=Bearer "))
        self.broker.extensions.append(extensions)
        if self.broker.tokens[-1] in self.broker.bad_tokens:
            self.refused = b'{"status":"invalid_token"}'
            return self.refused
        return self.succeed("bearer", b"")

    def succeed(self, name: str, final: bytes) -> bytes:
        self.user, self.under_way = name, False
        self.broker.logins.append(name)
        return final


class SaslBroker:
    """`async with SaslBroker({"alice": "secret"}) as broker` listens at `broker.port`.

    `lifetimes_ms` are the session lifetimes of successive logins; the last one is repeated. `held` delays the response
    to SaslHandshake until the event is set. `requests` are the names of the requests of all connections.
    """

    def __init__(
        self,
        users: Mapping[str, str],
        mechanisms: Sequence[str] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        lifetimes_ms: Sequence[int] = (0,),
        apis: Sequence[type[Any]] = (SaslHandshakeRequest, SaslAuthenticateRequest),
    ) -> None:
        self.users = dict(users)
        self.mechanisms = list(mechanisms)
        self.lifetimes_ms = list(lifetimes_ms)
        self.apis: list[type[Any]] = [ApiVersionsRequest, MetadataRequest, ProduceRequest, *apis]
        self.decoys = ScramDecoys()
        self.logins: list[str] = []
        self.requests: list[str] = []
        self.tokens: list[str] = []
        self.extensions: list[list[str]] = []
        self.bad_tokens: set[str] = set()
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []
        self.let = asyncio.Event()
        self.let.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self.disconnect()

    def disconnect(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        session = Session(self)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header, start = decode_request_header(frame)
                kind = request_class(header.request_api_key)
                assert kind is not None
                self.requests.append(kind.__name__.removesuffix("Request"))
                request = decode(kind, frame, header.request_api_version, start)
                response = await self._answer(session, request)
                if response is None:
                    break
                if not isinstance(request, ProduceRequest):
                    writer.writelines(encode_response(response, header.request_api_version, header.correlation_id))
        writer.close()

    async def _answer(self, session: Session, request: Any) -> Any:
        match request:
            case ApiVersionsRequest():
                ranges = [(kind.spec.key, kind.spec.stable) for kind in self.apis]
                return ApiVersionsResponse(0, [ApiVersion(key, all_.low, all_.high) for key, all_ in ranges])
            case SaslHandshakeRequest():
                await self.let.wait()
                session.mechanism, session.exchange, session.under_way = request.mechanism, None, True
                known = request.mechanism in self.mechanisms
                code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
                return SaslHandshakeResponse(code, self.mechanisms)
            case SaslAuthenticateRequest() if session.under_way:
                try:
                    answer = session.login(bytes(request.auth_bytes))
                except _Refused as error:
                    return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
                lifetimes = self.lifetimes_ms
                ended = not session.under_way
                lifetime = (lifetimes.pop(0) if len(lifetimes) > 1 else lifetimes[0]) if ended else 0
                return SaslAuthenticateResponse(0, None, answer, lifetime)
        if session.under_way or session.user is None:
            self.requests.append("closed")
            return None
        if isinstance(request, ProduceRequest):
            return request
        names = [topic.name for topic in request.topics or ()]
        topics = [MetadataResponseTopic(0, name, partitions=[MetadataResponsePartition()]) for name in names]
        return MetadataResponse(brokers=[MetadataResponseBroker(0, "127.0.0.1", self.port)], topics=topics)
