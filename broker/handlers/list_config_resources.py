"""Handle ListConfigResources: list the resources that have settings (KIP-1142).

Version 0 lists only client metrics resources, and the broker has none. The levels of loggers are not settings of this
broker, so no logger is listed. A group is listed while its producers have claims.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ..api.config_sources import ResourceType
from ..api.handling import RequestContext, handles
from ..scheduling.steps import Steps, distinct, ordered

BROKER_LOGGER, CLIENT_METRICS = 8, 16
KNOWN = (ResourceType.TOPIC, ResourceType.BROKER, BROKER_LOGGER, CLIENT_METRICS, ResourceType.GROUP)


@handles(ListConfigResourcesRequest)
def handle(context: RequestContext, request: ListConfigResourcesRequest) -> Steps[ListConfigResourcesResponse]:
    if context.api_version == 0:
        return ListConfigResourcesResponse()
    wanted = yield from distinct(request.resource_types or KNOWN)
    for resource_type in wanted:
        if resource_type not in KNOWN:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Resource type {resource_type} does not exist.")
    broker = context.broker
    response = ListConfigResourcesResponse()
    resources = response.config_resources
    if ResourceType.TOPIC in wanted:
        for name in (yield from ordered(list(broker.metadata.topics))):
            resources.append(ConfigResource(name, int(ResourceType.TOPIC)))
            yield context.rows()
    if ResourceType.BROKER in wanted:
        resources.append(ConfigResource(str(broker.node_id), int(ResourceType.BROKER)))
    if ResourceType.GROUP in wanted and broker.group_aware:
        for group_id in (yield from broker.group_initialiser.groups()):
            resources.append(ConfigResource(group_id, int(ResourceType.GROUP)))
            yield context.rows()
    return response
