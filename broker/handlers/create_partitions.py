"""Handle CreatePartitions: add partitions to topics. A topic that the request repeats is refused and answered once."""

from __future__ import annotations

import asyncio

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ..api.handling import RequestContext, handles
from ..api.topic_creation import check_assignment, check_new_partitions, check_partition_limit
from ..metadata import Topic
from ..scheduling.slices import in_slices
from ..scheduling.steps import Steps, run_in_slices

CHANGED_AT_A_TIME = 20
"""The number of topics that are changed and made durable together."""


@handles(CreatePartitionsRequest, carried_out=True)
async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    metadata = context.broker.metadata
    items, repeated, additional = await run_in_slices(_sorted_out(context, request))
    check_new_partitions(context.broker, additional)
    additional = 0
    response = CreatePartitionsResponse()
    async for start in in_slices(range(0, len(items), CHANGED_AT_A_TIME), 1):
        pending: list[tuple[CreatePartitionsTopicResult, asyncio.Future[Topic]]] = []
        for item in items[start : start + CHANGED_AT_A_TIME]:
            result = CreatePartitionsTopicResult(item.name)
            response.results.append(result)
            try:
                if item.name in repeated:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, "The topic is in the request more than once. Send it once."
                    )
                topic = _check(context, item)
                more = item.count - metadata.newest(topic).partitions
                check_new_partitions(context.broker, additional + more)  # the topic may be newer than the sum
                additional += more
                if not request.validate_only:
                    context.mutate(more, strict_since=3)
                    pending.append((result, metadata.change_topic(topic, partitions=item.count)))
            except KafkaError as error:
                result.error_code, result.error_message = int(error.code), error.message
        for result, change in pending:
            try:
                await change
            except KafkaError as error:
                result.error_code, result.error_message = int(error.code), error.message
    return response


def _sorted_out(
    context: RequestContext, request: CreatePartitionsRequest
) -> Steps[tuple[list[CreatePartitionsTopic], set[str], int]]:
    """Return one item per topic, the names that occur more than once, and the number of partitions to create."""
    items: dict[str, CreatePartitionsTopic] = {}
    repeated: set[str] = set()
    for item in request.topics:
        if item.name in items:
            repeated.add(item.name)
        items[item.name] = item
        yield 1
    additional = 0
    for item in items.values():
        topic = context.broker.metadata.topic(item.name)
        if topic is not None:
            additional += max(0, item.count - topic.partitions)
        yield 1
    return list(items.values()), repeated, additional


def _check(context: RequestContext, item: CreatePartitionsTopic) -> Topic:
    broker = context.broker
    topic = broker.metadata.topic(item.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{topic.name} is an internal topic. It cannot get more partitions, because keys would move between them.",
        )
    if broker.replica_manager.is_stray(topic.name):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The data directory contains partitions that topic {topic.name!r} does not have. Move their directories"
            " away first, then restart the broker.",
        )
    current = broker.metadata.newest(topic).partitions
    if item.count <= current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic already has {current} partitions. Request more than that, not {item.count}.",
        )
    check_partition_limit(broker, item.count, current=current)
    if item.assignments is not None:
        if len(item.assignments) != item.count - current:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The number of new partitions is {item.count - current}, but the number of assignments is"
                f" {len(item.assignments)}. Send one assignment for each new partition.",
            )
        for place, assignment in enumerate(item.assignments):
            check_assignment(broker, current + place, assignment.broker_ids)
    return topic
