"""Handle SyncGroup v0-5: the leader submits the assignment of its generation, and every member receives its own part.

v3: static members. v5: the request names the protocol, so that a mismatch is detected (KIP-559).
"""

from __future__ import annotations

from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..api.handling import Deferred, RequestContext, handles
from ..scheduling.steps import Steps

PROTOCOL_REQUIRED_FROM = 5


AT_ONCE: Final = 200
"""The number of members whose assignments are read in one step."""


@handles(SyncGroupRequest)
def handle(context: RequestContext, request: SyncGroupRequest) -> Steps[Deferred[SyncGroupResponse]]:
    """Respond when the leader's assignment is durable. Other requests are executed meanwhile."""
    if context.api_version >= PROTOCOL_REQUIRED_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assignments: dict[str, bytes] = {}
    for start in range(0, len(request.assignments), AT_ONCE):
        portion = request.assignments[start : start + AT_ONCE]
        assignments.update((item.member_id, bytes(item.assignment)) for item in portion)
        yield len(portion)
    return Deferred(context.broker.group_coordinator.sync(request, assignments))
