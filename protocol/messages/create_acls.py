"""Define CreateAclsRequest and CreateAclsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int8, int16, int32, request, response, string, struct


@struct
class AclCreationResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@response(key=30, versions="1-3", flexible="2+")
class CreateAclsResponse(Response):
    """The result of each rule, in the order of the request."""

    throttle_time_ms: int = int32("0+")
    results: list[AclCreationResult] = array(AclCreationResult, "0+")


@struct
class AclCreation(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@request(key=30, versions="1-3", flexible="2+")
class CreateAclsRequest(Request[CreateAclsResponse]):
    """Creates access rules. Resource types, pattern types, operations and permission types are Kafka's numbers."""

    creations: list[AclCreation] = array(AclCreation, "0+")
