"""What ApiVersions announces, and what then comes of versions and protocols that are not served."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from support.raw_connection import RawConnection, batch
from support.wire import Wire

NOT_SERVED = "Kafka serves the consumer protocol"


def test_produce_is_announced_from_zero_on_for_librdkafka(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        answer = wire.call(ApiVersionsRequest("name", "1"), 4)
    (produce,) = (api for api in answer.api_keys if api.api_key == 0)
    assert (produce.min_version, produce.max_version) == (0, 13)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_produce_below_three_closes_the_connection(
    bootstrap: str, fresh_name: Callable[[str], str], version: int
) -> None:
    topic = fresh_name("t")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        records = batch(b"x")
        name = struct.pack(">h", len(topic)) + topic.encode()
        body = struct.pack(">hii", 1, 1000, 1) + name + struct.pack(">iii", 1, 0, len(records)) + records
        frame = struct.pack(">hhih", 0, version, 1, 1) + b"c" + body
        wire.send_bytes(struct.pack(">i", len(frame)) + frame)
        assert await wire.closed()


@pytest.mark.oncelog_only(reason=NOT_SERVED)
@pytest.mark.parametrize("version", [0, 1])
def test_a_heartbeat_of_the_consumer_protocol_is_refused(bootstrap: str, version: int) -> None:
    with Wire(bootstrap) as wire:
        answer = wire.call(ConsumerGroupHeartbeatRequest("g", "m", 0, rebalance_timeout_ms=1000), version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message is not None
    assert "group.protocol=classic" in answer.error_message


@pytest.mark.oncelog_only(reason=NOT_SERVED)
def test_librdkafka_reports_that_the_consumer_protocol_is_not_served(
    bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": fresh_name("g"), "group.protocol": "consumer", "log_level": 0}
    )
    consumer.subscribe([fresh_name("t")])
    try:
        message = consumer.poll(20)
    finally:
        consumer.close()
    assert message is not None, "poll() must not stay silent"
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._FATAL
    assert "not supported" in error.str()
