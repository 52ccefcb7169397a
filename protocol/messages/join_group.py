"""Define JoinGroupRequest and JoinGroupResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, binary, boolean, int16, int32, request, response, string, struct


@struct
class JoinGroupResponseMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    metadata: bytes = binary("0+")


@response(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse(Response):
    """The generation, the chosen protocol and, only for the leader, the members with their metadata. v7 adds the
    protocol type (KIP-559). v9 adds `skip_assignment`, which is true if a static leader came back and the assignment
    does not change (KIP-814).
    """

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", default=None, nullable="7+", ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")


@struct
class JoinGroupRequestProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = binary("0+")


@request(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Request[JoinGroupResponse]):
    """Lets a member join a classic group, with its protocols in order of preference. The response is sent when all
    members have joined or the rebalance timeout has passed. v1 adds the rebalance timeout, in ms. From v4 a new member
    first gets its id, with MEMBER_ID_REQUIRED (KIP-394). v5 adds the group instance id (KIP-345), v8 the reason
    (KIP-800).
    """

    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", default=None, nullable="5+")
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", default=None, nullable="8+", ignorable=True)
