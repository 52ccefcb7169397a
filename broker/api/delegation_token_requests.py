"""Define the checks that requests about delegation tokens share (KIP-48)."""

from __future__ import annotations

from typing import Final

from ...auth.principal import ANONYMOUS
from ...protocol.errors import ErrorCode, KafkaError
from ..metadata.delegation_tokens import DelegationTokenManager
from .handling import RequestContext

NO_TIMESTAMP: Final = -1
"""The value of timestamps in error responses that Kafka's brokers make. Error responses of its controller have 0."""


def check_connection(context: RequestContext) -> None:
    """Raise KafkaError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED unless the client has proved its identity without a token.

    A certificate or a login proves the identity.
    """
    login = context.connection.login
    if login.token_id is not None if login is not None else context.connection.principal == ANONYMOUS:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def enabled_manager(context: RequestContext) -> DelegationTokenManager:
    """Return the manager of delegation tokens. Raises KafkaError DELEGATION_TOKEN_AUTH_DISABLED if they are off."""
    manager = context.broker.delegation_tokens
    if manager is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return manager
