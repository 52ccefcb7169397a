"""CreateTopics: answered when the topics are on disk in the metadata log."""

from __future__ import annotations

import asyncio
from collections import Counter

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..config_sources import describe_topic
from ..handling import Reply, RequestContext, handles
from ..metadata_store import Topic
from ..topic_creation import TopicPlan, plan_topic


@handles(CreateTopicsRequest)
def handle(context: RequestContext, request: CreateTopicsRequest) -> Reply:
    times = Counter(topic.name for topic in request.topics)
    results: list[CreatableTopicResult] = []
    pending: list[tuple[int, TopicPlan, asyncio.Future[Topic]]] = []
    for topic in request.topics:
        if any(result.name == topic.name for result in results) and times[topic.name] > 1:
            continue
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic {topic.name!r} is in the request more than once.")
            plan = _plan(context, topic)
            if not request.validate_only:
                creation = context.broker.metadata.create_topic(plan.name, plan.partitions, plan.configs)
                pending.append((len(results), plan, creation))
            results.append(_result(context, plan))
        except KafkaError as error:
            results.append(_failure(topic.name, error))
    if not pending:
        return CreateTopicsResponse(topics=results)
    return _answer(results, pending)


async def _answer(
    results: list[CreatableTopicResult], pending: list[tuple[int, TopicPlan, asyncio.Future[Topic]]]
) -> CreateTopicsResponse:
    for place, plan, creation in pending:
        try:
            results[place].topic_id = (await creation).topic_id
        except KafkaError as error:
            results[place] = _failure(plan.name, error)
    return CreateTopicsResponse(topics=results)


def _plan(context: RequestContext, topic: CreatableTopic) -> TopicPlan:
    assignments = {item.partition_index: item.broker_ids for item in topic.assignments}
    if len(assignments) < len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned more than once.")
    configs = {config.name: config.value for config in topic.configs}
    return plan_topic(context.broker, topic.name, topic.num_partitions, topic.replication_factor, assignments, configs)


def _failure(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name, error_code=int(error.code), error_message=error.message)


def _result(context: RequestContext, plan: TopicPlan) -> CreatableTopicResult:
    rows = describe_topic(context.broker, plan.effective, plan.configs)
    return CreatableTopicResult(
        plan.name,
        error_message=None,
        num_partitions=plan.partitions,
        replication_factor=1,
        configs=[CreatableTopicConfigs(row.name, row.value, False, row.source, False) for row in rows],
    )
