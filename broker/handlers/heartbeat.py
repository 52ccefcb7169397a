"""Handle Heartbeat v0-4: keep a member's session alive and tell the member when it must rejoin.

v3: static members (KIP-345).
"""

from __future__ import annotations

from ...protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..api.handling import RequestContext, handles


@handles(HeartbeatRequest)
def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Extend the member's session, even if the response is REBALANCE_IN_PROGRESS."""
    code = context.broker.group_coordinator.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=int(code))
