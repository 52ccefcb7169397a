"""ConsumerGroupHeartbeat v0-1: refused, as Kafka does with `group.version` 0 (KIP-848 is not served).

It is announced all the same, because clients then learn of it: asked for the consumer protocol, Java's client raises,
librdkafka reports a fatal error and franz-go falls back to the classic protocol. Where the API is not announced,
librdkafka waits for ever without a word.
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
