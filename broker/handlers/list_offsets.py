"""Handle ListOffsets: find the offset for a timestamp.

Special timestamps are -1 (latest), -2 (earliest), -3 (the record with the newest timestamp; v7, KIP-734), -4 (earliest
local; v8) and -5 (latest tiered; v9). If the request repeats a partition, each occurrence gets INVALID_REQUEST, as in
Kafka. The response takes account of all records that were acknowledged before the request, so the request may have to
wait until those records are flushed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ..api.flush_wait import unflushed, until_flushed
from ..api.handling import Deferred, RequestContext, handles
from ..log import IsolationLevel, Log
from ..scheduling.steps import Steps, repeated

SINCE: Final = {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9}
"""The first version that supports each special timestamp."""


WITHOUT_THE_END: Final = (-2, -4, -5)
"""The special timestamps whose offsets do not depend on the newest records."""


@dataclass(slots=True)
class _Waiting:
    """A row of the response that depends on records that are not flushed yet."""

    flush: asyncio.Future[None]
    row: ListOffsetsPartitionResponse
    log: Log
    timestamp: int


@handles(ListOffsetsRequest)
def handle(context: RequestContext, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse | Deferred[None]]:
    isolation = IsolationLevel(1 if request.isolation_level == 1 else 0)
    twice = yield from repeated(
        (topic.name, item.partition_index) for topic in request.topics for item in topic.partitions
    )
    response = ListOffsetsResponse()
    waiting: list[_Waiting] = []
    for topic in request.topics:
        result = ListOffsetsTopicResponse(topic.name)
        response.topics.append(result)
        for item in topic.partitions:
            row = ListOffsetsPartitionResponse(item.partition_index)
            result.partitions.append(row)
            try:
                log = yield from _log(context, topic.name, item, (topic.name, item.partition_index) in twice)
                flush = None if item.timestamp in WITHOUT_THE_END else unflushed(log)
            except KafkaError as error:
                row.error_code = int(error.code)
            else:
                if flush is None:
                    yield from _find(context, row, log, item.timestamp, isolation)
                else:
                    waiting.append(_Waiting(flush, row, log, item.timestamp))
            yield 10 * context.rows()
        yield 1
    if not waiting:
        return response
    return Deferred(
        until_flushed(one.flush for one in waiting), lambda _: _completed(context, response, waiting, isolation)
    )


def _completed(
    context: RequestContext, response: ListOffsetsResponse, waiting: list[_Waiting], isolation: IsolationLevel
) -> Steps[ListOffsetsResponse]:
    for one in waiting:
        yield from _find(context, one.row, one.log, one.timestamp, isolation)
        yield 10
    return response


def _log(context: RequestContext, topic: str, item: ListOffsetsPartition, is_repeated: bool) -> Steps[Log]:
    """Check one row of the request and return the log of its partition. Raises KafkaError."""
    if is_repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition is in the request more than once. Send it once.")
    if item.timestamp < 0 and context.api_version < SINCE.get(item.timestamp, 1 << 15):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Timestamp {item.timestamp} is not supported in ListOffsets version {context.api_version}.",
        )
    partition = context.broker.replica_manager.partition(topic, item.partition_index)
    partition.check_leader_epoch(item.current_leader_epoch)
    return (yield from partition.open())


def _find(
    context: RequestContext, row: ListOffsetsPartitionResponse, log: Log, timestamp: int, isolation: IsolationLevel
) -> Steps[None]:
    """Set the offset for `timestamp`, or the error, in a row of the response."""
    try:
        row.timestamp, row.offset, epoch = yield from log.find_offset_for_timestamp(timestamp, isolation)
    except KafkaError as error:
        row.error_code = int(error.code)
    else:
        row.leader_epoch = epoch if context.api_version >= 4 else -1
