"""Define MetadataRequest and MetadataResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int16, int32, request, response, string, struct, uuid


@struct
class MetadataResponseBroker(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", default=None, nullable="1+", ignorable=True)


@struct
class MetadataResponsePartition(Struct):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array("int32", "0+")
    isr_nodes: list[int] = array("int32", "0+")
    offline_replicas: list[int] = array("int32", "5+", ignorable=True)


@struct
class MetadataResponseTopic(Struct):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="12+")
    topic_id: bytes = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", default=-2_147_483_648)


@response(key=3, versions="0-13", flexible="9+")
class MetadataResponse(Response):
    """The brokers, cluster id and controller, and the partitions of each topic with leader, leader epoch, replicas and
    in-sync replicas. Each topic and partition has an error code. v13 adds one for the whole response.
    """

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", default=None, nullable="2+", ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, "0+")
    cluster_authorized_operations: int = int32("8-10", default=-2_147_483_648)
    error_code: int = int16("13+", ignorable=True)


@struct
class MetadataRequestTopic(Struct):
    topic_id: bytes = uuid("10+", ignorable=True)
    name: str | None = string("0+", nullable="10+")


@request(key=3, versions="0-13", flexible="9+")
class MetadataRequest(Request[MetadataResponse]):
    """Asks for the brokers, and for topics with their partitions and leaders. `topics` is null for all topics (in v0:
    empty). v4 adds whether missing topics may be created. v8 can ask for authorized operations (KIP-430). v10 can name
    topics by id (KIP-516), which brokers accept from v12 on.
    """

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")
