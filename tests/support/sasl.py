"""Brokers with a SASL listener beside a plaintext one, and logins on raw connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from oncelog.auth.mechanism_names import PLAIN, SCRAM_NUMBERS
from oncelog.auth.scram import ScramClient
from oncelog.auth.scram_credentials import SCRAM_MECHANISMS
from oncelog.broker.node import BrokerNode
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest

from .raw_connection import RawConnection

ALICE: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice;secret";'
"""The JAAS line of the user alice, whose password is `alice;secret`."""

ALL_MECHANISMS: Final = ",".join((PLAIN, *SCRAM_NUMBERS))


@asynccontextmanager
async def broker_with_sasl(**settings: Any) -> AsyncIterator[BrokerNode]:
    """A broker with a plaintext listener and one with SASL, on free ports."""
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ALL_MECHANISMS,
        "plain.sasl.jaas.config": ALICE,
        "connection.failed.authentication.delay.ms": "0",
        "logging.level": "error",
        **settings,
    }
    async with BrokerNode(config=config) as broker:
        yield broker


def sasl_address(broker: BrokerNode) -> str:
    """Return the address of the SASL listener."""
    assert broker._listeners is not None
    return f"127.0.0.1:{broker._listeners.named('SASL_PLAINTEXT').port}"


def login_settings(broker: BrokerNode, mechanism: str, **more: Any) -> dict[str, Any]:
    """Return the settings, as keywords, with which aiokafka and kafka-python log in at the SASL listener."""
    return {
        "bootstrap_servers": sasl_address(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        **more,
    }


def upsertion(user: str, mechanism: str, password: str, *, iterations: int = 4096) -> ScramCredentialUpsertion:
    """Return the change that sets a password, as an admin client computes it."""
    salt = b"salt of " + user.encode()
    salted = SCRAM_MECHANISMS[mechanism].salted_password(password, salt, iterations)
    return ScramCredentialUpsertion(user, SCRAM_NUMBERS[mechanism], iterations, salt, salted)


async def alter_credentials(
    wire: RawConnection, *changes: ScramCredentialDeletion | ScramCredentialUpsertion
) -> dict[str, int]:
    """Change credentials; return the error code of each user."""
    request = AlterUserScramCredentialsRequest(
        [change for change in changes if isinstance(change, ScramCredentialDeletion)],
        [change for change in changes if isinstance(change, ScramCredentialUpsertion)],
    )
    answer: AlterUserScramCredentialsResponse = await wire.call(request, 0)
    return {result.user: result.error_code for result in answer.results}


async def authenticate(wire: RawConnection, message: bytes) -> SaslAuthenticateResponse:
    """Send one message of a mechanism."""
    return await wire.call(SaslAuthenticateRequest(message), 2)


async def log_in(
    wire: RawConnection, mechanism: str, user: str, password: str, *, by_token: bool = False
) -> SaslAuthenticateResponse:
    """Log in by PLAIN or SCRAM; return the last response. With `by_token`, by the id and secret of a token."""
    await wire.call(SaslHandshakeRequest(mechanism), 1)
    if mechanism == PLAIN:
        return await authenticate(wire, f"\0{user}\0{password}".encode())
    extensions = {"tokenauth": "true"} if by_token else {}
    client = ScramClient(SCRAM_MECHANISMS[mechanism], user, password, extensions=extensions)
    challenge = await authenticate(wire, client.first())
    if challenge.error_code:
        return challenge
    last = await authenticate(wire, client.respond(challenge.auth_bytes))
    if not last.error_code:
        client.finish(last.auth_bytes)
    return last
