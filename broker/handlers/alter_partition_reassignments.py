"""Handle AlterPartitionReassignments: accept the assignment that each partition has anyway (KIP-455).

There is one broker, which holds the only replica of each partition. So a reassignment to this broker changes nothing,
any other one is refused, and there is never one to cancel.
"""

from __future__ import annotations

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
    for topic in request.topics:
        result = ReassignableTopicResponse(topic.name)
        response.responses.append(result)
        for item in topic.partitions:
            result.partitions.append(_reassign(context, topic.name, item))
            yield 2 * context.rows()
        yield 1
    return response


def _reassign(context: RequestContext, topic: str, item: ReassignablePartition) -> ReassignablePartitionResponse:
    index = item.partition_index
    try:
        known = context.broker.metadata.topic(topic)
        if known is None or not 0 <= index < known.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {index} does not exist.")
        if item.replicas is None:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "There is no reassignment to cancel.")
        check_assignment(context.broker, index, item.replicas)
    except KafkaError as error:
        return ReassignablePartitionResponse(index, int(error.code), error.message)
    return ReassignablePartitionResponse(index, error_message=None)
