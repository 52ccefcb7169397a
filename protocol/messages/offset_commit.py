"""Define OffsetCommitRequest and OffsetCommitResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, int64, request, response, string, struct, uuid


@struct
class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@struct
class OffsetCommitResponseTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, "0+")


@response(key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse(Response):
    """The result of each partition. It is sent after the offsets are durable."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, "0+")


@struct
class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@struct
class OffsetCommitRequestTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+")


@request(key=8, versions="2-10", flexible="8+", latest_unstable=True)
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """Commits a group's offsets: for each partition the next offset to read, with optional metadata. Up to v4
    `retention_time_ms` limits how long they are kept; later versions leave that to the broker's config (KIP-211). v6
    adds the leader epoch (KIP-320), v7 the group instance id (KIP-345). v9 allows the consumer protocol (KIP-848). v10,
    which is unstable, uses topic ids. Generation -1 commits without group membership.
    """

    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", default=None, nullable="7+")
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")
