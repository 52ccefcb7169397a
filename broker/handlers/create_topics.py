"""Handle CreateTopics: create topics and answer when they are durable in the metadata log.

Each topic is created completely or not at all. The topics of a request become durable a few at a time, and other
requests are executed in between. A topic that the request repeats is refused and answered once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..api.config_sources import describe_topic
from ..api.handling import RequestContext, handles
from ..api.topic_creation import TopicPlan, check_new_partitions, plan_topic
from ..metadata import Topic
from ..scheduling.slices import in_slices
from ..scheduling.steps import Steps, run_in_slices

CREATED_AT_A_TIME = 20
"""The number of topics that are created and made durable together."""


@handles(CreateTopicsRequest, carried_out=True)
async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    items, partitions = await run_in_slices(_items(context, request.topics))
    check_new_partitions(context.broker, partitions)
    creation = _Creation(context, request)
    topics = iter(items.values())
    async for _ in in_slices(range(0, len(items), CREATED_AT_A_TIME), 1):
        await creation.create(islice(topics, CREATED_AT_A_TIME))
    return creation.response


def _items(
    context: RequestContext, topics: Sequence[CreatableTopic]
) -> Steps[tuple[dict[str, tuple[CreatableTopic, int]], int]]:
    """Return the topics by name, each with its number of occurrences, and the total number of their partitions."""
    items: dict[str, tuple[CreatableTopic, int]] = {}
    for topic in topics:
        _, times = items.get(topic.name, (topic, 0))
        items[topic.name] = topic, times + 1
        yield 1
    partitions = 0
    for topic, _ in items.values():
        partitions += _partitions(context, topic)
        yield 1
    return items, partitions


def _partitions(context: RequestContext, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return context.broker.config.num_partitions if topic.num_partitions == -1 else max(0, topic.num_partitions)


class _Creation:
    """One CreateTopics request in progress."""

    def __init__(self, context: RequestContext, request: CreateTopicsRequest) -> None:
        self.context = context
        self.validate_only = request.validate_only
        self.response = CreateTopicsResponse()
        self.configs: dict[object, list[CreatableTopicConfigs]] = {}

    async def create(self, topics: Iterable[tuple[CreatableTopic, int]]) -> None:
        """Create the topics together and add their results. Each topic is paired with its number of occurrences."""
        results = self.response.topics
        pending: list[tuple[int, TopicPlan, asyncio.Future[Topic]]] = []
        for topic, times in topics:
            try:
                if times > 1:
                    problem = f"Topic {topic.name!r} is in the request more than once. Send it once."
                    raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
                plan = await _plan(self.context, topic)
                if not self.validate_only:
                    self.context.mutate(plan.partitions, strict_since=6)
                    creation = self.context.broker.metadata.create_topic(plan.name, plan.partitions, plan.configs)
                    pending.append((len(results), plan, creation))
                results.append(self._result(plan))
            except KafkaError as error:
                results.append(_failure(topic.name, error))
        for place, plan, creation in pending:
            try:
                results[place].topic_id = (await creation).topic_id
            except KafkaError as error:
                results[place] = _failure(plan.name, error)

    def _result(self, plan: TopicPlan) -> CreatableTopicResult:
        self.context.rows()
        if not self.context.access.allows(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, plan.name):
            code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return CreatableTopicResult(plan.name, error_message=None, topic_config_error_code=code)
        return CreatableTopicResult(
            plan.name,
            error_message=None,
            num_partitions=plan.partitions,
            replication_factor=1,
            configs=self._rows(plan),
        )

    def _rows(self, plan: TopicPlan) -> list[CreatableTopicConfigs]:
        """Return a topic's settings for the response. Topics with the same overrides share one list."""
        key = tuple(sorted(plan.configs.items()))
        if key not in self.configs:
            rows = describe_topic(self.context.broker, plan.effective)
            self.configs[key] = [CreatableTopicConfigs(row.name, row.value, False, row.source, False) for row in rows]
        return self.configs[key]


async def _plan(context: RequestContext, topic: CreatableTopic) -> TopicPlan:
    """Check a topic and return its plan. Nothing is awaited after the checks, so they still hold for the caller."""
    assignments, configs = await run_in_slices(_asked(topic))
    return plan_topic(context.broker, topic.name, topic.num_partitions, topic.replication_factor, assignments, configs)


def _asked(topic: CreatableTopic) -> Steps[tuple[dict[int, list[int]], dict[str, str | None]]]:
    """Return the requested assignments by partition and the requested settings by name."""
    assignments: dict[int, list[int]] = {}
    for item in topic.assignments:
        if item.partition_index in assignments:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Partition {item.partition_index} is assigned more than once. Assign each partition once.",
            )
        assignments[item.partition_index] = item.broker_ids
        yield 1
    configs: dict[str, str | None] = {}
    for config in topic.configs:
        configs[config.name] = config.value
        yield 1
    return assignments, configs


def _failure(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name, error_code=int(error.code), error_message=error.message)
