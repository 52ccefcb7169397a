"""What a coordinator refuses for good is raised by the next poll, and a member that is none any more holds nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from oncelog import Admin, Consumer, Producer, TopicPartition
from oncelog.client.consumer import RebalanceListener
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog.protocol.messages.list_offsets import ListOffsetsRequest
from oncelog.protocol.messages.metadata import MetadataResponse
from oncelog.protocol.schema import Request, Response
from support.proxy import FaultProxy
from support.topics import created_topic

Names = Callable[[str], str]
WAIT_S = 15.0


@pytest.fixture
async def proxy(bootstrap: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(bootstrap) as proxy:
        yield proxy


@pytest.fixture
async def topic(bootstrap: str, fresh_name: Names) -> str:
    return await created_topic(bootstrap, fresh_name("topic"), 2)


class Lost(RebalanceListener):
    """Notes what was lost."""

    def __init__(self) -> None:
        self.partitions: list[set[TopicPartition]] = []

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self.partitions.append(partitions)


async def poll_until_it_fails(consumer: Consumer) -> None:
    while True:
        await consumer.poll(100, max_records=1)


def refused(code: ErrorCode) -> Callable[[JoinGroupRequest], JoinGroupResponse]:
    return lambda request: JoinGroupResponse(error_code=code)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ],
)
async def test_a_poll_raises_why_a_member_cannot_join_again(
    proxy: FaultProxy, bootstrap: str, topic: str, fresh_name: Names, strategy: str, code: ErrorCode
) -> None:
    lost = Lost()
    settings = {
        "group_id": fresh_name("group"),
        "partition_assignment_strategy": strategy,
        "heartbeat_interval_ms": 100,
    }
    mine = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    async with (
        asyncio.timeout(WAIT_S),
        Producer(bootstrap_servers=bootstrap) as producer,
        Consumer(settings, bootstrap_servers=proxy.address, auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe([topic], listener=lost)
        for number in range(1000):
            await producer.enqueue(topic, b"%d" % number, partition=0)
        await producer.flush()
        while not await consumer.poll(100, max_records=1):
            pass
        proxy.answer(JoinGroupRequest, refused(code), times=2)
        consumer.enforce_rebalance()
        with pytest.raises(KafkaError) as first:
            await poll_until_it_fails(consumer)
        assert first.value.code is code
        with pytest.raises(KafkaError) as second:
            await anext(consumer)  # what waits may be another member's by now
        assert second.value.code is code
        assert not consumer.assignment()
        assert lost.partitions == ([mine] if strategy == "cooperative-sticky" else [])
        while not await consumer.poll(100):
            pass
        assert consumer.assignment() == mine


@pytest.mark.parametrize("by_pattern", [False, True])
async def test_topics_of_a_former_subscription_are_not_asked_for(
    proxy: FaultProxy, bootstrap: str, topic: str, fresh_name: Names, by_pattern: bool
) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        other = fresh_name("other")
        await admin.create_topic(other, 1)
    asked: list[set[str | None]] = []

    def note(api: type[Request[Response]], answer: Response) -> None:
        if isinstance(answer, MetadataResponse):
            asked.append({one.name for one in answer.topics})

    async with (
        asyncio.timeout(WAIT_S),
        Consumer(bootstrap_servers=proxy.address, group_id=fresh_name("group")) as consumer,
    ):
        if by_pattern:
            consumer.subscribe(pattern=topic)
        else:
            consumer.subscribe([topic])
        while not consumer.assignment():
            await consumer.poll(100)
        await consumer.unsubscribe()
        proxy.on_answer = note
        consumer.subscribe([other])
        while not consumer.assignment():
            await consumer.poll(100)
        assert asked[-1] == {other}


async def test_positions_that_cannot_be_looked_up_are_reported(
    proxy: FaultProxy, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.hold(ListOffsetsRequest, 60)
    async with (
        asyncio.timeout(WAIT_S),
        Consumer(
            bootstrap_servers=proxy.address, auto_offset_reset="earliest", default_api_timeout_ms=3000
        ) as consumer,
    ):
        consumer.assign([(topic, 0)])
        while "could not be looked up" not in caplog.text:
            await consumer.poll(100)
        assert f"{topic}-0" in caplog.text
