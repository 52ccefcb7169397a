"""Handle LeaveGroup v0-5: remove members without waiting for their session timeout.

v3: several members, and static members by instance id (KIP-345). v5: a reason (KIP-800).
"""

from __future__ import annotations

from ...protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ..api.handling import Answer, Deferred, RequestContext, handles
from ..scheduling.steps import Steps

BATCHES_FROM = 3

AT_A_TIME = 100
"""The number of members that are removed together, before the remaining members are rebalanced."""


@handles(LeaveGroupRequest, carried_out=True)
def handle(context: RequestContext, request: LeaveGroupRequest) -> Steps[Answer]:
    """Remove the members; send the response when the removal is durable."""
    coordinator = context.broker.group_coordinator
    if context.api_version < BATCHES_FROM:
        (left,) = coordinator.leave(request.group_id, [MemberIdentity(request.member_id)])
        settled = coordinator.settled(request.group_id)
        response = LeaveGroupResponse(error_code=left.error_code)
    else:
        response = LeaveGroupResponse()
        for start in range(0, max(len(request.members), 1), AT_A_TIME):
            leaving = request.members[start : start + AT_A_TIME]
            response.members += coordinator.leave(request.group_id, leaving)
            settled = coordinator.settled(request.group_id)
            yield 5 * context.rows(len(leaving))
    return response if settled is None else Deferred(settled, lambda _: response)
