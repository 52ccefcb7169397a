"""Handle AlterPartitionReassignments: accept the assignment that each partition already has (KIP-455).

There is one broker, which holds the only replica of each partition. So a reassignment to this broker changes nothing,
any other reassignment is refused, and there is never a reassignment to cancel.
"""

from __future__ import annotations

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ..api.handling import RequestContext, handles
from ..api.topic_creation import check_assignment
from ..scheduling.steps import Steps


@handles(AlterPartitionReassignmentsRequest)
def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Steps[AlterPartitionReassignmentsResponse]:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    refusal: KafkaError | None = None
    if not context.access.allows(AclOperation.ALTER, AclResourceType.CLUSTER):
        refusal = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        response.error_code, response.error_message = int(refusal.code), refusal.message
    for topic in request.topics:
        result = ReassignableTopicResponse(topic.name)
        response.responses.append(result)
        for item in topic.partitions:
            problem = refusal or _problem(context, topic.name, item)
            partition = ReassignablePartitionResponse(item.partition_index, error_message=None)
            if problem is not None:
                partition.error_code, partition.error_message = int(problem.code), problem.message
            result.partitions.append(partition)
            yield 2 * context.rows()
        yield 1
    return response


def _problem(context: RequestContext, topic: str, item: ReassignablePartition) -> KafkaError | None:
    """Return why the partition cannot get this assignment, or None if this is its current assignment."""
    index = item.partition_index
    known = context.broker.metadata.topic(topic)
    if known is None or not known.has_partition(index):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {index} does not exist.")
    if item.replicas is None:
        return KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "There is no reassignment to cancel.")
    try:
        check_assignment(context.broker, index, item.replicas)
    except KafkaError as error:
        return error
    return None
