"""Define ConsumerGroupHeartbeatRequest and ConsumerGroupHeartbeatResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, nested, request, response, string, struct, uuid


@struct
class TopicPartitions(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array("int32", "0+")


@struct
class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


@response(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Response):
    """The member's epoch, the time in ms until its next heartbeat is due, and its assignment, which is null if it has
    not changed.
    """

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    member_id: str | None = string("0+", default=None, nullable="0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = nested(Assignment, "0+", default=None, nullable="0+")


@request(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse]):
    """Lets a member of a group of the consumer protocol join (epoch 0), stay (the member's epoch) or leave (epoch -1,
    or -2 for a static member that will return), all with this one request (KIP-848). Null or -1 in a field means
    "unchanged". v1 adds subscriptions by regular expression, and requires the member to choose its own id (KIP-1082).
    """

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", default=None, nullable="0+")
    rack_id: str | None = string("0+", default=None, nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: list[str] | None = array("string", "0+", default=None, nullable="0+")
    subscribed_topic_regex: str | None = string("1+", default=None, nullable="1+")
    server_assignor: str | None = string("0+", default=None, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", default=None, nullable="0+")
