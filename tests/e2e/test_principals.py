"""The principal of each connection: of a certificate, of a login, or ANONYMOUS."""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import Any

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.settings import ConfigError
from support.raw_connection import RawConnection
from support.sasl import broker_with_sasl, log_in, sasl_address
from support.tls import HOST, Authority, broker_with_tls, tls_port

pytestmark = pytest.mark.oncelog_only(reason="is about the broker's own listeners")

WITH_CERTIFICATES = {"ssl.client.auth": "requested"}
WHOLE = "User:CN=alice"


def note_principals(broker: BrokerNode) -> list[str]:
    """Return the principals of the requests from now on, in a list that grows."""
    seen: list[str] = []
    execute = broker.dispatcher.execute

    def noted(exchange: Any) -> Any:
        seen.append(str(exchange.context.connection.principal))
        return execute(exchange)

    broker.dispatcher.execute = noted  # type: ignore[method-assign]
    return seen


async def greet(port: int, context: ssl.SSLContext) -> bool:
    """Send a request over TLS; return whether it was answered."""
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
    try:
        writer.writelines(encode_request(ApiVersionsRequest("test", "1"), 3, 1, "tls"))
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return len(await reader.readexactly(size)) > 100
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    finally:
        writer.close()


async def test_the_subject_of_a_certificate_is_the_principal(authority: Authority) -> None:
    settings = {**WITH_CERTIFICATES, "ssl.truststore.location": str(authority.trusted)}
    async with broker_with_tls(authority, **settings) as broker:
        seen = note_principals(broker)
        assert await greet(tls_port(broker), authority.context(authority.certificate("alice")))
        assert await greet(tls_port(broker), authority.context())
        assert seen == [WHOLE, "User:ANONYMOUS"]


async def test_rules_shorten_the_subject_and_close_a_connection_that_fits_none(authority: Authority) -> None:
    settings = {
        **WITH_CERTIFICATES,
        "ssl.truststore.location": str(authority.trusted),
        "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(a\\w*)(,.*)?$/$1/U",
    }
    async with broker_with_tls(authority, **settings) as broker:
        seen = note_principals(broker)
        assert await greet(tls_port(broker), authority.context(authority.certificate("alice")))
        assert not await greet(tls_port(broker), authority.context(authority.certificate("bob")))
        assert await greet(tls_port(broker), authority.context(authority.certificate("anna")))
        assert seen == ["User:ALICE", "User:ANNA"]


async def test_the_user_of_a_login_is_the_principal() -> None:
    async with broker_with_sasl() as broker, RawConnection(sasl_address(broker)) as wire:
        seen = note_principals(broker)
        await log_in(wire, "PLAIN", "alice", "alice;secret")
        await wire.call(MetadataRequest(), 2)
        assert seen == ["User:ANONYMOUS", "User:ANONYMOUS", "User:alice"]


def test_rules_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules: .*is not a rule"):
        BrokerNode(config={"ssl.principal.mapping.rules": "RULE:x"})
