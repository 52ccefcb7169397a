"""CreatePartitions: gives topics more partitions."""

from __future__ import annotations

import asyncio
from collections import Counter

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ..handling import Reply, RequestContext, handles
from ..metadata_store import Topic
from ..topic_creation import check_assignment, check_partition_limit


@handles(CreatePartitionsRequest)
def handle(context: RequestContext, request: CreatePartitionsRequest) -> Reply:
    times = Counter(topic.name for topic in request.topics)
    results: list[CreatePartitionsTopicResult] = []
    pending: list[tuple[CreatePartitionsTopicResult, asyncio.Future[Topic]]] = []
    for item in request.topics:
        result = CreatePartitionsTopicResult(item.name)
        results.append(result)
        try:
            if times[item.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is in the request more than once.")
            topic = _check(context, item)
            if not request.validate_only:
                pending.append((result, context.broker.metadata.change_topic(topic, partitions=item.count)))
        except KafkaError as error:
            result.error_code, result.error_message = int(error.code), error.message
    return _answer(results, pending) if pending else CreatePartitionsResponse(results=results)


def _check(context: RequestContext, item: CreatePartitionsTopic) -> Topic:
    broker = context.broker
    topic = broker.metadata.topic(item.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{topic.name} belongs to the broker: its keys would move to other partitions.",
        )
    current = broker.metadata.newest(topic).partitions
    if item.count <= current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"The topic has {current} partitions; {item.count} is not more than that."
        )
    check_partition_limit(broker, item.count)
    if item.assignments is not None:
        if len(item.assignments) != item.count - current:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{item.count - current} partitions are new, {len(item.assignments)} are assigned.",
            )
        for place, assignment in enumerate(item.assignments):
            check_assignment(broker, current + place, assignment.broker_ids)
    return topic


async def _answer(
    results: list[CreatePartitionsTopicResult],
    pending: list[tuple[CreatePartitionsTopicResult, asyncio.Future[Topic]]],
) -> CreatePartitionsResponse:
    for result, change in pending:
        try:
            await change
        except KafkaError as error:
            result.error_code, result.error_message = int(error.code), error.message
    return CreatePartitionsResponse(results=results)
