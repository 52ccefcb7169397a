"""Handle ElectLeaders: answer that no election is needed, or that the partition is offline (KIP-460).

This broker has the only replica of each partition, so no other leader can be elected.

As in Kafka, a request for all partitions returns only those that have no leader, that is, the offline ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ..api.handling import RequestContext, handles
from ..scheduling.steps import Steps

PREFERRED, UNCLEAN = 0, 1

_NO_LEADER: Final = {
    PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}
"""The error code for an offline partition, by type of election."""


@handles(ElectLeadersRequest)
def handle(context: RequestContext, request: ElectLeadersRequest) -> Steps[ElectLeadersResponse]:
    if request.election_type not in _NO_LEADER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Election type {request.election_type} does not exist. Use 0 (preferred) or 1 (unclean).",
        )
    allowed = context.access.allows(AclOperation.ALTER, AclResourceType.CLUSTER)
    has_failed = context.broker.log_manager.failed is not None
    offline = context.broker.replica_manager.offline_partitions() if allowed else {}
    response = ElectLeadersResponse()
    if not allowed and context.api_version >= 1:
        response.error_code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        asked = ((topic, sorted(indexes)) for topic, indexes in offline.items())
    else:
        asked = ((item.topic, item.partitions) for item in request.topic_partitions)
    for topic, indexes in asked:
        result = ReplicaElectionResult(topic)
        response.replica_election_results.append(result)
        known = context.broker.metadata.topic(topic)
        code: ErrorCode
        message: str | None
        for index in indexes:
            if not allowed:
                code, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
            elif known is None or not known.has_partition(index):
                code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {index} does not exist."
            elif has_failed or index in offline.get(topic, ()):
                code, message = _NO_LEADER[request.election_type], "The log of the only replica is offline."
            else:
                code, message = ErrorCode.ELECTION_NOT_NEEDED, "The only replica is the leader already."
            result.partition_result.append(PartitionResult(index, int(code), message))
            yield context.rows()
        yield 1
    return response
