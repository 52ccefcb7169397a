"""Define StreamsGroupHeartbeatRequest and StreamsGroupHeartbeatResponse."""

from __future__ import annotations

from ..schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nested,
    request,
    response,
    string,
    struct,
    uint16,
)


@struct
class Status(Struct):
    status_code: int = int8("0+")
    status_detail: str = string("0+")


@struct
class TaskIds(Struct):
    subtopology_id: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@struct
class Endpoint(Struct):
    host: str = string("0+")
    port: int = uint16("0+")


@struct
class TopicPartition(Struct):
    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@struct
class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = nested(Endpoint, "0+")
    active_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    standby_partitions: list[TopicPartition] = array(TopicPartition, "0+")


@response(key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatResponse(Response):
    """The member's epoch, the time in ms until its next heartbeat is due, and its tasks, which are null if they have
    not changed. It also lists the endpoints at which the state of other members can be queried.
    """

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    acceptable_recovery_lag: int = int32("0+")
    task_offset_interval_ms: int = int32("0+")
    status: list[Status] | None = array(Status, "0+", default=None, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, "0+", default=None, nullable="0+")
    standby_tasks: list[TaskIds] | None = array(TaskIds, "0+", default=None, nullable="0+")
    warmup_tasks: list[TaskIds] | None = array(TaskIds, "0+", default=None, nullable="0+")
    endpoint_information_epoch: int = int32("0+")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, "0+", default=None, nullable="0+"
    )


@struct
class KeyValue(Struct):
    key: str = string("0+")
    value: str = string("0+")


@struct
class TopicInfo(Struct):
    name: str = string("0+")
    partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    topic_configs: list[KeyValue] = array(KeyValue, "0+")


@struct
class CopartitionGroup(Struct):
    source_topics: list[int] = array("int16", "0+")
    source_topic_regex: list[int] = array("int16", "0+")
    repartition_source_topics: list[int] = array("int16", "0+")


@struct
class Subtopology(Struct):
    subtopology_id: str = string("0+")
    source_topics: list[str] = array("string", "0+")
    source_topic_regex: list[str] = array("string", "0+")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo, "0+")
    repartition_sink_topics: list[str] = array("string", "0+")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo, "0+")
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup, "0+")


@struct
class Topology(Struct):
    epoch: int = int32("0+")
    subtopologies: list[Subtopology] = array(Subtopology, "0+")


@struct
class TaskOffset(Struct):
    subtopology_id: str = string("0+")
    partition: int = int32("0+")
    offset: int = int64("0+")


@request(key=88, versions="0", flexible="0+", latest_unstable=True)
class StreamsGroupHeartbeatRequest(Request[StreamsGroupHeartbeatResponse]):
    """Lets a member of a streams group join, stay or leave, and reports its topology and tasks (KIP-1071). Times are in
    ms.
    """

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    endpoint_information_epoch: int = int32("0+")
    instance_id: str | None = string("0+", default=None, nullable="0+")
    rack_id: str | None = string("0+", default=None, nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology: Topology | None = nested(Topology, "0+", default=None, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, "0+", default=None, nullable="0+")
    standby_tasks: list[TaskIds] | None = array(TaskIds, "0+", default=None, nullable="0+")
    warmup_tasks: list[TaskIds] | None = array(TaskIds, "0+", default=None, nullable="0+")
    process_id: str | None = string("0+", default=None, nullable="0+")
    user_endpoint: Endpoint | None = nested(Endpoint, "0+", default=None, nullable="0+")
    client_tags: list[KeyValue] | None = array(KeyValue, "0+", default=None, nullable="0+")
    task_offsets: list[TaskOffset] | None = array(TaskOffset, "0+", default=None, nullable="0+")
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, "0+", default=None, nullable="0+")
    shutdown_application: bool = boolean("0+")
