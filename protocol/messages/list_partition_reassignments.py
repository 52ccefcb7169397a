"""Define ListPartitionReassignmentsRequest and ListPartitionReassignmentsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, request, response, string, struct


@struct
class OngoingPartitionReassignment(Struct):
    partition_index: int = int32("0+")
    replicas: list[int] = array("int32", "0+")
    adding_replicas: list[int] = array("int32", "0+")
    removing_replicas: list[int] = array("int32", "0+")


@struct
class OngoingTopicReassignment(Struct):
    name: str = string("0+")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, "0+")


@response(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse(Response):
    """The replicas of each partition under reassignment, with the replicas that are being added and removed."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+")


@struct
class ListPartitionReassignmentsTopics(Struct):
    name: str = string("0+")
    partition_indexes: list[int] = array("int32", "0+")


@request(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Request[ListPartitionReassignmentsResponse]):
    """Asks for the reassignments under way (KIP-455). `topics` is null for all topics."""

    timeout_ms: int = int32("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, "0+", default=None, nullable="0+"
    )
