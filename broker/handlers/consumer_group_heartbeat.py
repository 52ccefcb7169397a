"""ConsumerGroupHeartbeat v0-1: refused, as Kafka does with `group.version` 0 (KIP-848 is not served).

It is announced all the same, so that clients configured for the consumer protocol get an error: Java's client raises,
librdkafka reports a fatal error and franz-go falls back to the classic protocol. If the API is not announced,
librdkafka waits for ever without an error.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ..handling import Reply, RequestContext, handles


@handles(ConsumerGroupHeartbeatRequest)
def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Reply:
    raise KafkaError(
        ErrorCode.UNSUPPORTED_VERSION, "This broker serves the classic group protocol only: set group.protocol=classic."
    )
