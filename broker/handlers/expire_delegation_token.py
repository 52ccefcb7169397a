"""Handle ExpireDelegationToken v1-2: let a token's owner or renewer make the token expire earlier (KIP-48)."""

from __future__ import annotations

from ...protocol.errors import KafkaError
from ...protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ..api.delegation_token_requests import NO_TIMESTAMP, check_connection, enabled_manager
from ..api.handling import RequestContext, handles


@handles(ExpireDelegationTokenRequest, carried_out=True)
async def handle(context: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    try:
        check_connection(context)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(int(error.code), NO_TIMESTAMP)
    manager = enabled_manager(context)
    expiry = await manager.expire(bytes(request.hmac), context.connection.principal, request.expiry_time_period_ms)
    return ExpireDelegationTokenResponse(0, expiry)
