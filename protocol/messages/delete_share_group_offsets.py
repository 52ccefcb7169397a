"""Define DeleteShareGroupOffsetsRequest and DeleteShareGroupOffsetsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, request, response, string, struct, uuid


@struct
class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    topic_id: bytes = uuid("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


@response(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse(Response):
    """The result of each topic, and an error code of the whole request."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic, "0+")


@struct
class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")


@request(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest(Request[DeleteShareGroupOffsetsResponse]):
    """Deletes a share group's offsets of whole topics (KIP-932). The group must have no members."""

    group_id: str = string("0+")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic, "0+")
