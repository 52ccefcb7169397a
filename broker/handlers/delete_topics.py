"""Handle DeleteTopics: delete topics by name, or from version 6 on also by id.

A topic that is in the request more than once is not deleted, and the response has one row for it. Topics are deleted in
small portions, so that other requests are executed in between.
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


Item = tuple[DeleteTopicState, int]
"""A topic as the client has named it, and its number of occurrences in the request."""


@handles(DeleteTopicsRequest, carried_out=True)
async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = request.topics if context.api_version >= 6 else [DeleteTopicState(name) for name in request.topic_names]
    response = DeleteTopicsResponse()
    items = await run_in_slices(_authorized(context, asked, response))
    topics = iter(items.values())
    async for _ in in_slices(range(0, len(items), DELETED_AT_A_TIME), 1):
        pending: list[tuple[DeletableTopicResult, asyncio.Future[Topic]]] = []
        for item, times in islice(topics, DELETED_AT_A_TIME):
            result = DeletableTopicResult(item.name, item.topic_id)
            response.responses.append(result)
            try:
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


def _authorized(
    context: RequestContext, asked: Sequence[DeleteTopicState], response: DeleteTopicsResponse
) -> Steps[dict[str | bytes, Item]]:
    """Return the topics that the client may delete, each of them once. Add the other topics to the response.

    If the request contains both the name and the id of a topic, they become one item only if the client may delete the
    topic by its name and by its id. If they always became one item, the number of rows in the response would reveal
    which id a hidden topic has.
    """
    named: dict[str | bytes, Item] = {}
    for item in asked:
        key = item.topic_id if item.name is None else item.name
        named[key] = item, named.get(key, (item, 0))[1] + 1
        yield 1
    allowed: dict[str | bytes, Item] = {}
    for item, times in named.values():
        result = DeletableTopicResult(item.name, item.topic_id)
        try:
            _authorize(context, item, result)
        except KafkaError as error:
            _fail(result, error)
            response.responses.append(result)
        else:
            topic = _identity(context, item)
            allowed[topic] = item, allowed.get(topic, (item, 0))[1] + times
        yield 5 + 2 * context.access.units
    return allowed


def _identity(context: RequestContext, item: DeleteTopicState) -> str | bytes:
    """Return a key that is the same for all items of a topic, whether an item has the topic's name or its id."""
    if item.name is not None:
        return item.name
    topic = context.broker.metadata.topic_by_id(item.topic_id)
    return topic.name if topic is not None else item.topic_id


def _authorize(context: RequestContext, item: DeleteTopicState, result: DeletableTopicResult) -> None:
    """Raise KafkaError TOPIC_AUTHORIZATION_FAILED if the client may not delete the topic.

    As in Apache Kafka, deleting a topic by name also requires the permission to describe it, which the permission to
    delete it usually implies. The refusal gives both name and id to a client that may describe the topic. Any other
    client does not learn whether the topic exists, and gets back only the name or id that it has sent.
    """
    access, metadata = context.access, context.broker.metadata
    if access.allows(AclOperation.DELETE, AclResourceType.CLUSTER, quiet=True):
        return
    topic = metadata.topic_by_id(item.topic_id) if item.name is None else metadata.topic(item.name)
    name = item.name if topic is None else topic.name
    if name is None:
        return  # reported as unknown
    may_delete = access.allows(AclOperation.DELETE, AclResourceType.TOPIC, name)
    # The audit log records the missing permission that the client is refused for.
    needs_describe = may_delete and item.name is not None
    is_visible = access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name, quiet=not needs_describe)
    if may_delete and (is_visible or item.name is None):
        return
    if is_visible:
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
