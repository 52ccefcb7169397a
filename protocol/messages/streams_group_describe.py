"""Define StreamsGroupDescribeRequest and StreamsGroupDescribeResponse."""

from __future__ import annotations

from ..schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
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
class Subtopology(Struct):
    subtopology_id: str = string("0+")
    source_topics: list[str] = array("string", "0+")
    repartition_sink_topics: list[str] = array("string", "0+")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo, "0+")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo, "0+")


@struct
class Topology(Struct):
    epoch: int = int32("0+")
    subtopologies: list[Subtopology] | None = array(Subtopology, "0+", default=None, nullable="0+")


@struct
class Endpoint(Struct):
    host: str = string("0+")
    port: int = uint16("0+")


@struct
class TaskOffset(Struct):
    subtopology_id: str = string("0+")
    partition: int = int32("0+")
    offset: int = int64("0+")


@struct
class TaskIds(Struct):
    subtopology_id: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@struct
class Assignment(Struct):
    active_tasks: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks: list[TaskIds] = array(TaskIds, "0+")


@struct
class Member(Struct):
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", default=None, nullable="0+")
    rack_id: str | None = string("0+", default=None, nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: Endpoint | None = nested(Endpoint, "0+", default=None, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue, "0+")
    task_offsets: list[TaskOffset] = array(TaskOffset, "0+")
    task_end_offsets: list[TaskOffset] = array(TaskOffset, "0+")
    assignment: Assignment = nested(Assignment, "0+")
    target_assignment: Assignment = nested(Assignment, "0+")
    is_classic: bool = boolean("0+")


@struct
class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    topology: Topology | None = nested(Topology, "0+", default=None, nullable="0+")
    members: list[Member] = array(Member, "0+")
    authorized_operations: int = int32("0+", default=-2_147_483_648)


@response(key=89, versions="0", flexible="0+")
class StreamsGroupDescribeResponse(Response):
    """The topology of each group, and the current and target tasks of each member."""

    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


@request(key=89, versions="0", flexible="0+", latest_unstable=True)
class StreamsGroupDescribeRequest(Request[StreamsGroupDescribeResponse]):
    """Describes groups of Kafka Streams applications (KIP-1071)."""

    group_ids: list[str] = array("string", "0+")
    include_authorized_operations: bool = boolean("0+")
