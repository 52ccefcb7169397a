"""Heartbeat v0-4: a member is alive; the answer tells it when it has to join again. v3: static members."""

from __future__ import annotations

from ...protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..handling import RequestContext, handles


@handles(HeartbeatRequest)
def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """REBALANCE_IN_PROGRESS is an answer, not a failure: the member's session goes on."""
    code = context.broker.group_coordinator.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=int(code))
