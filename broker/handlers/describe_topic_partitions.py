"""Handle DescribeTopicPartitions: return the metadata of topics in pages (KIP-966)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ..api.handling import RequestContext, handles
from ..metadata import Topic
from ..partitions.partition import FIRST_LEADER_EPOCH
from ..scheduling.steps import Steps, distinct, ordered
from ..topic_names import name_problem

MAX_PARTITIONS = 2000
"""The maximum number of partitions in a response, even if the request allows more.

Kafka's corresponding setting is max.request.partition.size.limit.
"""


@handles(DescribeTopicPartitionsRequest)
def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> Steps[DescribeTopicPartitionsResponse]:
    metadata, access = context.broker.metadata, context.access
    if request.cursor is not None:
        yield from _check_cursor(request.cursor, request.topics)
    requested = (topic.name for topic in request.topics) if request.topics else list(metadata.topics)
    names = yield from ordered(requested)
    first = 0 if request.cursor is None else request.cursor.partition_index
    left = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    response = DescribeTopicPartitionsResponse()
    offline = context.broker.replica_manager.offline_partitions()
    for name in names:
        yield 2 + access.units
        if request.cursor is not None and name < request.cursor.topic_name:
            continue
        if not access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name, quiet=not request.topics):
            if request.topics:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                response.topics.append(DescribeTopicPartitionsResponseTopic(int(code), name))
                context.rows()
            continue
        context.rows()
        start = first if request.cursor is not None and name == request.cursor.topic_name else 0
        if left <= 0:
            response.next_cursor = Cursor(name, start)
            break
        topic = metadata.topic(name)
        if topic is None and not request.topics:
            continue  # the topic was deleted meanwhile
        if topic is None:
            problem = name_problem(name) is not None
            code = ErrorCode.INVALID_TOPIC_EXCEPTION if problem else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown = DescribeTopicPartitionsResponseTopic(int(code), name)
            unknown.topic_authorized_operations = access.operations(AclResourceType.TOPIC, name)
            response.topics.append(unknown)
            continue
        end = min(topic.partitions, start + left)
        response.topics.append(_topic(context, topic, start, end, offline.get(name, ())))
        yield context.rows(end - start)
        left -= end - start
        if end < topic.partitions:
            response.next_cursor = Cursor(name, end)
            break
    return response


def _check_cursor(cursor: Cursor, topics: Iterable[TopicRequest]) -> Steps[None]:
    """Raise KafkaError INVALID_REQUEST if the cursor's partition is negative, or its topic is not among `topics`.

    Without `topics`, the request is about all topics, and the cursor may have any topic.
    """
    if cursor.partition_index < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"The cursor's partition {cursor.partition_index} is negative. Use 0 or more."
        )
    if topics and cursor.topic_name not in (yield from distinct(topic.name for topic in topics)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"The cursor's topic {cursor.topic_name!r} is not requested. Request it, too."
        )


def _topic(
    context: RequestContext, topic: Topic, start: int, end: int, offline: Collection[int]
) -> DescribeTopicPartitionsResponseTopic:
    node = context.broker.node_id
    epochs, first_epoch = context.broker.replica_manager.leader_epochs(topic.name), FIRST_LEADER_EPOCH
    return DescribeTopicPartitionsResponseTopic(
        0,
        topic.name,
        topic.topic_id,
        topic.is_internal,
        [
            DescribeTopicPartitionsResponsePartition(
                int(ErrorCode.LEADER_NOT_AVAILABLE),
                index,
                -1,
                epochs.get(index, first_epoch),
                [node],
                [],
                None,
                None,
                [node],
            )
            if index in offline
            else DescribeTopicPartitionsResponsePartition(
                0, index, node, epochs.get(index, first_epoch), [node], [node], [], [], []
            )
            for index in range(start, end)
        ],
        context.access.operations(AclResourceType.TOPIC, topic.name),
    )
