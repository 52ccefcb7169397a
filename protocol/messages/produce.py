"""Define ProduceRequest and ProduceResponse."""

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
class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", default=None, nullable="8+")


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


@struct
class PartitionProduceResponse(Struct):
    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", default=None, nullable="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "10+", tag=0, tagged="10+")


@struct
class TopicProduceResponse(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, "0+")


@struct
class NodeEndpoint(Struct):
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", default=None, nullable="10+")


@response(key=0, versions="3-13", flexible="9+")
class ProduceResponse(Response):
    """For each partition, the offset of the first appended record, and the log append time (-1 if the topic keeps the
    producer's timestamps). v5 adds the log start offset. v8 adds which records were refused and why (KIP-467).
    """

    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0, tagged="10+")


@struct
class PartitionProduceData(Struct):
    index: int = int32("0+")
    records: Buffer | None = record_batches("0+", nullable="0+")


@struct
class TopicProduceData(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


@request(key=0, versions="3-13", flexible="9+")
class ProduceRequest(Request[ProduceResponse]):
    """Appends record batches to partitions. With acks 0 the broker sends no response. With acks 1 it responds after the
    leader has written the batches. With acks -1 it also waits up to `timeout_ms` for the other in-sync replicas.
    v3 brought the record format with producer ids (KIP-98), v7 zstd (KIP-110). v9 is flexible. The response of v10 can
    name the new leader (KIP-951). v11 may be answered with TRANSACTION_ABORTABLE. From v12 the broker registers the
    partition in the transaction (KIP-890). v13 uses topic ids instead of names (KIP-516).
    """

    transactional_id: str | None = string("3+", default=None, nullable="3+")
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")
