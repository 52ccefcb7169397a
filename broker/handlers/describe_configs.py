"""DescribeConfigs: the settings of topics, groups and of the broker, and where each value comes from."""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ..config_sources import ConfigRow, ResourceType, describe_broker, describe_topic
from ..group_configs import describe_group
from ..handling import RequestContext, handles
from ..topic_creation import checked_config
from ..topic_names import name_problem


@handles(DescribeConfigsRequest)
def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_describe(context, request, resource) for resource in request.resources])


def _describe(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(0, None, resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        rows = _rows(context, resource)
    except KafkaError as error:
        result.error_code, result.error_message = int(error.code), error.message
        return result
    wanted = set(resource.configuration_keys or ())
    for row in rows:
        if wanted and row.name not in wanted:
            continue
        synonyms = row.synonyms if request.include_synonyms else ()
        result.configs.append(
            DescribeConfigsResourceResult(
                row.name,
                row.value,
                row.read_only,
                int(row.source),
                False,
                [DescribeConfigsSynonym(name, value, int(source)) for name, value, source in synonyms],
                int(row.type),
                row.doc if request.include_documentation else None,
            )
        )
    return result


def _rows(context: RequestContext, resource: DescribeConfigsResource) -> list[ConfigRow]:
    broker = context.broker
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        if (problem := name_problem(name)) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        topic = broker.metadata.topic(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(broker, checked_config(broker, topic.configs), topic.configs)
    if resource.resource_type == ResourceType.BROKER:
        if name == "":
            return []  # cluster-wide dynamic settings: there are none
        if name != str(broker.node_id):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"This broker is {broker.node_id}, not {name!r}.")
        return describe_broker(broker)
    if resource.resource_type == ResourceType.GROUP and broker.group_aware:
        return describe_group(broker, name)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resource type {resource.resource_type} has no settings here.")
