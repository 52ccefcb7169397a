"""Handle DescribeConfigs: return the settings of topics, groups and the broker, with the source of each value.

A resource that the request repeats is described once, with all requested settings. The list of settings is made only
once for all topics that override the same defaults with the same values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ..api.config_sources import (
    ConfigRow,
    ResourceType,
    check_broker_name,
    describe_broker,
    describe_every_broker,
    describe_topic,
)
from ..api.group_configs import CLAIMS, describe_group
from ..api.handling import RequestContext, handles
from ..dynamic_configs import EVERY_BROKER
from ..metadata import Topic
from ..metadata.topic_config import stored_config
from ..scheduling.steps import SLICE, Steps
from ..topic_names import name_problem

Wanted: TypeAlias = frozenset[str] | None
"""The names of the requested settings; None means all settings."""


@handles(DescribeConfigsRequest)
def handle(context: RequestContext, request: DescribeConfigsRequest) -> Steps[DescribeConfigsResponse]:
    broker = context.broker
    response = DescribeConfigsResponse()
    alike: dict[object, list[DescribeConfigsResourceResult]] = {}
    resources = yield from _merged(request.resources)
    for (resource_type, name), names in resources.items():
        wanted = None if names is None else frozenset(names)
        result = DescribeConfigsResult(0, "", resource_type=resource_type, resource_name=name)
        response.results.append(result)
        yield context.rows()
        try:
            if resource_type == ResourceType.TOPIC:
                topic = _topic(context, name)
                like = tuple(sorted(topic.configs.items())), wanted
                if like not in alike:
                    rows = describe_topic(broker, stored_config(broker.config, topic.configs))
                    alike[like] = _configs(request, rows, wanted)
                    context.rows(len(alike[like]))
                    yield 300
                result.configs = alike[like]
            else:
                rows = yield from _rows(context, resource_type, name)
                if resource_type == ResourceType.GROUP and wanted is not None and CLAIMS in wanted:
                    wanted = None  # the claims may need several settings
                result.configs = _configs(request, rows, wanted)
                context.rows(len(result.configs))
                yield 300
        except KafkaError as error:
            result.error_code, result.error_message = int(error.code), error.message
    return response


def _merged(resources: Iterable[DescribeConfigsResource]) -> Steps[dict[tuple[int, str], set[str] | None]]:
    """Return the names of the requested settings of each resource, or None for all settings.

    A null or empty list of names requests all settings.
    """
    merged: dict[tuple[int, str], set[str] | None] = {}
    for resource in resources:
        key = resource.resource_type, resource.resource_name
        names = resource.configuration_keys
        wanted = merged.setdefault(key, set()) if names else None
        if not names or wanted is None:
            merged[key] = None
            yield 1
            continue
        for start in range(0, len(names), SLICE):
            portion = names[start : start + SLICE]
            wanted.update(portion)
            yield len(portion)
    return merged


def _configs(
    request: DescribeConfigsRequest, rows: Iterable[ConfigRow], wanted: Wanted
) -> list[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(
            row.name,
            row.value,
            row.read_only,
            int(row.source),
            row.is_secret,
            [DescribeConfigsSynonym(name, value, int(source)) for name, value, source in row.synonyms]
            if request.include_synonyms
            else [],
            int(row.type),
            row.doc if request.include_documentation else None,
        )
        for row in rows
        if wanted is None or row.name in wanted
    ]


def _topic(context: RequestContext, name: str) -> Topic:
    if (problem := name_problem(name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = context.broker.metadata.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def _rows(context: RequestContext, resource_type: int, name: str) -> Steps[list[ConfigRow]]:
    """Return the settings of a broker or a group; raise KafkaError for an unknown resource."""
    broker = context.broker
    if resource_type == ResourceType.BROKER:
        check_broker_name(broker, name)
        return describe_every_broker(broker) if name == EVERY_BROKER else describe_broker(broker)
    if resource_type == ResourceType.GROUP and broker.group_aware:
        return (yield from describe_group(context, name))
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resource type {resource_type} has no settings in this broker.")
