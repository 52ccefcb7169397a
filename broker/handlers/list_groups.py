"""Handle ListGroups v0-5: list the groups of this broker.

v4: a filter by state (KIP-518). v5: a filter by type (KIP-848).
"""

from __future__ import annotations

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ..api.handling import RequestContext, handles
from ..scheduling.steps import Steps, distinct

CLASSIC = "classic"


@handles(ListGroupsRequest)
def handle(context: RequestContext, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    """List the matching groups that the client may describe.

    Filters ignore case, and an unknown state or type matches no group.
    """
    states = yield from distinct(map(str.lower, request.states_filter))
    types = yield from distinct(map(str.lower, request.types_filter))
    groups = context.broker.group_coordinator.groups() if not types or CLASSIC in types else []
    access = context.access
    shows_all = access.allows(AclOperation.DESCRIBE, AclResourceType.CLUSTER, quiet=True)
    units = 1 if shows_all else 1 + access.units
    response = ListGroupsResponse()
    for group in groups:
        is_shown = shows_all or access.allows(AclOperation.DESCRIBE, AclResourceType.GROUP, group.group_id, quiet=True)
        if is_shown and (not states or group.state.value.lower() in states):
            response.groups.append(ListedGroup(group.group_id, group.protocol_type or "", group.state.value, CLASSIC))
            context.rows()
        yield units
    return response
