"""Handle ExpireDelegationToken v1-2: let a token expire earlier or at once, for its owner and its renewers (KIP-48)."""

from __future__ import annotations

from ...protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ..api.delegation_token_requests import check_connection, enabled_manager
from ..api.handling import RequestContext, handles


@handles(ExpireDelegationTokenRequest, carried_out=True)
async def handle(context: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    check_connection(context)
    manager = enabled_manager(context)
    expiry = await manager.expire(bytes(request.hmac), context.connection.principal, request.expiry_time_period_ms)
    return ExpireDelegationTokenResponse(0, expiry)
