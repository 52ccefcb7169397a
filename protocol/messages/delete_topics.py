"""Define DeleteTopicsRequest and DeleteTopicsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, request, response, string, struct, uuid


@struct
class DeletableTopicResult(Struct):
    name: str | None = string("0+", nullable="6+")
    topic_id: bytes = uuid("6+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("5+", default=None, nullable="5+", ignorable=True)


@response(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse(Response):
    """The result of each topic. v5 adds an error message, v6 the topic's id."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")


@struct
class DeleteTopicState(Struct):
    name: str | None = string("6+", default=None, nullable="6+")
    topic_id: bytes = uuid("6+")


@request(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """Deletes topics by name, or from v6 by name or id (KIP-516). The timeout is in ms. v5 may be answered with
    THROTTLING_QUOTA_EXCEEDED (KIP-599).
    """

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array("string", "0-5", ignorable=True)
    timeout_ms: int = int32("0+")
