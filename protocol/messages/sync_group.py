"""Define SyncGroupRequest and SyncGroupResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, binary, int16, int32, request, response, string, struct


@response(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse(Response):
    """The member's assignment as opaque bytes."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    assignment: bytes = binary("0+")


@struct
class SyncGroupRequestAssignment(Struct):
    member_id: str = string("0+")
    assignment: bytes = binary("0+")


@request(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Request[SyncGroupResponse]):
    """Distributes the assignment of a classic group: the leader sends the assignments of all members, and the other
    members send none. The response is sent after the leader's request has arrived. v3 adds the group instance id
    (KIP-345), v5 the protocol (KIP-559).
    """

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    protocol_type: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")
