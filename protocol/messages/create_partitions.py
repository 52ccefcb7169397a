"""Define CreatePartitionsRequest and CreatePartitionsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int16, int32, request, response, string, struct


@struct
class CreatePartitionsTopicResult(Struct):
    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


@response(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse(Response):
    """The result of each topic."""

    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")


@struct
class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array("int32", "0+")


@struct
class CreatePartitionsTopic(Struct):
    name: str = string("0+")
    count: int = int32("0+")
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, "0+", nullable="0+")


@request(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    """Raises the number of partitions of topics. `count` is the new total. With `validate_only`, nothing changes. v3
    may be answered with THROTTLING_QUOTA_EXCEEDED (KIP-599).
    """

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")
