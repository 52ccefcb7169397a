"""Handle DeleteRecords: raise the log start offset, before which readers see no records.

The response is sent when the new start offsets of all partitions are on disk. These offsets are written together. If
the request repeats a partition, the last of the offsets is used, as in Kafka. A client may delete every record that was
acknowledged before the request, so the request may have to wait until such records are flushed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ..api.flush_wait import unflushed, until_flushed
from ..api.handling import RequestContext, handles
from ..scheduling.steps import Steps, run_in_slices
from ..topic_names import INTERNAL_TOPICS

COST: Final = 100
"""The cost of visiting a partition's segments, in units of work."""


@handles(DeleteRecordsRequest, carried_out=True)
async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    if flushes := await run_in_slices(_flushes(context, request)):
        await until_flushed(flushes)
    response = await run_in_slices(_delete_all(context, request))
    try:
        await context.broker.log_manager.start_offsets_on_disk()
    except KafkaError as error:
        for topic in response.topics:
            for result in topic.partitions:
                if not result.error_code:
                    result.low_watermark, result.error_code = -1, int(error.code)
    return response


def _flushes(context: RequestContext, request: DeleteRecordsRequest) -> Steps[list[asyncio.Future[None]]]:
    """Return the flushes after which readers see the records that are to be deleted."""
    flushes: list[asyncio.Future[None]] = []
    for topic in request.topics:
        for item in topic.partitions:
            try:
                partition = context.broker.replica_manager.partition(topic.name, item.partition_index)
                if partition.is_open and not 0 <= item.offset <= partition.log.high_watermark:
                    flush = unflushed(partition.log)
                    flushes += [] if flush is None else [flush]
            except KafkaError:
                pass  # the partition's row in the response gets the error
            yield 10
        yield 1
    return flushes


def _delete_all(context: RequestContext, request: DeleteRecordsRequest) -> Steps[DeleteRecordsResponse]:
    topics: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        items = topics.setdefault(topic.name, {})
        for item in topic.partitions:
            items[item.partition_index] = item
            yield 1
        yield 1
    response = DeleteRecordsResponse()
    for name, items in topics.items():
        result = DeleteRecordsTopicResult(name)
        response.topics.append(result)
        for item in items.values():
            result.partitions.append(_delete(context, name, item))
            yield context.rows() + COST
        yield 1
    return response


def _delete(context: RequestContext, topic: str, item: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    broker = context.broker
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Records of {topic} cannot be deleted, because it is an internal topic.",
            )
        log = broker.replica_manager.partition(topic, item.partition_index).log
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                "Records of a compacted topic cannot be deleted. Add delete to its cleanup.policy.",
            )
        return DeleteRecordsPartitionResult(item.partition_index, log.delete_records_before(item.offset))
    except KafkaError as error:
        return DeleteRecordsPartitionResult(item.partition_index, -1, int(error.code))
