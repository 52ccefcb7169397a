"""Handle DeleteTopics: delete topics by name, or from version 6 on also by id.

A topic that the request repeats is refused and answered once. Topics are deleted in small portions, so that other
requests are executed in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ...protocol.schema import NO_UUID
from ..api.handling import RequestContext, handles
from ..metadata import Topic
from ..scheduling.slices import in_slices
from ..scheduling.steps import Steps, run_in_slices

DELETED_AT_A_TIME = 10
"""The number of topics that are deleted together. Each of their partitions is renamed on disk."""


@handles(DeleteTopicsRequest, carried_out=True)
async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = request.topics if context.api_version >= 6 else [DeleteTopicState(name) for name in request.topic_names]
    items = await run_in_slices(_items(context, asked))
    topics = iter(items.values())
    response = DeleteTopicsResponse()
    async for _ in in_slices(range(0, len(items), DELETED_AT_A_TIME), 1):
        pending: list[tuple[DeletableTopicResult, asyncio.Future[Topic]]] = []
        for item, times in islice(topics, DELETED_AT_A_TIME):
            result = DeletableTopicResult(item.name, item.topic_id)
            response.responses.append(result)
            try:
                _authorize(context, item, result)
                topic = _find(context, item, times)
                result.name, result.topic_id = topic.name, topic.topic_id
                context.mutate(topic.partitions, strict_since=5)
                pending.append((result, context.broker.metadata.delete_topic(topic)))
            except KafkaError as error:
                _fail(result, error)
        for result, deletion in pending:
            try:
                await deletion
            except KafkaError as error:
                _fail(result, error)
    return response


def _items(
    context: RequestContext, asked: Sequence[DeleteTopicState]
) -> Steps[dict[str | bytes, tuple[DeleteTopicState, int]]]:
    """Return each topic of the request once, with its number of occurrences in the request."""
    items: dict[str | bytes, tuple[DeleteTopicState, int]] = {}
    for item in asked:
        identity = _identity(context, item)
        _, times = items.get(identity, (item, 0))
        items[identity] = item, times + 1
        yield 1
    return items


def _identity(context: RequestContext, item: DeleteTopicState) -> str | bytes:
    """Return a key that is equal for items of the same topic, even if one has its name and the other has its id."""
    if item.name is not None:
        return item.name
    topic = context.broker.metadata.topic_by_id(item.topic_id)
    return topic.name if topic is not None else item.topic_id


def _authorize(context: RequestContext, item: DeleteTopicState, result: DeletableTopicResult) -> None:
    """Raise KafkaError TOPIC_AUTHORIZATION_FAILED if the client may not delete the topic.

    A client that may not describe the topic does not learn whether it exists, nor its other name. A client that may
    describe it gets both.
    """
    access, metadata = context.access, context.broker.metadata
    if access.allows(AclOperation.DELETE, AclResourceType.CLUSTER, quiet=True):
        return
    topic = metadata.topic_by_id(item.topic_id) if item.name is None else metadata.topic(item.name)
    name = item.name if topic is None else topic.name
    if name is None or access.allows(AclOperation.DELETE, AclResourceType.TOPIC, name):
        return
    if access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name, quiet=True):
        if topic is None:
            return  # reported as unknown
        result.name, result.topic_id = topic.name, topic.topic_id
    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _find(context: RequestContext, item: DeleteTopicState, times: int) -> Topic:
    metadata = context.broker.metadata
    if item.name is not None and item.topic_id != NO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic has both a name and an id. Send only one of them.")
    if item.name is None and item.topic_id == NO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic has neither a name nor an id. Send one of them.")
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is in the request more than once. Send it once.")
    if not context.broker.config.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED if context.api_version >= 3 else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "Topics cannot be deleted, because delete.topic.enable is false.")
    if item.name is not None:
        topic = metadata.topic(item.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        topic = metadata.topic_by_id(item.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} is an internal topic and cannot be deleted.")
    return topic


def _fail(result: DeletableTopicResult, error: KafkaError) -> None:
    result.error_code = int(error.code)
    result.error_message = error.message
