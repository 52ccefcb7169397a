"""Define FetchRequest and FetchResponse."""

from __future__ import annotations

from ..schema import (
    Buffer,
    Request,
    Response,
    Struct,
    array,
    int8,
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
class EpochEndOffset(Struct):
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


@struct
class SnapshotId(Struct):
    end_offset: int = int64("0+", default=-1)
    epoch: int = int32("0+", default=-1)


@struct
class AbortedTransaction(Struct):
    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@struct
class PartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    high_watermark: int = int64("0+")
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = nested(EpochEndOffset, "12+", tag=0, tagged="12+")
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "12+", tag=1, tagged="12+")
    snapshot_id: SnapshotId = nested(SnapshotId, "12+", tag=2, tagged="12+")
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Buffer | None = record_batches("0+", nullable="0+")


@struct
class FetchableTopicResponse(Struct):
    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData, "0+")


@struct
class NodeEndpoint(Struct):
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", default=None, nullable="16+")


@response(key=1, versions="4-18", flexible="12+")
class FetchResponse(Response):
    """The record batches, high watermark, last stable offset and log start offset of each partition. `records` may end
    with a partial batch, which the reader drops. At isolation level 1, `aborted_transactions` lists the producers of
    aborted transactions, and for each producer the first offset of the records that must be skipped (KIP-98). Tags
    report a diverged log (KIP-595), a new leader, and from v16 the leaders' endpoints (KIP-951).
    """

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0, tagged="16+")


@struct
class ReplicaState(Struct):
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


@struct
class FetchPartition(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64("0+")
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32("0+")
    replica_directory_id: bytes = uuid("17+", tag=0, tagged="17+", ignorable=True)
    high_watermark: int = int64("18+", default=9_223_372_036_854_775_807, tag=1, tagged="18+", ignorable=True)


@struct
class FetchTopic(Struct):
    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition, "0+")


@struct
class ForgottenTopic(Struct):
    topic: str = string("7-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[int] = array("int32", "7+")


@request(key=1, versions="4-18", flexible="12+")
class FetchRequest(Request[FetchResponse]):
    """Reads record batches from partitions. Each partition is read from its own fetch offset on. The broker waits up to
    `max_wait_ms` for `min_bytes`. `max_bytes` and `partition_max_bytes` limit the response, but its first batch is
    always complete. At isolation level 1, records are read up to the last stable offset. v7 adds incremental sessions
    (KIP-227), v9 leader epochs (KIP-320), v11 the client's rack (KIP-392), v12 the epoch of the last fetched record
    (KIP-595), v13 topic ids instead of names (KIP-516). v15 moves the replica's state into a tag (KIP-903), v17 adds
    the replica's directory, and v18 its high watermark.
    """

    cluster_id: str | None = string("12+", default=None, nullable="12+", tag=0, tagged="12+", ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = nested(ReplicaState, "15+", tag=1, tagged="15+")
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)
