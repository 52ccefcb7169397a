"""The producer behind a network that fails: nothing lost, nothing doubled, nothing out of order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
from oncelog import Admin, Broker, KafkaError, KafkaTimeoutError, Producer, UnknownPartitionError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from support.proxy import FaultProxy
from support.reading import make_topic, read_topic, values

Fresh = Callable[[str], str]
FAST = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50, "linger_ms": 0}


@pytest.fixture
async def proxy(bootstrap: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(bootstrap) as running:
        yield running


def refusal(code: ErrorCode) -> Callable[[ProduceRequest], ProduceResponse]:
    """An answer that refuses every batch of a request."""
    return lambda request: ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [PartitionProduceResponse(data.index, code, -1) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def code_in_answer(code: ErrorCode) -> Callable[[ProduceResponse], None]:
    """A change of an answer: the batches were written, and the answer says otherwise."""

    def change(response: ProduceResponse) -> None:
        for topic in response.responses:
            for partition in topic.partition_responses:
                partition.error_code, partition.base_offset = code, -1

    return change


async def send_numbers(producer: Producer, topic: str, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await producer.enqueue(topic, b"%06d" % number, partition=0)
    await producer.flush()


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


@pytest.mark.parametrize("fault", ["before", "after", "refused", "written but refused", "held"])
async def test_one_fault_at_each_of_the_first_requests(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh, fault: str
) -> None:
    for skip in (0, 1, 3, 7):
        topic = make_topic(bootstrap, fresh_name("topic"))
        async with Producer(FAST, bootstrap_servers=proxy.address, batch_size=200) as producer:
            if fault == "before":
                proxy.break_before(ProduceRequest, skip=skip)
            elif fault == "after":
                proxy.break_after(ProduceRequest, skip=skip)
            elif fault == "refused":
                proxy.answer(ProduceRequest, refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER), skip=skip)
            elif fault == "held":
                proxy.hold(ProduceRequest, 0.05, skip=skip)
            else:
                proxy.change(ProduceRequest, code_in_answer(ErrorCode.REQUEST_TIMED_OUT), skip=skip)
            await send_numbers(producer, topic, 100)
        assert values(bootstrap, topic) == numbers(100)


@pytest.mark.parametrize("seed", range(3))
async def test_many_faults_at_random(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh, seed: int) -> None:
    chance = random.Random(seed)
    topic = make_topic(bootstrap, fresh_name("topic"), partitions=3)
    for _ in range(25):
        skip = chance.randrange(6)
        chance.choice(
            [
                partial(proxy.break_before, ProduceRequest, skip=skip),
                partial(proxy.break_after, ProduceRequest, skip=skip),
                partial(proxy.answer, ProduceRequest, refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER), skip=skip),
                partial(
                    proxy.change, ProduceRequest, code_in_answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), skip=skip
                ),
                partial(proxy.hold, ProduceRequest, 0.01, skip=skip),
            ]
        )()
    async with Producer(FAST, bootstrap_servers=proxy.address, batch_size=150) as producer:
        for number in range(1500):
            await producer.enqueue(topic, b"%06d" % number, partition=number % 3)
    for partition, found in read_topic(bootstrap, topic).items():
        assert [message.value() for message in found] == [b"%06d" % number for number in range(partition, 1500, 3)]


async def test_a_batch_refused_for_good_fails_alone(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(FAST, bootstrap_servers=proxy.address, batch_size=100) as producer:
        proxy.answer(ProduceRequest, refusal(ErrorCode.INVALID_RECORD), skip=3)
        deliveries = [producer.send(topic, b"%06d" % number) for number in range(60)]
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
    failed = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, KafkaError)]
    assert failed
    assert values(bootstrap, topic) == [value for number, value in enumerate(numbers(60)) if number not in failed]


async def test_delivery_timeout_with_an_answer_never_seen(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    settings = {**FAST, "request_timeout_ms": 150, "delivery_timeout_ms": 300}
    async with Producer(settings, bootstrap_servers=proxy.address) as producer:
        await producer.send(topic, b"before")
        proxy.hold(ProduceRequest, 0.3, times=50)
        with pytest.raises(KafkaTimeoutError, match=r"delivery\.timeout\.ms"):
            await producer.send(topic, b"lost or not")
        proxy._faults.clear()
        proxy.break_connections()
        await producer.send(topic, b"after")
        await producer.send(topic, b"and on")
    found = values(bootstrap, topic)
    assert found in ([b"before", b"after", b"and on"], [b"before", b"lost or not", b"after", b"and on"])


async def test_a_broker_that_stops_answering_is_left_and_found_again(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(FAST, bootstrap_servers=proxy.address, batch_size=200, request_timeout_ms=200) as producer:
        await send_numbers(producer, topic, 10)
        proxy.hold(ProduceRequest, 60)
        await send_numbers(producer, topic, 50, first=10)
    assert values(bootstrap, topic) == numbers(60)


async def test_an_outage_is_outlived(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(FAST, bootstrap_servers=proxy.address, batch_size=200) as producer:
        await send_numbers(producer, topic, 10)
        proxy.down = True
        proxy.break_connections()
        sending = asyncio.create_task(send_numbers(producer, topic, 50, first=10))
        done, _ = await asyncio.wait([sending], timeout=0.3)
        assert not done
        proxy.down = False
        await sending
    assert values(bootstrap, topic) == numbers(60)


async def test_metadata_that_fails_at_first_is_asked_for_again(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    proxy.break_before(MetadataRequest)
    proxy.break_after(MetadataRequest, skip=1, times=2)
    async with Producer(FAST, bootstrap_servers=proxy.address) as producer:
        await send_numbers(producer, topic, 10)
    assert values(bootstrap, topic) == numbers(10)


async def test_a_broker_that_knows_only_old_api_versions(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    def as_kafka_0_11(response: ApiVersionsResponse) -> None:
        newest = {0: 3, 1: 5, 3: 4, 18: 1, 22: 0}
        response.api_keys = [api for api in response.api_keys if api.api_key in newest]
        for api in response.api_keys:
            api.max_version = newest[api.api_key]

    proxy.change(ApiVersionsRequest, as_kafka_0_11, times=100)
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(FAST, bootstrap_servers=proxy.address) as producer:
        await send_numbers(producer, topic, 10)
    assert values(bootstrap, topic) == numbers(10)
    assert (proxy.versions["Produce"], proxy.versions["Metadata"]) == (3, 4)


async def test_keys_follow_a_topic_that_was_created_again_at_a_broker_without_topic_ids() -> None:
    def as_kafka_2_7(response: ApiVersionsResponse) -> None:
        for api in response.api_keys:
            if api.api_key == 3:  # Metadata
                api.max_version = 9

    keys = [b"%d" % number for number in range(12)]
    async with (
        Broker(auto_create_topics_enable=False) as broker,
        FaultProxy(broker.address) as proxy,
        Admin(bootstrap_servers=broker.address) as admin,
    ):
        proxy.change(ApiVersionsRequest, as_kafka_2_7, times=100)
        async with Producer(
            FAST, bootstrap_servers=proxy.address, request_timeout_ms=2000, delivery_timeout_ms=5000
        ) as producer:
            await admin.create_topic("t", 6)
            placed = [await producer.send("t", b"old", key=key) for key in keys]
            assert not {one.partition for one in placed} <= {0, 1}
            await admin.delete_topics(["t"])
            waiting = producer.send("t", b"new", partition=0)
            seen = proxy.seen["Metadata"]
            while proxy.seen["Metadata"] < seen + 2:  # a response has said that the topic does not exist
                await asyncio.sleep(0.01)
            await admin.create_topic("t", 2)
            await waiting
            with pytest.raises(UnknownPartitionError, match="its known partitions are 0 to 1"):
                producer.send("t", b"new", partition=5)
            placed = [await producer.send("t", b"new", key=key) for key in keys]
            assert {one.partition for one in placed} == {0, 1}
    assert proxy.versions["Metadata"] == 9


async def test_a_batch_that_is_too_large_is_split_after_an_attempt_whose_fate_is_open(
    proxy: FaultProxy, bootstrap: str, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), config={"max.message.bytes": "2000"})
    async with Producer(FAST, bootstrap_servers=proxy.address, batch_size=16_000) as producer:
        await producer.partitions_for(topic)
        proxy.break_before(ProduceRequest)
        await send_numbers(producer, topic, 1000)
    assert values(bootstrap, topic) == [b"%06d" % number for number in range(1000)]


async def test_parts_of_a_batch_that_is_written_as_a_whole_are_not_written_again(
    proxy: FaultProxy, bootstrap: str, fresh_name: Fresh
) -> None:
    """The topic's limit was lowered between two attempts, of which the first was written."""
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(FAST, bootstrap_servers=proxy.address) as producer:
        await send_numbers(producer, topic, 1)
        proxy.break_after(ProduceRequest)
        proxy.answer(ProduceRequest, refusal(ErrorCode.MESSAGE_TOO_LARGE))
        with pytest.raises(KafkaError, match="may or may not be written"):
            await send_numbers(producer, topic, 10, first=1)
        await send_numbers(producer, topic, 5, first=11)
    assert values(bootstrap, topic) == [b"%06d" % number for number in range(16)]
