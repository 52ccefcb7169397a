"""Define ElectLeadersRequest and ElectLeadersResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int8, int16, int32, request, response, string, struct


@struct
class PartitionResult(Struct):
    partition_id: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@struct
class ReplicaElectionResult(Struct):
    topic: str = string("0+")
    partition_result: list[PartitionResult] = array(PartitionResult, "0+")


@response(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse(Response):
    """The result of each partition. It is ELECTION_NOT_NEEDED if the right replica leads already."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, "0+")


@struct
class TopicPartitions(Struct):
    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@request(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Request[ElectLeadersResponse]):
    """Elects a leader for each partition: the preferred replica (type 0), or any live replica (type 1). An election of
    type 1 may lose records (KIP-183, KIP-460). A null list of partitions means all partitions.
    """

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=60000)
