"""Define TxnOffsetCommitRequest and TxnOffsetCommitResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, int64, request, response, string, struct, uuid


@struct
class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@struct
class TxnOffsetCommitResponseTopic(Struct):
    name: str = string("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition, "0+")


@response(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse(Response):
    """The result of each partition. It is sent after the pending offsets are durable."""

    throttle_time_ms: int = int32("0+")
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, "0+")


@struct
class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@struct
class TxnOffsetCommitRequestTopic(Struct):
    name: str = string("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition, "0+")
    topic_id: bytes = uuid("3+", tag=9000, tagged="3+", ignorable=True)


@request(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """Commits a group's offsets as part of a producer's transaction: they take effect when the transaction commits
    (KIP-98). v3 adds member id, generation and group instance id, which fence a zombie (KIP-447). v4 may be answered
    with TRANSACTION_ABORTABLE. From v5 the group coordinator registers its partition in the transaction (KIP-890).
    oncelog's extension adds `topic_id` (tag 9000) to each topic: the id of the topic from which the records were read.
    If another topic has this name now, the offsets are refused with UNKNOWN_TOPIC_ID, because they would skip records
    of the new topic.
    """

    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic, "0+")
