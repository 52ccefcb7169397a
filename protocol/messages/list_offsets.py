"""Define ListOffsetsRequest and ListOffsetsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int8, int16, int32, int64, request, response, string, struct


@struct
class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListOffsetsTopicResponse(Struct):
    name: str = string("0+")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+")


@response(key=2, versions="1-10", flexible="6+")
class ListOffsetsResponse(Response):
    """The offset and timestamp of each partition, or -1 if no record qualifies. v4 adds the leader epoch (KIP-320)."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")


@struct
class ListOffsetsPartition(Struct):
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")


@struct
class ListOffsetsTopic(Struct):
    name: str = string("0+")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+")


@request(key=2, versions="1-10", flexible="6+")
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Asks for an offset of each partition by timestamp: that of the first record at or after a time in ms since the
    epoch. Negative timestamps have other meanings. -1 is the end (the high watermark, or at isolation level 1 the last
    stable offset), -2 the start, -3 the record with the highest timestamp (v7, KIP-734), -4 the start of the local log
    (v8, KIP-405), -5 the end of the tiered log (v9, KIP-1005).
    """

    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", ignorable=True)
