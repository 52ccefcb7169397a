"""Handle RenewDelegationToken v1-2: let a token's owner or renewer extend the token's validity (KIP-48)."""

from __future__ import annotations

from ...protocol.errors import KafkaError
from ...protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ..api.delegation_token_requests import NO_TIMESTAMP, check_connection, enabled_manager
from ..api.handling import RequestContext, handles


@handles(RenewDelegationTokenRequest, carried_out=True)
async def handle(context: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    try:
        check_connection(context)
    except KafkaError as error:
        return RenewDelegationTokenResponse(int(error.code), NO_TIMESTAMP)
    manager = enabled_manager(context)
    expiry = await manager.renew(bytes(request.hmac), context.connection.principal, request.renew_period_ms)
    return RenewDelegationTokenResponse(0, expiry)
