"""DeleteTopics: by name, or by id from version 6 on."""

from __future__ import annotations

import asyncio
from collections import Counter

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ...protocol.schema import NO_UUID
from ..handling import Reply, RequestContext, handles
from ..metadata_store import Topic


@handles(DeleteTopicsRequest)
def handle(context: RequestContext, request: DeleteTopicsRequest) -> Reply:
    asked = request.topics if context.api_version >= 6 else [DeleteTopicState(name) for name in request.topic_names]
    times = Counter(_identity(context, item) for item in asked)
    results: list[DeletableTopicResult] = []
    pending: list[tuple[DeletableTopicResult, asyncio.Future[Topic]]] = []
    for item in asked:
        result = DeletableTopicResult(item.name, item.topic_id)
        results.append(result)
        try:
            topic = _find(context, item, times[_identity(context, item)])
            result.name, result.topic_id = topic.name, topic.topic_id
            pending.append((result, context.broker.metadata.delete_topic(topic)))
        except KafkaError as error:
            _fail(result, error)
    return _answer(results, pending) if pending else DeleteTopicsResponse(responses=results)


def _identity(context: RequestContext, item: DeleteTopicState) -> str | bytes:
    """What tells that two items mean the same topic, one by name and one by id included."""
    if item.name is not None:
        return item.name
    topic = context.broker.metadata.topic_by_id(item.topic_id)
    return topic.name if topic is not None else item.topic_id


def _find(context: RequestContext, item: DeleteTopicState, times: int) -> Topic:
    metadata = context.broker.metadata
    if item.name is not None and item.topic_id != NO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Give the topic's name or its id, not both.")
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is in the request more than once.")
    if not context.broker.config.delete_topic_enable:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false.")
    if item.name is not None:
        topic = metadata.topic(item.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        topic = metadata.topic_by_id(item.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} belongs to the broker and can't be deleted.")
    return topic


def _fail(result: DeletableTopicResult, error: KafkaError) -> None:
    result.error_code = int(error.code)
    result.error_message = error.message


async def _answer(
    results: list[DeletableTopicResult], pending: list[tuple[DeletableTopicResult, asyncio.Future[Topic]]]
) -> DeleteTopicsResponse:
    for result, deletion in pending:
        try:
            await deletion
        except KafkaError as error:
            _fail(result, error)
    return DeleteTopicsResponse(responses=results)
