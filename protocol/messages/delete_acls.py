"""Define DeleteAclsRequest and DeleteAclsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int8, int16, int32, request, response, string, struct


@struct
class DeleteAclsMatchingAcl(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@struct
class DeleteAclsFilterResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, "0+")


@response(key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse(Response):
    """The rules that each filter matched, and whether each rule was deleted."""

    throttle_time_ms: int = int32("0+")
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult, "0+")


@struct
class DeleteAclsFilter(Struct):
    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@request(key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest(Request[DeleteAclsResponse]):
    """Deletes the access rules that match any of the filters."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, "0+")
