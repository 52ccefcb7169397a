"""The admin client's requests about topics, partitions, records and configs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ...protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ...protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ...protocol.messages.describe_cluster import DescribeClusterRequest
from ...protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ...protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ..connection import Connection
from ..errors import error_for
from ..metadata import Node
from ..values import TopicPartition
from .calls import AdminCalls, failure, one_each, raised
from .leaders import by_leader
from .values import ClusterDescription, ConfigEntry, ConfigResource, NewTopic, ResourceType

Outcomes = dict[str, KafkaError | None]

LAST_DELETE_BY_NAME: Final = 5
NO_CREATION: Final = 4
"""The first version of Metadata that can request topics without creating them."""
SET, DELETE = 0, 1
"""IncrementalAlterConfigs' operations."""


async def create_topics(
    calls: AdminCalls, topics: Iterable[NewTopic], *, validate_only: bool, retry_on_quota_violation: bool = True
) -> Outcomes:
    """Create topics. Return the failure of each topic, or None.

    If a response was lost and the repeated request finds that a topic exists, the topic counts as created, unless it
    existed before or has another number of partitions.
    """
    wanted = list(topics)
    before = {} if validate_only else await _partition_counts(calls, [topic.name for topic in wanted])

    async def create(names: list[str]) -> tuple[Outcomes, int]:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
                )
                for topic in wanted
                if topic.name in names
            ],
            timeout_ms=calls.request_timeout_ms,
            validate_only=validate_only,
        )
        answer, lost = await calls.controller_again(
            lambda connection: (request, connection.version_of(CreateTopicsRequest)), "create topics"
        )
        outcomes = _outcomes(names, ((one.name, one.error_code, one.error_message) for one in answer.topics))
        if lost and not validate_only:
            now = await _partition_counts(calls, names)
            for topic in wanted:
                error = outcomes.get(topic.name)
                if error is None or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or before.get(topic.name) != 0:
                    continue
                if now.get(topic.name, 0) > 0 and topic.partitions in (-1, now[topic.name]):
                    outcomes[topic.name] = None
        return outcomes, answer.throttle_time_ms

    return await _accepted(calls, create, [topic.name for topic in wanted], retry_on_quota_violation)


async def _accepted(
    calls: AdminCalls,
    send: Callable[[list[str]], Awaitable[tuple[Outcomes, int]]],
    names: list[str],
    retry_on_quota_violation: bool,
) -> Outcomes:
    """Return the outcomes of `send`. Send topics again that are refused because of a quota, after the time in
    milliseconds that the response states (KIP-599), or because the controller has moved.

    If the call's timeout does not leave enough time, the refusal remains the outcome of these topics.
    """
    passing = {ErrorCode.NOT_CONTROLLER}
    if retry_on_quota_violation:
        passing.add(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    outcomes, throttle_time_ms = await send(names)
    attempt = 0
    while refused := {name: error.code for name, error in outcomes.items() if error and error.code in passing}:
        if not await calls.wait(max(throttle_time_ms / 1000, calls.cluster.retry_backoff(attempt))):
            break
        try:
            if ErrorCode.NOT_CONTROLLER in refused.values():
                await calls.retrying(calls.cluster.refresh, "find the controller")
            again, throttle_time_ms = await send(list(refused))
        except KafkaError as error:  # the outcomes of the other topics are known
            again = dict.fromkeys(refused, error)
        outcomes |= again
        attempt += 1
    return outcomes


def _outcomes(names: Iterable[str], rows: Iterable[tuple[str | None, int, str | None]]) -> Outcomes:
    """Return the failure of each topic, or None, from the names, error codes and messages of a response."""
    named = ((name, failure(code, message, _topic(name))) for name, code, message in rows if name is not None)
    return one_each(names, named, _topic)


def _topic(name: str) -> str:
    return f"topic {name!r}"


async def _partition_counts(calls: AdminCalls, names: list[str]) -> dict[str, int]:
    """Return the number of partitions by topic: 0 for a missing topic, and no entry if the lookup failed."""

    def build(connection: Connection) -> tuple[MetadataRequest, int]:
        asked = [MetadataRequestTopic(name=name) for name in names]
        version = connection.version_of(MetadataRequest)
        # v0 to v3 would create the topics.
        return MetadataRequest(asked if version >= NO_CREATION else [], allow_auto_topic_creation=False), version

    answer = await calls.any(build, "look up topics")
    return {
        topic.name: len(topic.partitions)
        for topic in answer.topics
        if topic.name is not None and topic.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    }


async def delete_topics(calls: AdminCalls, names: Iterable[str], *, retry_on_quota_violation: bool = True) -> Outcomes:
    """Delete topics. Return the failure of each topic, or None.

    If a response was lost and the repeated request does not find a topic, the topic counts as deleted.
    """

    async def delete(wanted: list[str]) -> tuple[Outcomes, int]:
        def build(connection: Connection) -> tuple[DeleteTopicsRequest, int]:
            version = connection.version_of(DeleteTopicsRequest)
            request = DeleteTopicsRequest(timeout_ms=calls.request_timeout_ms)
            if version <= LAST_DELETE_BY_NAME:
                request.topic_names = wanted
            else:
                request.topics = [DeleteTopicState(name=name) for name in wanted]
            return request, version

        answer, lost = await calls.controller_again(build, "delete topics")
        outcomes = _outcomes(wanted, ((one.name, one.error_code, one.error_message) for one in answer.responses))
        if lost:
            for name, error in outcomes.items():
                if error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    outcomes[name] = None
        return outcomes, answer.throttle_time_ms

    return await _accepted(calls, delete, list(names), retry_on_quota_violation)


async def create_partitions(
    calls: AdminCalls, totals: Mapping[str, int], *, validate_only: bool, retry_on_quota_violation: bool = True
) -> Outcomes:
    """Increase the numbers of partitions. Return the failure of each topic, or None.

    If a response was lost, a topic that already has the wanted total counts as a success.
    """

    async def create(names: list[str]) -> tuple[Outcomes, int]:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=totals[name], assignments=None) for name in names],
            timeout_ms=calls.request_timeout_ms,
            validate_only=validate_only,
        )
        answer, lost = await calls.controller_again(
            lambda connection: (request, connection.version_of(CreatePartitionsRequest)), "create partitions"
        )
        outcomes = _outcomes(names, ((one.name, one.error_code, one.error_message) for one in answer.results))
        if lost and not validate_only:
            now = await _partition_counts(calls, names)
            for name, error in outcomes.items():
                if error is not None and error.code is ErrorCode.INVALID_PARTITIONS and now.get(name) == totals[name]:
                    outcomes[name] = None
        return outcomes, answer.throttle_time_ms

    return await _accepted(calls, create, list(totals), retry_on_quota_violation)


