"""Define DescribeTopicPartitionsRequest and DescribeTopicPartitionsResponse."""

from __future__ import annotations

from ..schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    nested,
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", default=-1, ignorable=True)
    replica_nodes: list[int] = array("int32", "0+")
    isr_nodes: list[int] = array("int32", "0+")
    eligible_leader_replicas: list[int] | None = array("int32", "0+", default=None, nullable="0+")
    last_known_elr: list[int] | None = array("int32", "0+", default=None, nullable="0+")
    offline_replicas: list[int] = array("int32", "0+", ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="0+")
    topic_id: bytes = uuid("0+", ignorable=True)
    is_internal: bool = boolean("0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition, "0+")
    topic_authorized_operations: int = int32("0+", default=-2_147_483_648)


@struct
class Cursor(Struct):
    topic_name: str = string("0+")
    partition_index: int = int32("0+")


@response(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse(Response):
    """One page of topics and partitions, ordered by name and index. `next_cursor` is null on the last page."""

    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic, "0+")
    next_cursor: Cursor | None = nested(Cursor, "0+", default=None, nullable="0+")


@struct
class TopicRequest(Struct):
    name: str = string("0+")


@request(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Request[DescribeTopicPartitionsResponse]):
    """Describes topics page by page (KIP-966). A page contains at most `response_partition_limit` partitions and begins
    at the cursor.
    """

    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = nested(Cursor, "0+", default=None, nullable="0+")
