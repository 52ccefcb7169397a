"""Define ShareFetchRequest and ShareFetchResponse."""

from __future__ import annotations

from ..schema import (
    Buffer,
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    nested,
    record_batches,
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


@struct
class AcquiredRecords(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_count: int = int16("0+")


@struct
class PartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    acknowledge_error_code: int = int16("0+")
    acknowledge_error_message: str | None = string("0+", default=None, nullable="0+")
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "0+")
    records: Buffer | None = record_batches("0+", nullable="0")
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords, "0+")


@struct
class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


@struct
class NodeEndpoint(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", default=None, nullable="0+")


@response(key=78, versions="1", flexible="0+")
class ShareFetchResponse(Response):
    """The records of each partition, the ranges of offsets that this member acquired, and their delivery counts."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "0+")


@struct
class AcknowledgementBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    acknowledge_types: list[int] = array("int8", "0+")


@struct
class FetchPartition(Struct):
    partition_index: int = int32("0+")
    partition_max_bytes: int = int32("0")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


@struct
class FetchTopic(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[FetchPartition] = array(FetchPartition, "0+")


@struct
class ForgottenTopic(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array("int32", "0+")


@request(key=78, versions="1", flexible="0+")
class ShareFetchRequest(Request[ShareFetchResponse]):
    """Acquires records for a member of a share group (KIP-932). The request can also acknowledge records acquired
    earlier.
    """

    group_id: str | None = string("0+", default=None, nullable="0+")
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("0+", default=0x7FFFFFFF)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "0+")