async def describe_cluster(calls: AdminCalls) -> ClusterDescription:
    """Return the cluster's id, controller and brokers."""
    answer = await calls.simple(DescribeClusterRequest(), "describe the cluster")
    if answer.error_code:
        raise error_for(answer.error_code, answer.error_message)
    brokers = tuple(Node(one.broker_id, one.host, one.port, one.rack) for one in answer.brokers)
    return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)


async def describe_configs(
    calls: AdminCalls, resources: Iterable[ConfigResource]
) -> dict[ConfigResource, dict[str, ConfigEntry]]:
    """Return the configs of each resource, by config name. Raises the first failure."""
    wanted = list(dict.fromkeys(resources))
    described: dict[ConfigResource, dict[str, ConfigEntry]] = {}
    for node_id, part in _by_node(wanted).items():
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
                for kind, name in part
            ]
        )
        answer = await calls.simple(request, "describe configs", node_id)
        rows = ((ConfigResource(ResourceType(one.resource_type), one.resource_name), one) for one in answer.results)
        for resource, one in raised(one_each(part, rows, _configs)).items():
            problem = failure(one.error_code, one.error_message, _configs(resource))
            if problem is not None:
                raise problem
            described[resource] = {
                entry.name: ConfigEntry(
                    entry.name, entry.value, entry.config_source, entry.read_only, entry.is_sensitive
                )
                for entry in one.configs
            }
    return {resource: described[resource] for resource in wanted}


def _by_node(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Return the resources by the id of the broker that knows their configs. None means any broker."""
    by_node: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        is_of_broker = resource.type is ResourceType.BROKER and resource.name.isdecimal()
        by_node.setdefault(int(resource.name) if is_of_broker else None, []).append(resource)
    return by_node


def _configs(resource: ConfigResource) -> str:
    return f"configs of {resource.name!r}"


async def alter_configs(
    calls: AdminCalls, changes: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool
) -> dict[ConfigResource, KafkaError | None]:
    """Set and remove configs with IncrementalAlterConfigs. Return the failure of each resource, or None."""
    outcomes: dict[ConfigResource, KafkaError | None] = {}
    for node_id, part in _by_node(changes).items():
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
                        for key, value in changes[resource].items()
                    ],
                )
                for resource in part
            ],
            validate_only=validate_only,
        )
        try:
            answer = await calls.simple(request, "alter configs", node_id)
        except KafkaError as error:
            if len(part) == len(changes):
                raise
            outcomes |= dict.fromkeys(part, error)  # the outcomes at other brokers are known
            continue
        rows = (
            (ConfigResource(ResourceType(one.resource_type), one.resource_name), one.error_code, one.error_message)
            for one in answer.responses
        )
        failures = ((resource, failure(code, message, _configs(resource))) for resource, code, message in rows)
        outcomes |= one_each(part, failures, _configs)
    return {resource: outcomes[resource] for resource in changes}


async def delete_records(calls: AdminCalls, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Send DeleteRecords to the leaders; return the new log start offsets. Raises the first failure."""
    deleted: dict[TopicPartition, int] = {}

    async def ask() -> dict[TopicPartition, int]:
        left = [one for one in before if one not in deleted]
        for node_id, here in (await by_leader(calls, left)).items():
            topics: dict[str, DeleteRecordsTopic] = {}
            for name, index in here:
                topics.setdefault(name, DeleteRecordsTopic(name=name)).partitions.append(
                    DeleteRecordsPartition(partition_index=index, offset=before[TopicPartition(name, index)])
                )
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=calls.request_timeout_ms)
            answer = await calls.cluster.call(node_id, request)
            rows = (
                (TopicPartition(topic.name, data.partition_index), data)
                for topic in answer.topics
                for data in topic.partitions
            )
            for one, data in raised(one_each(here, rows, str)).items():
                problem = failure(data.error_code, None, str(one))
                if problem is not None:
                    raise problem
                deleted[one] = data.low_watermark
        return deleted

    try:
        return await calls.retrying(ask, "delete records")
    finally:
        calls.cluster.untrack({one.topic for one in before})
