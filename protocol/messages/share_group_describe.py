"""Define ShareGroupDescribeRequest and ShareGroupDescribeResponse."""

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
    rack_id: str | None = string("0+", default=None, nullable="0+")
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array("string", "0+")
    assignment: Assignment = nested(Assignment, "0+")


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


@response(key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse(Response):
    """The state and epochs of each group, and the subscription and assignment of each member."""

    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


@request(key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest(Request[ShareGroupDescribeResponse]):
    """Describes share groups (KIP-932)."""

    group_ids: list[str] = array("string", "0+")
    include_authorized_operations: bool = boolean("0+")
