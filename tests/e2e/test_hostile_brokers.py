"""Brokers whose answers make no sense: the client's calls end, within their timeouts, with an error that says why."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from oncelog import Admin, Broker, Consumer, KafkaError, Producer
from oncelog.protocol.messages.fetch import FetchRequest
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsRequest
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.messages.produce import ProduceRequest
from support.proxy import FaultProxy

WAIT_S = 20.0
ALWAYS = 1_000_000
SETTINGS: dict[str, Any] = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 20}
LIMITS: dict[str, Any] = {"max_block_ms": 500, "delivery_timeout_ms": 800, "request_timeout_ms": 500, **SETTINGS}


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with (
        Broker() as broker,
        FaultProxy(broker.address) as proxy,
        Admin(bootstrap_servers=broker.address) as admin,
    ):
        await admin.create_topic("t", 2)
        yield proxy


def no_partitions(answer: MetadataResponse) -> None:
    for topic in answer.topics:
        topic.partitions = []


def no_leader(answer: MetadataResponse) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.leader_id = -1


def unknown_leader(answer: MetadataResponse) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.leader_id = 4711


def no_brokers(answer: MetadataResponse) -> None:
    answer.brokers = []


def negative_ids(answer: MetadataResponse) -> None:
    for broker in answer.brokers:
        broker.node_id = -5


def gaps(answer: MetadataResponse) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.partition_index += 2_000_000_000


def twice(answer: MetadataResponse) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.partition_index = 0


def no_topics(answer: MetadataResponse) -> None:
    answer.topics = []


def strange_hosts(answer: MetadataResponse) -> None:
    for broker in answer.brokers:
        broker.node_id, broker.host, broker.port = broker.node_id + 1, "x" * 100 + ".." + "\N{SNOWMAN}", 99_999
    unknown_leader(answer)


def strange_code(answer: MetadataResponse) -> None:
    for topic in answer.topics:
        topic.error_code = 12_345


METADATA = [
    no_partitions, no_leader, unknown_leader, no_brokers, negative_ids, gaps, twice, no_topics, strange_hosts,
    strange_code,
]  # fmt: skip


@pytest.mark.parametrize("change", METADATA, ids=lambda change: change.__name__)
async def test_metadata_that_make_no_sense_do_not_hang_a_producer(
    proxy: FaultProxy, change: Callable[[MetadataResponse], None]
) -> None:
    proxy.change(MetadataRequest, change, times=ALWAYS)
    async with (
        asyncio.timeout(WAIT_S),
        Producer(
            bootstrap_servers=proxy.address,
            max_block_ms=500,
            delivery_timeout_ms=800,
            request_timeout_ms=500,
            **SETTINGS,
        ) as producer,
    ):
        for sent in (producer.send("t", b""), producer.send("t", b"", key=b"k"), producer.send("t", b"", partition=1)):
            with pytest.raises(KafkaError):
                await sent
        with pytest.raises(KafkaError):
            await (await producer.enqueue("t", b""))


@pytest.mark.parametrize("change", METADATA, ids=lambda change: change.__name__)
async def test_metadata_that_make_no_sense_do_not_hang_a_consumer(
    proxy: FaultProxy, change: Callable[[MetadataResponse], None]
) -> None:
    proxy.change(MetadataRequest, change, times=ALWAYS)
    async with (
        asyncio.timeout(WAIT_S),
        Consumer(
            bootstrap_servers=proxy.address,
            group_id="g",
            default_api_timeout_ms=500,
            request_timeout_ms=600,
            cancel_grace_ms=100,
            **SETTINGS,
        ) as consumer,
    ):
        with contextlib.suppress(KafkaError):  # some can be answered nevertheless
            await consumer.end_offsets([("t", 0)])
        consumer.assign([("t", 0)])
        with contextlib.suppress(KafkaError):
            await consumer.position(("t", 0))
        await consumer.unsubscribe()
        consumer.subscribe(["t"])
        with contextlib.suppress(KafkaError):
            assert await consumer.poll(300) == []


async def raw(answer: Callable[[int, int, int], bytes]) -> asyncio.Server:
    """A listener that answers each request with bytes made of (api key, version, correlation id)."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                writer.write(answer(*struct.unpack(">hhi", frame[:8])))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


ANSWERS: dict[str, Callable[[int, int, int], bytes]] = {
    "nothing at all": lambda key, version, correlation_id: b"",
    "an empty frame": lambda key, version, correlation_id: framed(b""),
    "another correlation id": lambda key, version, correlation_id: framed(
        struct.pack(">ihi", correlation_id + 1, 0, 0)
    ),
    "a header alone": lambda key, version, correlation_id: framed(struct.pack(">i", correlation_id)),
    "an array of two billion": lambda key, version, correlation_id: framed(
        struct.pack(">ihi", correlation_id, 0, 2**31 - 1)
    ),
    "zeros": lambda key, version, correlation_id: framed(struct.pack(">i", correlation_id) + bytes(1000)),
    "ones": lambda key, version, correlation_id: framed(struct.pack(">i", correlation_id) + b"\xff" * 1000),
    "half a frame": lambda key, version, correlation_id: (1000).to_bytes(4, "big") + bytes(10),
    "no versions": lambda key, version, correlation_id: framed(struct.pack(">i", correlation_id) + b"\0\0\1\0\0\0\0\0"),
}


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
@pytest.mark.parametrize("name", ANSWERS)
async def test_bytes_that_are_no_answer_end_a_start(kind: Any, name: str) -> None:
    limits = {"max_block_ms": 300} if kind is Producer else {"default_api_timeout_ms": 300}
    fetch = {"fetch_max_wait_ms": 50} if kind is Consumer else {}
    async with asyncio.timeout(WAIT_S), await raw(ANSWERS[name]) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = kind(bootstrap_servers=address, request_timeout_ms=100, **limits, **fetch, **SETTINGS)
        with pytest.raises(KafkaError):
            await client.start()


def empty(request: Any) -> Any:
    return type(request).response()


@pytest.mark.parametrize("make", [empty], ids=["empty"])
async def test_answers_with_nothing_in_them_end_every_call(proxy: FaultProxy, make: Callable[[Any], Any]) -> None:
    for api in (ProduceRequest, InitProducerIdRequest, FindCoordinatorRequest, ListOffsetsRequest, FetchRequest):
        proxy.answer(api, make, times=ALWAYS)
    async with asyncio.timeout(WAIT_S):
        async with Producer(
            bootstrap_servers=proxy.address,
            max_block_ms=500,
            delivery_timeout_ms=800,
            request_timeout_ms=500,
            **SETTINGS,
        ) as producer:
            with pytest.raises(KafkaError, match="leaves this partition out"):
                await producer.send("t", b"")
        async with Producer(
            bootstrap_servers=proxy.address, transactional_id="x", max_block_ms=500, **SETTINGS
        ) as producer:
            with pytest.raises(KafkaError, match="did not answer InitProducerId within"):
                await producer.init_transactions()
        async with Consumer(
            bootstrap_servers=proxy.address, group_id="g", default_api_timeout_ms=500, **SETTINGS
        ) as consumer:
            with pytest.raises(KafkaError, match="could not look up offsets of t-0"):
                await consumer.end_offsets([("t", 0)])
            with pytest.raises(KafkaError, match="within 500 ms"):
                await consumer.committed(("t", 0))
        async with Admin(bootstrap_servers=proxy.address, default_api_timeout_ms=500, **SETTINGS) as admin:
            with pytest.raises(KafkaError, match="within 500 ms"):
                await admin.describe_groups(["g"])
