"""Define AlterShareGroupOffsetsRequest and AlterShareGroupOffsetsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, int64, request, response, string, struct, uuid


@struct
class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


@struct
class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    topic_id: bytes = uuid("0+")
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(AlterShareGroupOffsetsResponsePartition, "0+")


@response(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse(Response):
    """The result of each partition, and an error code of the whole request."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic, "0+")


@struct
class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")


@struct
class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(AlterShareGroupOffsetsRequestPartition, "0+")


@request(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest(Request[AlterShareGroupOffsetsResponse]):
    """Sets the start offsets of a share group that has no members (KIP-932). Partitions are given by topic name and
    index.
    """

    group_id: str = string("0+")
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic, "0+")
