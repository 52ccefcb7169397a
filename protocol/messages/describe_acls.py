"""Define DescribeAclsRequest and DescribeAclsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int8, int16, int32, request, response, string, struct


@struct
class AclDescription(Struct):
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@struct
class DescribeAclsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array(AclDescription, "0+")


@response(key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse(Response):
    """The matching rules, by resource."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, "0+")


@request(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest(Request[DescribeAclsResponse]):
    """Asks for the access rules that match one filter. A null name matches any name."""

    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")
