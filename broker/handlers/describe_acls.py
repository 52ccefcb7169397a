"""Handle DescribeAcls v1-3: return the access rules that match a filter, grouped by resource pattern."""

from __future__ import annotations

from ...protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ..acls.acl import AclFilter
from ..api.acl_requests import check_is_on, close_if_unknown
from ..api.handling import Answer, RequestContext, handles
from ..scheduling.steps import Steps

AT_A_TIME = 100
"""The number of rules that are compared with the filter in one step."""


@handles(DescribeAclsRequest)
def handle(context: RequestContext, request: DescribeAclsRequest) -> Steps[Answer]:
    check_is_on(context.broker)
    wanted = AclFilter(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.resource_name_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if close_if_unknown(context, wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission):
        return None
    resources: dict[tuple[int, int, str], DescribeAclsResource] = {}
    candidates = yield from context.broker.metadata.acls.candidates(wanted)
    for start in range(0, len(candidates), AT_A_TIME):
        for acl in candidates[start : start + AT_A_TIME]:
            if wanted.matches(acl):
                context.rows()
                pattern = acl.resource_type, acl.pattern_type, acl.resource_name
                resource = resources.get(pattern)
                if resource is None:
                    name = acl.resource_name
                    resource = resources[pattern] = DescribeAclsResource(acl.resource_type, name, acl.pattern_type)
                resource.acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission))
        yield AT_A_TIME
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
