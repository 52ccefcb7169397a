"""Handle ListOffsets: find the offset for a timestamp.

Special timestamps are -1 (latest), -2 (earliest), -3 (the record with the newest timestamp; v7, KIP-734), -4 (earliest
local; v8) and -5 (latest tiered; v9). If the request repeats a partition, each occurrence gets INVALID_REQUEST, as in
Kafka.
"""

from __future__ import annotations

from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ..api.handling import RequestContext, handles
from ..log import IsolationLevel
from ..scheduling.steps import Steps, repeated

SINCE: Final = {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9}
"""The first version that supports each special timestamp."""


@handles(ListOffsetsRequest)
def handle(context: RequestContext, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse]:
    isolation = IsolationLevel(1 if request.isolation_level == 1 else 0)
    twice = yield from repeated(
        (topic.name, item.partition_index) for topic in request.topics for item in topic.partitions
    )
    response = ListOffsetsResponse()
    for topic in request.topics:
        result = ListOffsetsTopicResponse(topic.name)
        response.topics.append(result)
        for item in topic.partitions:
            is_repeated = (topic.name, item.partition_index) in twice
            result.partitions.append((yield from _offset(context, topic.name, item, isolation, is_repeated)))
            yield 10 * context.rows()
        yield 1
    return response


def _offset(
    context: RequestContext, topic: str, item: ListOffsetsPartition, isolation: IsolationLevel, is_repeated: bool
) -> Steps[ListOffsetsPartitionResponse]:
    try:
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition is in the request more than once. Send it once.")
        if item.timestamp < 0 and context.api_version < SINCE.get(item.timestamp, 1 << 15):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Timestamp {item.timestamp} is not supported in ListOffsets version {context.api_version}.",
            )
        partition = context.broker.replica_manager.partition(topic, item.partition_index)
        partition.check_leader_epoch(item.current_leader_epoch)
        log = yield from partition.open()
        timestamp, offset, epoch = yield from log.find_offset_for_timestamp(item.timestamp, isolation)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(item.partition_index, int(error.code))
    known_epoch = epoch if context.api_version >= 4 else -1
    return ListOffsetsPartitionResponse(item.partition_index, 0, timestamp, offset, known_epoch)
