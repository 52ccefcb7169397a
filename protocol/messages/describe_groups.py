"""Define DescribeGroupsRequest and DescribeGroupsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, binary, boolean, int16, int32, request, response, string, struct


@struct
class DescribedGroupMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", default=None, nullable="4+", ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = binary("0+")
    member_assignment: bytes = binary("0+")


@struct
class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("6+", default=None, nullable="6+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=-2_147_483_648)


@response(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse(Response):
    """The state, protocol and members of each group. Subscriptions and assignments of members are opaque bytes. v4 adds
    the group instance id (KIP-345). For a missing group, v6 returns the error GROUP_ID_NOT_FOUND with a message, and
    older versions return the state Dead (KIP-1043).
    """

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


@request(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    """Describes groups of the classic protocol by id. v3 can ask for authorized operations (KIP-430)."""

    groups: list[str] = array("string", "0+")
    include_authorized_operations: bool = boolean("3+")
