"""Define DescribeShareGroupOffsetsRequest and DescribeShareGroupOffsetsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, int64, request, response, string, struct, uuid


@struct
class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")
    leader_epoch: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


@struct
class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    topic_id: bytes = uuid("0+")
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition, "0+"
    )


@struct
class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = string("0+")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic, "0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


@response(key=90, versions="0", flexible="0+")
class DescribeShareGroupOffsetsResponse(Response):
    """The start offset of each share partition, by group, or -1 if it has none."""

    throttle_time_ms: int = int32("0+")
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup, "0+")


@struct
class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@struct
class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = string("0+")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, "0+", nullable="0+"
    )


@request(key=90, versions="0", flexible="0+")
class DescribeShareGroupOffsetsRequest(Request[DescribeShareGroupOffsetsResponse]):
    """Asks for the start offsets of share groups (KIP-932). `topics` is null for all topics of a group."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup, "0+")
