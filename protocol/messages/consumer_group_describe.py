"""Define ConsumerGroupDescribeRequest and ConsumerGroupDescribeResponse."""

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
    nested,
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class TopicPartitions(Struct):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@struct
class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


@struct
class Member(Struct):
    member_id: str = string("0+")
    instance_id: str | None = string("0+", default=None, nullable="0+")
    rack_id: str | None = string("0+", default=None, nullable="0+")
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array("string", "0+")
    subscribed_topic_regex: str | None = string("0+", default=None, nullable="0+")
    assignment: Assignment = nested(Assignment, "0+")
    target_assignment: Assignment = nested(Assignment, "0+")
    member_type: int = int8("1+", default=-1, ignorable=True)


@struct
class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: list[Member] = array(Member, "0+")
    authorized_operations: int = int32("0+", default=-2_147_483_648)


@response(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse(Response):
    """The state, epochs and assignor of each group, and the subscription, current assignment and target assignment of
    each member. v1 adds the member type, for groups that migrate from the classic protocol (KIP-1099).
    """

    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


@request(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse]):
    """Describes groups of the consumer protocol, in which the broker computes the assignment (KIP-848)."""

    group_ids: list[str] = array("string", "0+")
    include_authorized_operations: bool = boolean("0+")
