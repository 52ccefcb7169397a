"""Define HeartbeatRequest and HeartbeatResponse."""

from __future__ import annotations

from ..schema import Request, Response, int16, int32, request, response, string


@response(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse(Response):
    """The error NONE, or an error that says what the member must do: REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION,
    UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")


@request(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Request[HeartbeatResponse]):
    """Tells the coordinator that a member of a classic group is alive. v3 adds the group instance id (KIP-345)."""

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
