"""Define LeaveGroupRequest and LeaveGroupResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, request, response, string, struct


@struct
class MemberResponse(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


@response(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse(Response):
    """The result of the request, and from v3 of each member."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    members: list[MemberResponse] = array(MemberResponse, "3+")


@struct
class MemberIdentity(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    reason: str | None = string("5+", default=None, nullable="5+", ignorable=True)


@request(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    """Removes members from a classic group at once. Up to v2 it names one member. From v3 it may name several, by
    member id or group instance id (KIP-345). v5 adds the reason (KIP-800).
    """

    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")
