"""Define OffsetForLeaderEpochRequest and OffsetForLeaderEpochResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, int64, request, response, string, struct


@struct
class EpochEndOffset(Struct):
    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64("0+", default=-1)


@struct
class OffsetForLeaderTopicResult(Struct):
    topic: str = string("0+")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, "0+")


@response(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse(Response):
    """For each partition, the largest leader epoch that is not above the requested one, and the end offset of that
    epoch. Both are -1 if there is no such epoch.
    """

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+")


@struct
class OffsetForLeaderPartition(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32("0+")


@struct
class OffsetForLeaderTopic(Struct):
    topic: str = string("0+")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


@request(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    """Asks where a leader epoch ended (KIP-101, KIP-320), to find out whether the sender's log has diverged."""

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")
