"""Handle FindCoordinator v0-6: find the coordinator of a group (key type 0) or of a transactional id (key type 1).

From v4 on, a request has several keys. The coordinator is the leader of the internal topic's partition that stores the
key's state. Key type 64 (extension), whose key is a group id, asks for the transaction coordinator that initialises the
group's producers.
"""

from __future__ import annotations

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ..api.handling import RequestContext, handles
from ..coordinator.state_log import partition_for_key, units_of_hashing
from ..scheduling.steps import Steps, distinct
from ..topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

RESOURCES = {0: AclResourceType.GROUP, 1: AclResourceType.TRANSACTIONAL_ID, 64: AclResourceType.GROUP}
"""The resource type for each key type."""

HOMES = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
GROUP_AWARE_HOMES = {**HOMES, 64: TRANSACTIONS_TOPIC}
BATCHES_FROM = 4
"""The first version with several keys in a request (KIP-699)."""


@handles(FindCoordinatorRequest)
def handle(context: RequestContext, request: FindCoordinatorRequest) -> Steps[FindCoordinatorResponse]:
    """Find the coordinators. Before v4, an error applies to the whole request; from v4 on, it applies to one key."""
    if context.api_version < BATCHES_FROM:
        found = _coordinator(context, request.key_type, request.key)
        return FindCoordinatorResponse(0, found.error_code, found.error_message, found.node_id, found.host, found.port)
    response = FindCoordinatorResponse()
    for key in (yield from distinct(request.coordinator_keys)):
        response.coordinators.append(_coordinator(context, request.key_type, key))
        yield 2 * context.rows() + units_of_hashing(key)
    return response


def _coordinator(context: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        return Coordinator(key, *_home(context, key_type, key))
    except KafkaError as error:
        return Coordinator(key, -1, "", -1, int(error.code), error.message)


def _home(context: RequestContext, key_type: int, key: str) -> tuple[int, str, int]:
    """Return (node id, host, port) of the key's coordinator, with the address that this client can reach."""
    homes = GROUP_AWARE_HOMES if context.broker.group_aware else HOMES
    name = homes.get(key_type)
    if name is None:
        known = ", ".join(map(str, homes))
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Key type {key_type} is unknown. Use one of {known}.")
    context.access.require(AclOperation.DESCRIBE, RESOURCES[key_type], key)
    topic = context.broker.metadata.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return context.broker.leader(context.connection, name, partition_for_key(key, topic.partitions))
