"""Define ShareAcknowledgeRequest and ShareAcknowledgeResponse."""

from __future__ import annotations

from ..schema import (
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    nested,
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
class PartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "0+")


@struct
class ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


@struct
class NodeEndpoint(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", default=None, nullable="0+")


@response(key=79, versions="1", flexible="0+")
class ShareAcknowledgeResponse(Response):
    """The result of each partition."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "0+")


@struct
class AcknowledgementBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    acknowledge_types: list[int] = array("int8", "0+")


@struct
class AcknowledgePartition(Struct):
    partition_index: int = int32("0+")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


@struct
class AcknowledgeTopic(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition, "0+")


@request(key=79, versions="1", flexible="0+")
class ShareAcknowledgeRequest(Request[ShareAcknowledgeResponse]):
    """Acknowledges records that a share group's member acquired (KIP-932). Ranges of offsets are marked as gap (0),
    accepted (1), released (2) or rejected (3).
    """

    group_id: str | None = string("0+", default=None, nullable="0+")
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic, "0+")
