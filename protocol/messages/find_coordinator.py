"""Define FindCoordinatorRequest and FindCoordinatorResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int8, int16, int32, request, response, string, struct


@struct
class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


@response(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse(Response):
    """The coordinator. Up to v3 it is in the top-level fields. From v4 there is one coordinator per key."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")


@request(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Asks which broker coordinates a group (key type 0), a transactional id (1) or a share group (2, v6). v4 can ask
    for several keys at once (KIP-699). Key type 64, of the extension, asks for a consumer group's transaction
    coordinator, which stores the partitions that group-aware producers have claimed for the group.
    """

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array("string", "4+")
