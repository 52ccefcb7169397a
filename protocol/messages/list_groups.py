"""Define ListGroupsRequest and ListGroupsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, request, response, string, struct


@struct
class ListedGroup(Struct):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@response(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse(Response):
    """The id and protocol type of each group. v4 adds its state, v5 its type."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")


@request(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Request[ListGroupsResponse]):
    """Asks a broker for the groups that it coordinates. v4 can filter by state (KIP-518), v5 by type (KIP-848)."""

    states_filter: list[str] = array("string", "4+")
    types_filter: list[str] = array("string", "5+")
