"""Delegation tokens (KIP-48), with which other processes log in as the token's owner, without the owner's password."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...auth.principal import Principal
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ...protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ...protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ...protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ..connection import Connection
from ..errors import UnsupportedVersionError, error_for
from .calls import AdminCalls

_OWNER_VERSION: Final = 3
"""The first version of CreateDelegationToken that names an owner (KIP-373)."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token. Principals have the form `User:alice`; times are in ms since the epoch.

    To log in with the token, a client uses SCRAM with `token_id` as the user name, `password` as the password, and the
    extension `tokenauth=true`. `requester` is the client that created the token; it is empty if the broker is older
    than Apache Kafka 3.3. The token is valid until `expiry_timestamp`, and cannot be renewed beyond `max_timestamp`.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    hmac: bytes = field(repr=False)

    @property
    def password(self) -> str:
        """The token's secret as text: the HMAC in base64."""
        return base64.b64encode(self.hmac).decode()

    @property
    def jaas_config(self) -> str:
        """The value of `sasl.jaas.config` for clients that log in with the token. It contains the secret."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return f'{module} required username="{self.token_id}" password="{self.password}" tokenauth="true";'


async def create(
    calls: AdminCalls, owner: Principal | None, renewers: Sequence[Principal], max_lifetime_ms: int
) -> DelegationToken:
    """Create a token for the client itself, or for another owner."""
    renewing = [CreatableRenewers(each.kind, each.name) for each in renewers]
    kind, name = (None, None) if owner is None else (owner.kind, owner.name)

    def build(connection: Connection) -> tuple[CreateDelegationTokenRequest, int]:
        version = connection.version_of(CreateDelegationTokenRequest)
        if version >= _OWNER_VERSION:
            return CreateDelegationTokenRequest(kind, name, renewing, max_lifetime_ms), version
        if owner is not None:
            raise UnsupportedVersionError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{connection.address} creates tokens for the client itself only: leave out the owner",
            )
        return CreateDelegationTokenRequest(renewers=renewing, max_lifetime_ms=max_lifetime_ms), version

    answer = await calls.any(build, "create a delegation token")
    if answer.error_code:
        raise error_for(answer.error_code)
    return DelegationToken(
        answer.token_id,
        _text(answer.principal_type, answer.principal_name),
        _text(answer.token_requester_principal_type, answer.token_requester_principal_name),
        tuple(map(str, renewers)),
        answer.issue_timestamp_ms,
        answer.expiry_timestamp_ms,
        answer.max_timestamp_ms,
        bytes(answer.hmac),
    )


async def renew(calls: AdminCalls, hmac: bytes, period_ms: int) -> int:
    """Renew a token; return its new expiry."""
    answer = await calls.simple(RenewDelegationTokenRequest(hmac, period_ms), "renew a delegation token")
    if answer.error_code:
        raise error_for(answer.error_code)
    return answer.expiry_timestamp_ms


async def expire(calls: AdminCalls, hmac: bytes, period_ms: int) -> int:
    """Let a token expire; return its new expiry."""
    answer = await calls.simple(ExpireDelegationTokenRequest(hmac, period_ms), "expire a delegation token")
    if answer.error_code:
        raise error_for(answer.error_code)
    return answer.expiry_timestamp_ms


async def describe(calls: AdminCalls, owners: Iterable[Principal] | None) -> list[DelegationToken]:
    """Return the tokens that the client may see, sorted by the time of their creation."""
    wanted = None if owners is None else [DescribeDelegationTokenOwner(each.kind, each.name) for each in owners]
    answer = await calls.simple(DescribeDelegationTokenRequest(wanted), "describe delegation tokens")
    if answer.error_code:
        raise error_for(answer.error_code)
    tokens = [
        DelegationToken(
            each.token_id,
            _text(each.principal_type, each.principal_name),
            _text(each.token_requester_principal_type, each.token_requester_principal_name),
            tuple(_text(renewer.principal_type, renewer.principal_name) for renewer in each.renewers),
            each.issue_timestamp,
            each.expiry_timestamp,
            each.max_timestamp,
            bytes(each.hmac),
        )
        for each in answer.tokens
    ]
    return sorted(tokens, key=lambda token: (token.issue_timestamp, token.token_id))


def _text(kind: str, name: str) -> str:
    return f"{kind}:{name}" if kind else ""
