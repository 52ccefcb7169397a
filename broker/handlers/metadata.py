"""Handle Metadata: return the brokers and the requested topics; create missing topics if that is allowed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from ...protocol.access_rules import AclOperation, AclResourceType
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
from ..api.authorization import NOT_ASKED, cluster_operations
from ..api.handling import Reply, RequestContext, handles
from ..api.topic_creation import check_new_partitions, plan_topic
from ..metadata import Topic
from ..partitions.partition import FIRST_LEADER_EPOCH
from ..scheduling.slices import in_slices
from ..scheduling.steps import Steps, ordered
from ..topic_names import METADATA_TOPIC, name_problem

FIRST_VERSION_BY_ID = 12
"""The first version that finds topics by id. Versions 10 and 11 have the field, but Kafka ignores it (KAFKA-10774)."""

CREATED_AT_A_TIME = 20
"""The number of topics that are created and made durable together."""

LOGGED = 10
"""The cost, in units of work, of refusing a topic and logging the refusal."""

_PARTITIONS_PER_STEP = 50
_TOPICS_PER_STEP = 50

Requested: TypeAlias = dict[str | bytes, None]
"""Names or ids of topics.

As in Kafka, the response contains each topic once. A request that repeats a topic with many partitions would otherwise
get an enormous response.
"""


@handles(MetadataRequest)
def handle(context: RequestContext, request: MetadataRequest) -> Steps[Reply]:
    metadata = context.broker.metadata
    if request.topics is None or (context.api_version == 0 and not request.topics):
        every = yield from ordered(list(metadata.topics))
        return (yield from _answer(context, request, (yield from _shown(context, every)), {}))
    ids: Requested = {}
    names: Requested = {}
    for start in range(0, len(request.topics), _TOPICS_PER_STEP):
        items = request.topics[start : start + _TOPICS_PER_STEP]
        if context.api_version < FIRST_VERSION_BY_ID:
            _check_no_ids(items)
        ids |= dict.fromkeys([item.topic_id for item in items if item.topic_id != NO_UUID])
        names |= dict.fromkeys([NO_UUID if item.name is None else item.name for item in items])
        yield len(items) // 2
    # If the request has a topic id, it is a request by ids: names are ignored, and no topic is created.
    requested = ids or names
    if request.allow_auto_topic_creation and context.broker.config.auto_create_topics_enable:
        missing = yield from _missing(context, requested)
        if missing:
            return _create_and_answer(context, request, requested, missing)
    return (yield from _answer(context, request, requested, {}))


def _shown(context: RequestContext, names: Iterable[str]) -> Steps[Iterable[str]]:
    """Return the topics in `names` that the client may describe."""
    access = context.access
    if not access.is_limited:
        return names
    shown = []
    for name in names:
        if access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name, quiet=True):
            shown.append(name)
        yield access.units
    return shown


def _missing(context: RequestContext, requested: Requested) -> Steps[list[str]]:
    """Return the requested topics that do not exist, except those whose existence must be hidden from the client."""
    metadata, access = context.broker.metadata, context.access
    missing = []
    for count, name in enumerate(requested, 1):
        if (
            isinstance(name, str)
            and name
            and name != METADATA_TOPIC
            and metadata.topic(name) is None
            and access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name, quiet=True)
        ):
            missing.append(name)
        if count % _TOPICS_PER_STEP == 0:
            yield _TOPICS_PER_STEP // 2 + _TOPICS_PER_STEP * access.units
    return missing


def _check_no_ids(topics: Iterable[MetadataRequestTopic]) -> None:
    for item in topics:
        if item.name is None or item.topic_id != NO_UUID:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"A topic id needs Metadata version {FIRST_VERSION_BY_ID} or higher."
            )


async def _create_and_answer(
    context: RequestContext, request: MetadataRequest, requested: Requested, missing: list[str]
) -> Steps[MetadataResponse]:
    broker, access = context.broker, context.access
    failures: dict[str, KafkaError] = {}
    if not access.allows(AclOperation.CREATE, AclResourceType.CLUSTER, quiet=True):
        refusal = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        async for name in in_slices(missing, LOGGED + access.units):
            if not access.allows(AclOperation.CREATE, AclResourceType.TOPIC, name):
                failures[name] = refusal
        missing = [name for name in missing if name not in failures]
    try:
        check_new_partitions(broker, len(missing) * broker.config.num_partitions)
    except KafkaError as error:
        return _answer(context, request, requested, failures | dict.fromkeys(missing, error))
    missing.sort()
    async for start in in_slices(range(0, len(missing), CREATED_AT_A_TIME), 1):
        pending = []
        for name in missing[start : start + CREATED_AT_A_TIME]:
            try:
                plan = plan_topic(broker, name)
                context.charge_automatic_creation(plan.partitions)
                pending.append((name, broker.metadata.create_topic(plan.name, plan.partitions, plan.configs)))
            except KafkaError as error:
                failures[name] = error
        for name, creation in pending:
            try:
                await creation
            except KafkaError as error:
                failures[name] = error
    return _answer(context, request, requested, failures)


def _answer(
    context: RequestContext, request: MetadataRequest, requested: Iterable[str | bytes], failures: dict[str, KafkaError]
) -> Steps[MetadataResponse]:
    metadata, access = context.broker.metadata, context.access
    offline = context.broker.replica_manager.offline_partitions()
    response = _response(context, request)
    for name in requested:
        yield context.rows()
        topic = metadata.topic(name) if isinstance(name, str) else metadata.topic_by_id(name)
        shown = name if isinstance(name, str) else None if topic is None else topic.name
        if access.is_limited:
            yield LOGGED + access.units
        if shown is not None and not access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, shown):
            response.topics.append(_hidden(name))
        elif topic is not None:
            response.topics.append((yield from _topic(context, request, topic, offline.get(topic.name, ()))))
        elif isinstance(name, str):
            missing = MetadataResponseTopic(_code_of_missing(name, failures), name)
            if missing.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                missing.topic_authorized_operations = _operations(context, request, name)
            response.topics.append(missing)
        else:
            response.topics.append(MetadataResponseTopic(int(ErrorCode.UNKNOWN_TOPIC_ID), None, name))
    return response


def _hidden(name: str | bytes) -> MetadataResponseTopic:
    """Return the row of a topic that the client may not describe. The row does not reveal whether the topic exists."""
    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return MetadataResponseTopic(code, name) if isinstance(name, str) else MetadataResponseTopic(code, None, name)


def _code_of_missing(name: str, failures: dict[str, KafkaError]) -> int:
    failure = failures.get(name)
    if name_problem(name) is not None:
        return int(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if failure is None or failure.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # the client repeats the request
    if failure.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return int(ErrorCode.LEADER_NOT_AVAILABLE)  # another request creates the topic, so the client retries
    return int(failure.code)


def _topic(
    context: RequestContext, request: MetadataRequest, topic: Topic, offline: Collection[int]
) -> Steps[MetadataResponseTopic]:
    operations = _operations(context, request, topic.name)
    epochs = context.broker.replica_manager.leader_epochs(topic.name)
    answer = MetadataResponseTopic(0, topic.name, topic.topic_id, topic.is_internal, [], operations)
    for start in range(0, topic.partitions, _PARTITIONS_PER_STEP):
        indexes = range(start, min(start + _PARTITIONS_PER_STEP, topic.partitions))
        yield context.rows(len(indexes))
        answer.partitions += _partitions(context.broker.node_id, indexes, offline, epochs)
    return answer


def _operations(context: RequestContext, request: MetadataRequest, name: str) -> int:
    if not request.include_topic_authorized_operations:
        return NOT_ASKED
    return context.access.operations(AclResourceType.TOPIC, name)


def _partitions(
    node: int, indexes: range, offline: Collection[int], epochs: Mapping[int, int]
) -> list[MetadataResponsePartition]:
    """Return an entry for each partition. The entries share their lists, because there may be 200,000 entries."""
    nodes, nobody, first = [node], list[int](), FIRST_LEADER_EPOCH
    if not offline and not epochs:
        return [MetadataResponsePartition(0, index, node, first, nodes, nodes, nobody) for index in indexes]
    code = int(ErrorCode.LEADER_NOT_AVAILABLE)
    return [
        MetadataResponsePartition(code, index, -1, epochs.get(index, first), nodes, nobody, nodes)
        if index in offline
        else MetadataResponsePartition(0, index, node, epochs.get(index, first), nodes, nodes, nobody)
        for index in indexes
    ]


def _response(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Return the response without topics."""
    broker = context.broker
    host, port = broker.endpoint(context.connection)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(broker.node_id, host, port, broker.config.broker_rack or None)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        cluster_authorized_operations=cluster_operations(context.access)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )
