"""LeaveGroup v0-5: members go at once instead of timing out. v3: several of them, static ones by instance id
(KIP-345). v5: a reason (KIP-800)."""

from __future__ import annotations

from ...protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ..handling import Deferred, Reply, RequestContext, handles

BATCHES_FROM = 3


@handles(LeaveGroupRequest)
def handle(context: RequestContext, request: LeaveGroupRequest) -> Reply:
    """Answered when it would survive a restart that the members are gone."""
    coordinator = context.broker.group_coordinator
    if context.api_version < BATCHES_FROM:
        (left,) = coordinator.leave(request.group_id, [MemberIdentity(request.member_id)])
        response = LeaveGroupResponse(error_code=left.error_code)
    else:
        response = LeaveGroupResponse(members=coordinator.leave(request.group_id, request.members))
    settled = coordinator.settled(request.group_id)
    return response if settled is None else Deferred(settled, lambda _: response)
