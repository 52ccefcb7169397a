"""Handle DescribeGroups v0-6: return the state and the members of groups.

From v3 on, the response can contain the authorized operations. From v6 on, an unknown group is an error (KIP-1043);
before v6, its state is Dead. A group that the request repeats is described once.
"""

from __future__ import annotations

from ...protocol.access_rules import AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ..api.authorization import NOT_ASKED
from ..api.handling import RequestContext, handles
from ..coordinator.group.state import GroupState
from ..coordinator.state_log import units_of_hashing
from ..scheduling.steps import Steps

UNKNOWN_GROUP_FROM = 6


@handles(DescribeGroupsRequest)
def handle(context: RequestContext, request: DescribeGroupsRequest) -> Steps[DescribeGroupsResponse]:
    """Describe each group; an error applies to its group and never to the whole request."""
    asked = request.include_authorized_operations
    response = DescribeGroupsResponse()
    described: set[str] = set()
    for group_id in request.groups:
        if group_id in described:
            yield 1
            continue
        described.add(group_id)
        yield context.rows() + units_of_hashing(group_id)
        operations = context.access.operations(AclResourceType.GROUP, group_id) if asked else NOT_ASKED
        response.groups.append((yield from _group(context, group_id, operations)))
    return response


def _group(context: RequestContext, group_id: str, operations: int) -> Steps[DescribedGroup]:
    described = DescribedGroup(group_id=group_id)
    knows_unknown = context.api_version >= UNKNOWN_GROUP_FROM
    try:
        group = context.broker.group_coordinator.group(group_id)
    except KafkaError as error:
        described.error_code = int(error.code)
        described.error_message = error.message if knows_unknown else None
        return described
    if group is None:
        described.group_state = GroupState.DEAD.value
        if knows_unknown:
            described.error_code = int(ErrorCode.GROUP_ID_NOT_FOUND)
            described.error_message = f"Group {group_id} not found."
        else:
            described.authorized_operations = operations
        return described
    described.group_state = group.state.value
    described.protocol_type = group.protocol_type or ""
    described.authorized_operations = operations
    is_stable = group.state is GroupState.STABLE
    described.protocol_data = (group.protocol_name or "") if is_stable else ""
    # As in Kafka, metadata is shown only if the group is stable. Assignments are always shown; during a rebalance, they
    # are those of the previous generation. Both are copied before the first pause, because after a pause the group may
    # be in another generation with another protocol.
    protocol = group.protocol_name or ""
    members = [(member, member.protocols, member.assignment) for member in group.members.values()]
    for member, protocols, assignment in members:
        described.members.append(
            DescribedGroupMember(
                member.member_id,
                member.group_instance_id,
                member.client.client_id,
                member.client.client_host,
                protocols.metadata(protocol) if is_stable else b"",
                assignment,
            )
        )
        yield context.rows()
    return described
