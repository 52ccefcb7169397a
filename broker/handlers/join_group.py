"""JoinGroup v0-9: become a member, or stay one, of the generation that is about to begin.

v1: own rebalance timeout. v4: the member id is asked back (KIP-394). v5: static members (KIP-345). v7: protocol type in
the answer. v8: a reason. v9: a leader may be told not to assign (KIP-814).
"""

from __future__ import annotations

from ...protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ..coordinator.group.member import ClientIdentity, OfferedProtocol
from ..coordinator.group.membership import Join
from ..handling import Deferred, RequestContext, handles

KNOWN_MEMBER_ID_FROM = 4
NULL_PROTOCOL_FROM = 7
SKIPPING_ASSIGNMENT_FROM = 9


@handles(JoinGroupRequest)
def handle(context: RequestContext, request: JoinGroupRequest) -> Deferred[JoinGroupResponse]:
    """Parked until the generation begins; the connection goes on meanwhile."""
    version = context.api_version
    join = Join(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client=ClientIdentity(context.client_id or "", f"/{context.connection.peer_host}"),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=[OfferedProtocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
        reason=request.reason or "not provided",
        requires_known_member_id=version >= KNOWN_MEMBER_ID_FROM,
        supports_skipping_assignment=version >= SKIPPING_ASSIGNMENT_FROM,
    )

    def finish(response: JoinGroupResponse) -> JoinGroupResponse:
        if response.protocol_name is None and version < NULL_PROTOCOL_FROM:
            response.protocol_name = ""
        return response

    return Deferred(context.broker.group_coordinator.join(join), finish)
