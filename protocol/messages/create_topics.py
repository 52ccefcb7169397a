"""Define CreateTopicsRequest and CreateTopicsResponse."""

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
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class CreatableTopicConfigs(Struct):
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


@struct
class CreatableTopicResult(Struct):
    name: str = string("0+")
    topic_id: bytes = uuid("7+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, tagged="5+", ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+", ignorable=True)


@response(key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse(Response):
    """The result of each topic. v5 adds the partitions, the replication factor and the configs of the created topic
    (KIP-525), v7 its id (KIP-516). oncelog sends the response after the topic is durable.
    """

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, "0+")


@struct
class CreatableReplicaAssignment(Struct):
    partition_index: int = int32("0+")
    broker_ids: list[int] = array("int32", "0+")


@struct
class CreatableTopicConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@struct
class CreatableTopic(Struct):
    name: str = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, "0+")
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, "0+")


@request(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """Creates topics. A topic has either a number of partitions and a replication factor (from v4 -1 for the broker's
    defaults, KIP-464) or an explicit assignment of replicas. With `validate_only`, no topic is created. v6 may be
    answered with THROTTLING_QUOTA_EXCEEDED (KIP-599).
    """

    topics: list[CreatableTopic] = array(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", default=60000)
    validate_only: bool = boolean("1+")
