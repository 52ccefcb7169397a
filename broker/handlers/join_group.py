"""Handle JoinGroup v0-9: let a new or existing member join the group's next generation.

v1: separate rebalance timeout. v4: a new member must join again with its assigned member id (KIP-394). v5: static
members (KIP-345). v7: protocol type in the response. v8: a reason. v9: the leader may skip assignment (KIP-814).
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ..api.handling import Deferred, RequestContext, handles
from ..coordinator.group.member import ClientIdentity, OfferedProtocol, OfferedProtocols
from ..coordinator.group.membership import Join
from ..scheduling.steps import Steps

KNOWN_MEMBER_ID_FROM = 4
NULL_PROTOCOL_FROM = 7
SKIPPING_ASSIGNMENT_FROM = 9


@handles(JoinGroupRequest)
def handle(context: RequestContext, request: JoinGroupRequest) -> Deferred[JoinGroupResponse]:
    """Let the member join; send the response when the generation begins. Other requests are executed meanwhile.

    Raises KafkaError INCONSISTENT_GROUP_PROTOCOL if the member offers more protocols than
    `group.member.max.protocols`. The leader's response fails with INVALID_REQUEST if it would list more members than
    `response.max.rows`.
    """
    version = context.api_version
    most = context.broker.config.group_member_max_protocols
    if len(request.protocols) > most:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"A member of group {request.group_id!r} offers {len(request.protocols)} protocols, more than"
            f" group.member.max.protocols = {most}. Offer fewer protocols, or raise the setting.",
        )
    join = Join(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client=ClientIdentity(context.client_id or "", f"/{context.connection.peer_host}"),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=OfferedProtocols(OfferedProtocol(item.name, bytes(item.metadata)) for item in request.protocols),
        reason=request.reason or "not provided",
        requires_known_member_id=version >= KNOWN_MEMBER_ID_FROM,
        supports_skipping_assignment=version >= SKIPPING_ASSIGNMENT_FROM,
    )

    def finish(response: JoinGroupResponse) -> JoinGroupResponse | Steps[JoinGroupResponse]:
        if response.protocol_name is None and version < NULL_PROTOCOL_FROM:
            response.protocol_name = ""
        return _counted(context, response) if response.members else response

    return Deferred(context.broker.group_coordinator.join(join), finish)


def _counted(context: RequestContext, response: JoinGroupResponse) -> Steps[JoinGroupResponse]:
    """Count the members that the leader's response lists."""
    yield context.rows(len(response.members))
    return response
