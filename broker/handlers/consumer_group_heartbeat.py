"""Handle ConsumerGroupHeartbeat v0-1: refuse it, because the consumer group protocol of KIP-848 is not supported.

Kafka with `group.version` 0 refuses it too. The API is still announced, so that clients configured for the consumer
protocol get an error. The Java client then raises an exception, librdkafka reports a fatal error, and franz-go falls
back to the classic protocol. If the API were not announced, librdkafka would wait forever without an error.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ..api.handling import Reply, RequestContext, handles


@handles(ConsumerGroupHeartbeatRequest)
def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Reply:
    raise KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        "This broker supports only the classic group protocol. Set group.protocol=classic.",
    )
