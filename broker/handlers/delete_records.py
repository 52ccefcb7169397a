"""DeleteRecords: moves the log start offset up; what lies before it is gone for readers at once."""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ..handling import RequestContext, handles
from ..topic_names import INTERNAL_TOPICS


@handles(DeleteRecordsRequest)
def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(topic.name, [_delete(context, topic.name, item) for item in topic.partitions])
            for topic in request.topics
        ]
    )


def _delete(context: RequestContext, topic: str, item: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    broker = context.broker
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} belongs to the broker.")
        log = broker.replica_manager.partition(topic, item.partition_index).log
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Records of a topic that is only compacted can't be deleted.")
        return DeleteRecordsPartitionResult(item.partition_index, log.delete_records_before(item.offset))
    except KafkaError as error:
        return DeleteRecordsPartitionResult(item.partition_index, -1, int(error.code))
