"""Handle OffsetForLeaderEpoch: return the end offset of a leader epoch, to detect a truncated log (KIP-320)."""

from __future__ import annotations

from ...protocol.errors import KafkaError
from ...protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ..api.handling import RequestContext, handles
from ..scheduling.steps import Steps


@handles(OffsetForLeaderEpochRequest)
def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> Steps[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        result = OffsetForLeaderTopicResult(topic.topic)
        response.topics.append(result)
        for item in topic.partitions:
            result.partitions.append(_end(context, topic.topic, item))
            yield 5 * context.rows()
        yield 1
    return response


def _end(context: RequestContext, topic: str, item: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = context.broker.replica_manager.partition(topic, item.partition)
        partition.check_leader_epoch(item.current_leader_epoch)
        epoch, end_offset = partition.readable.end_offset_for_epoch(item.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(int(error.code), item.partition)
    return EpochEndOffset(0, item.partition, epoch, end_offset)
