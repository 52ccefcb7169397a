"""Metadata: the brokers, and the topics that were asked for; missing ones are created where that is allowed."""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ...protocol.schema import NO_UUID
from ..authorization import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from ..handling import Reply, RequestContext, handles
from ..metadata_store import Topic
from ..partition import LEADER_EPOCH
from ..topic_creation import plan_topic
from ..topic_names import name_problem

FIRST_VERSION_BY_ID = 12
"""Versions 10 and 11 have the topic id field, but Kafka brokers don't look topics up by it there (KAFKA-10774)."""


@handles(MetadataRequest)
def handle(context: RequestContext, request: MetadataRequest) -> Reply:
    asked = request.topics
    broker = context.broker
    if asked is None or (context.api_version == 0 and not asked):
        topics = sorted(broker.metadata.topics.values(), key=lambda topic: topic.name)
        return _response(context, request, [_topic(context, request, topic) for topic in topics])
    # Each topic once, as in Kafka: a topic of many partitions, asked for over and over, would make a gigantic answer.
    asked = request.topics = list({(item.name, item.topic_id): item for item in asked}.values())
    if context.api_version < FIRST_VERSION_BY_ID:
        for item in asked:
            if item.name is None or item.topic_id != NO_UUID:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"Topics can be asked for by id from version {FIRST_VERSION_BY_ID} on."
                )
    create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    missing = {item.name for item in asked if item.name and broker.metadata.topic(item.name) is None} if create else ()
    if missing:
        return _create_and_answer(context, request, sorted(missing))
    return _response(context, request, [_answer(context, request, item, {}) for item in asked])


async def _create_and_answer(context: RequestContext, request: MetadataRequest, missing: list[str]) -> MetadataResponse:
    failures: dict[str, KafkaError] = {}
    pending = []
    for name in missing:
        try:
            plan = plan_topic(context.broker, name)
            pending.append((name, context.broker.metadata.create_topic(plan.name, plan.partitions, plan.configs)))
        except KafkaError as error:
            failures[name] = error
    for name, creation in pending:
        try:
            await creation
        except KafkaError as error:
            failures[name] = error
    return _response(context, request, [_answer(context, request, item, failures) for item in request.topics or ()])


def _answer(
    context: RequestContext, request: MetadataRequest, item: MetadataRequestTopic, failures: dict[str, KafkaError]
) -> MetadataResponseTopic:
    if item.name is None:
        topic = context.broker.metadata.topic_by_id(item.topic_id)
        if topic is None:
            return MetadataResponseTopic(int(ErrorCode.UNKNOWN_TOPIC_ID), None, item.topic_id)
        return _topic(context, request, topic)
    topic = context.broker.metadata.topic(item.name)
    if topic is not None:
        return _topic(context, request, topic)
    failure = failures.get(item.name)
    if name_problem(item.name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif failure is not None and failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        code = failure.code
    elif failure is not None:
        code = ErrorCode.LEADER_NOT_AVAILABLE  # someone else is creating it right now: ask again
    else:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(int(code), item.name)


def _topic(context: RequestContext, request: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
    broker = context.broker
    node = broker.node_id
    offline = {index for name, index in broker.log_manager.offline if name == topic.name}
    partitions = []
    for index in range(topic.partitions):
        if index in offline:
            code = int(ErrorCode.LEADER_NOT_AVAILABLE)
            partitions.append(MetadataResponsePartition(code, index, -1, LEADER_EPOCH, [node], [], [node]))
        else:
            partitions.append(MetadataResponsePartition(0, index, node, LEADER_EPOCH, [node], [node], []))
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    return MetadataResponseTopic(0, topic.name, topic.topic_id, topic.is_internal, partitions, operations)


def _response(
    context: RequestContext, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    broker = context.broker
    host, port = broker.endpoint(context.connection)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(broker.node_id, host, port, broker.config.broker_rack or None)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )
