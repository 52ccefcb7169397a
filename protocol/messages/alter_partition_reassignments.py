"""Define AlterPartitionReassignmentsRequest and AlterPartitionReassignmentsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int16, int32, request, response, string, struct


@struct
class ReassignablePartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@struct
class ReassignableTopicResponse(Struct):
    name: str = string("0+")
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse, "0+")


@response(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse(Response):
    """The result of each partition."""

    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, "0+")


@struct
class ReassignablePartition(Struct):
    partition_index: int = int32("0+")
    replicas: list[int] | None = array("int32", "0+", default=None, nullable="0+")


@struct
class ReassignableTopic(Struct):
    name: str = string("0+")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, "0+")


@request(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Request[AlterPartitionReassignmentsResponse]):
    """Moves partitions to other brokers (KIP-455). `replicas` lists the brokers that hold a partition afterwards; null
    cancels the reassignment under way. v1 can refuse a change of the number of replicas (KIP-860).
    """

    timeout_ms: int = int32("0+", default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+")
