"""Define OffsetDeleteRequest and OffsetDeleteResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, request, response, string, struct


@struct
class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@struct
class OffsetDeleteResponseTopic(Struct):
    name: str = string("0+")
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition, "0+")


@response(key=47, versions="0", flexible="none")
class OffsetDeleteResponse(Response):
    """The result of each partition, and an error code of the whole request."""

    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, "0+")


@struct
class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32("0+")


@struct
class OffsetDeleteRequestTopic(Struct):
    name: str = string("0+")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, "0+")


@request(key=47, versions="0", flexible="none")
class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    """Deletes a group's offsets of the given partitions (KIP-496). No member may be subscribed to their topics."""

    group_id: str = string("0+")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+")
