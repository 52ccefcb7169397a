"""FindCoordinator v0-6: the coordinator of a group (key type 0) or a transactional id (1); v4+ takes several keys.

The coordinator is the leader of the internal topic's partition that holds the key's state. Key type 64 (extension) asks
for the transaction coordinator that is a group's home, which initialises its producers; the key is the group id.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ..coordinator.state_log import partition_for_key
from ..handling import RequestContext, handles
from ..steps import Steps, distinct
from ..topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

HOMES = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
GROUP_AWARE_HOMES = {**HOMES, 64: TRANSACTIONS_TOPIC}
BATCHES_FROM = 4
"""The first version that takes several keys (KIP-699)."""


@handles(FindCoordinatorRequest)
def handle(context: RequestContext, request: FindCoordinatorRequest) -> Steps[FindCoordinatorResponse]:
    """Find the coordinators; an error applies to the request before v4, and to its key from then on."""
    if context.api_version < BATCHES_FROM:
        node_id, host, port = _home(context, request.key_type, request.key)
        return FindCoordinatorResponse(node_id=node_id, host=host, port=port)
    response = FindCoordinatorResponse()
    for key in (yield from distinct(request.coordinator_keys)):
        response.coordinators.append(_coordinator(context, request.key_type, key))
        yield 2 * context.rows() + len(key) // 10  # the key is hashed
    return response


def _coordinator(context: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        return Coordinator(key, *_home(context, key_type, key))
    except KafkaError as error:
        return Coordinator(key, -1, "", -1, int(error.code), error.message)


def _home(context: RequestContext, key_type: int, key: str) -> tuple[int, str, int]:
    """(node id, host, port) of the key's coordinator, as seen by this client."""
    homes = GROUP_AWARE_HOMES if context.broker.group_aware else HOMES
    name = homes.get(key_type)
    if name is None:
        known = ", ".join(map(str, homes))
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Key type {key_type} is unknown: use one of {known}.")
    topic = context.broker.metadata.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return context.broker.leader(context.connection, name, partition_for_key(key, topic.partitions))
