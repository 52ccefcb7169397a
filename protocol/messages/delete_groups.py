"""Define DeleteGroupsRequest and DeleteGroupsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, request, response, string, struct


@struct
class DeletableGroupResult(Struct):
    group_id: str = string("0+")
    error_code: int = int16("0+")


@response(key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse(Response):
    """The result of each group: success, NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND."""

    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")


@request(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    """Deletes groups that have no members, and their committed offsets (KIP-229)."""

    groups_names: list[str] = array("string", "0+")
