"""Quotas from the outside: what is told, how long the broker waits, what stock clients see, what survives a restart."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from oncelog.broker.network.connection import Connection
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.alter_client_quotas import EntityData, OpData, RequestEntryData
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.quotas import alter, change, set_quotas
from support.raw_connection import RawConnection, batch
from support.sasl import broker_with_sasl, log_in, sasl_address
from support.tls import HOST, Authority, broker_with_tls, tls_port

pytestmark = pytest.mark.oncelog_only(reason="starts brokers with settings of its own")


@asynccontextmanager
async def broker_and_wire(**settings: Any) -> AsyncIterator[tuple[BrokerNode, RawConnection]]:
    """A broker and a connection of the client `raw`."""
    async with BrokerNode(**settings) as broker, RawConnection(broker.address) as wire:
        yield broker, wire


def produce(topic: str, size: int, acks: int = -1) -> ProduceRequest:
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch(b"x" * size))])
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data])


async def test_a_producer_over_its_quota_is_told_and_waits() -> None:
    async with broker_and_wire() as (broker, wire):
        await wire.create_topic("t")
        async with RawConnection(broker.address, "admin") as admin:
            await set_quotas(admin, {"client_id": "raw"}, producer_byte_rate=10_000)
            begun = time.monotonic()
            answer = await wire.call(produce("t", 105_000), 9)  # ten seconds of the quota may pass at once
            assert 500 <= answer.throttle_time_ms <= 520
            assert [part.error_code for part in answer.responses[0].partition_responses] == [0]
            await wire.call(MetadataRequest([]), 12)
            assert time.monotonic() - begun >= answer.throttle_time_ms / 1000 - 0.01
            async with RawConnection(broker.address, "other") as other:
                assert (await other.call(produce("t", 200_000), 9)).throttle_time_ms == 0


@pytest.mark.parametrize("version", range(3, 10))
async def test_every_version_of_a_response_can_be_throttled(version: int) -> None:
    async with broker_and_wire() as (_, wire):
        await wire.create_topic("t")
        await set_quotas(wire, {"user": None}, producer_byte_rate=100_000)
        assert (await wire.call(produce("t", 1_010_000), version)).throttle_time_ms > 0


async def test_requests_without_responses_are_executed_one_quota_after_the_other() -> None:
    """Also if the producer has closed its side: nothing that arrived is dropped."""
    async with broker_and_wire() as (broker, wire):
        await wire.create_topic("t")
        await set_quotas(wire, {"client_id": "silent"}, producer_byte_rate=100_000)
        async with RawConnection(broker.address, "silent") as silent:
            for _ in range(3):
                silent.send(produce("t", 505_000, acks=0), 9)
            await silent._writer.drain()
        log = broker.replica_manager.partition("t", 0).log
        async with asyncio.timeout(30):
            while log.log_end_offset < 3:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def a_throttled_connection(**settings: Any) -> AsyncIterator[tuple[BrokerNode, RawConnection, Connection]]:
    """A connection that has used its quota for a quarter of an hour, from the client's side and from the broker's."""
    async with broker_and_wire(**settings) as (broker, wire):
        await wire.create_topic("t")
        await set_quotas(wire, {"client_id": "slow"}, producer_byte_rate=1000)
        assert broker._listeners is not None
        listener = broker._listeners.named("PLAINTEXT")
        before = set(listener._connections)
        async with RawConnection(broker.address, "slow") as slow:
            assert (await slow.call(produce("t", 900_000), 9)).throttle_time_ms > 600_000
            (connection,) = set(listener._connections) - before
            yield broker, slow, connection


async def test_the_next_request_of_a_throttled_connection_takes_no_memory_while_it_waits() -> None:
    async with a_throttled_connection() as (broker, slow, connection):
        slow.send(produce("t", 900_000), 9)
        async with asyncio.timeout(30):
            while not len(connection._buffer):
                await asyncio.sleep(0.01)
        assert connection._listener.memory.used < 20_000
        assert connection._unmute is not None
        connection._unmute.cancel()
        connection._end_mute()  # as after a quarter of an hour
        async with asyncio.timeout(30):
            while broker.replica_manager.partition("t", 0).log.log_end_offset < 2:
                await asyncio.sleep(0.01)


async def test_a_throttled_connection_whose_client_has_gone_ends_when_it_is_idle() -> None:
    async with a_throttled_connection(connections_max_idle_ms=500) as (broker, slow, connection):
        slow.send(produce("t", 900_000), 9)
        slow.close()
        async with asyncio.timeout(30):
            await asyncio.shield(connection.closed)
        assert broker.replica_manager.partition("t", 0).log.log_end_offset == 1


async def fetched(wire: RawConnection, session: tuple[int, int] = (0, -1)) -> Any:
    topics = [FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, session_id=session[0], session_epoch=session[1], topics=topics)
    return await wire.call(request, 12)


async def test_a_reader_over_its_quota_gets_nothing_at_once_and_waits() -> None:
    async with broker_and_wire() as (broker, wire):
        await wire.create_topic("t")
        for _ in range(30):
            await wire.produce("t", batch(b"x" * 10_000))
        async with RawConnection(broker.address, "admin") as admin:
            await set_quotas(admin, {"client_id": "raw"}, consumer_byte_rate=10_000)
            first = await fetched(wire)
            assert first.throttle_time_ms == 0
            size = len(first.responses[0].partitions[0].records)
            assert 90_000 < size < 110_000  # ten seconds of the quota at once
            begun = time.monotonic()
            while not (second := await fetched(wire)).throttle_time_ms:
                begun = time.monotonic()
                assert len(second.responses[0].partitions[0].records) < 11_000  # the first batch, whatever its size
            assert second.responses == []
            assert second.error_code == 0
            await wire.call(MetadataRequest([]), 12)
            assert time.monotonic() - begun >= second.throttle_time_ms / 1000 - 0.01


async def test_a_throttled_session_goes_on_and_a_throttled_new_one_does_not_begin() -> None:
    async with broker_and_wire() as (broker, wire):
        await wire.create_topic("t")
        await wire.produce("t", batch(b"x" * 20_000))
        session_id = (await fetched(wire, (0, 0))).session_id
        assert session_id
        async with RawConnection(broker.address, "admin") as admin:
            await set_quotas(admin, {"client_id": "raw"}, consumer_byte_rate=1000)
            assert (await fetched(wire, (session_id, 1))).responses
            throttled = await fetched(wire, (session_id, 2))
            assert (throttled.throttle_time_ms > 0, throttled.session_id, throttled.responses) == (True, session_id, [])
            await set_quotas(admin, {"client_id": "raw"}, consumer_byte_rate=1100)
            throttled = await fetched(wire, (0, 0))
            assert (throttled.throttle_time_ms > 0, throttled.session_id, throttled.responses) == (True, 0, [])
            await set_quotas(admin, {"client_id": "raw"}, consumer_byte_rate=None)
            assert (await fetched(wire, (session_id, 3))).responses


async def test_time_is_limited_for_every_request() -> None:
    async with broker_and_wire() as (_, wire):
        await set_quotas(wire, {"user": "ANONYMOUS"}, request_percentage=0.0001)
        answers = [await wire.call(MetadataRequest([]), 12) for _ in range(3)]
        assert answers[0].throttle_time_ms == 0
        assert max(answer.throttle_time_ms for answer in answers) == 1000


async def test_no_request_before_the_login_counts() -> None:
    async with broker_with_sasl() as broker, RawConnection(sasl_address(broker), "raw") as wire:
        async with RawConnection(broker.address) as admin:
            await set_quotas(admin, {"client_id": "raw"}, request_percentage=0.0001)
        before = [await wire.call(ApiVersionsRequest(), 2)]
        await log_in(wire, "PLAIN", "alice", "alice;secret")
        after = [await wire.call(ApiVersionsRequest(), 2) for _ in range(3)]
        assert [answer.throttle_time_ms for answer in (*before, after[0])] == [0, 0]
        assert max(answer.throttle_time_ms for answer in after) == 1000


async def test_changes_of_partitions_are_limited() -> None:
    async with broker_and_wire(num_partitions=1) as (broker, wire):
        await wire.create_topic("grows")
        await set_quotas(wire, {"client_id": "raw"}, controller_mutation_rate=1)

        def topics(*names: str) -> CreateTopicsRequest:
            return CreateTopicsRequest([CreatableTopic(name, 12, -1) for name in names], 10_000)

        answer = await wire.call(topics("a", "b"), 7)
        assert [topic.error_code for topic in answer.topics] == [0, int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)]
        assert 0 < answer.throttle_time_ms <= 1000
        async with RawConnection(broker.address, "raw") as again:
            grown = await again.call(CreatePartitionsRequest([CreatePartitionsTopic("grows", 2, None)], 10_000), 3)
            assert [row.error_code for row in grown.results] == [89]
        async with RawConnection(broker.address, "raw") as again:
            deleted = await again.call(DeleteTopicsRequest([DeleteTopicState("grows")], [], 10_000), 6)
            assert [row.error_code for row in deleted.responses] == [89]
            assert deleted.throttle_time_ms > 0
        async with RawConnection(broker.address, "raw") as older:
            answer = await older.call(topics("c"), 5)  # does not know the error
            assert [topic.error_code for topic in answer.topics] == [0]
            assert answer.throttle_time_ms > 10_000
            validated = CreateTopicsRequest([CreatableTopic("d", 500, -1)], 10_000, True)
        async with RawConnection(broker.address, "raw") as again:
            assert [topic.error_code for topic in (await again.call(validated, 7)).topics] == [0]


async def test_topics_that_metadata_creates_are_charged_and_refused_without_a_throttle_time() -> None:
    """As in Kafka, whose broker sends the creation on to the controller and ignores the throttle time of the answer."""
    async with broker_and_wire(num_partitions=1) as (broker, wire):
        await set_quotas(wire, {"client_id": "raw"}, controller_mutation_rate=0.5)
        missing = [f"t{number:02}" for number in range(12)]
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in missing], True)
        for version in (4, 12):
            answer = await wire.call(request, version)
            rows = sorted((topic.name, topic.error_code) for topic in answer.topics)
            unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert rows == [(name, 0 if number < 6 else unknown) for number, name in enumerate(missing)]
            assert answer.throttle_time_ms == 0
        async with RawConnection(broker.address, "raw") as again:
            created = CreateTopicsRequest([CreatableTopic("explicit", 1, -1)], 10_000)
            assert [topic.error_code for topic in (await again.call(created, 7)).topics] == [89]


async def described(wire: RawConnection, *components: ComponentData, strict: bool = False) -> Any:
    answer: DescribeClientQuotasResponse = await wire.call(DescribeClientQuotasRequest(list(components), strict), 1)
    if answer.error_code:
        return ErrorCode(answer.error_code).name
    assert answer.entries is not None
    rows = []
    for entry in answer.entries:
        names = [f"{part.entity_type}={part.entity_name}" for part in entry.entity]
        rows.append((names, {row.key: row.value for row in entry.values}))
    return sorted(rows)


async def test_quotas_are_listed_by_filters_and_survive_a_restart(tmp_path: Path) -> None:
    alice = {"user": "alice"}
    async with broker_and_wire(data_dir=str(tmp_path)) as (_, wire):
        await set_quotas(wire, alice, producer_byte_rate=1024, request_percentage=12.5)
        await set_quotas(wire, alice, producer_byte_rate=2048, consumer_byte_rate=1)
        await set_quotas(wire, alice, consumer_byte_rate=None)
        await set_quotas(wire, {"user": "alice", "client_id": None}, controller_mutation_rate=3)
        await set_quotas(wire, {"user": None}, producer_byte_rate=7)
        await set_quotas(wire, {"ip": "127.0.0.9"}, connection_creation_rate=5)
        await set_quotas(wire, {"client_id": "gone"}, producer_byte_rate=7)
        await set_quotas(wire, {"client_id": "gone"}, producer_byte_rate=None)
        await alter(wire, change({"client_id": "never"}, producer_byte_rate=7), validate_only=True)
    whole = ["user=alice"], {"producer_byte_rate": 2048.0, "request_percentage": 12.5}
    pair = ["client-id=None", "user=alice"], {"controller_mutation_rate": 3.0}
    default = ["user=None"], {"producer_byte_rate": 7.0}
    address = ["ip=127.0.0.9"], {"connection_creation_rate": 5.0}
    async with broker_and_wire(data_dir=str(tmp_path)) as (_, wire):
        assert await described(wire) == sorted([whole, pair, default, address])
        assert await described(wire, ComponentData("user", 0, "alice")) == [pair, whole]
        assert await described(wire, ComponentData("user", 0, "alice"), strict=True) == [whole]
        assert await described(wire, ComponentData("user", 1, None)) == [default]
        assert await described(wire, ComponentData("user", 2, None)) == [pair, default, whole]
        assert await described(wire, ComponentData("client-id", 1, None), ComponentData("user", 2, None)) == [pair]
        assert await described(wire, ComponentData("ip", 2, None)) == [address]
        assert await described(wire, ComponentData("group", 2, None)) == "UNSUPPORTED_VERSION"
        for wrong in (("", 2, None), ("user", 3, None), ("user", 0, None), ("user", 1, "alice"), ("user", 2, "alice")):
            assert await described(wire, ComponentData(*wrong)) == "INVALID_REQUEST"
        assert await described(wire, *[ComponentData("user", 2, None)] * 2) == "INVALID_REQUEST"
        assert await described(wire, ComponentData("user", 2, None), ComponentData("ip", 2, None)) == "INVALID_REQUEST"


async def test_a_change_that_cannot_be_is_an_error_of_its_entity_alone() -> None:
    async with broker_and_wire(max_client_quotas=2) as (_, wire):
        results = await alter(
            wire,
            change({"user": "alice"}, producer_byte_rate=10),
            change({"user": "bob"}, producer_byte_rate=10, consumer_byte_rate=-1),
            RequestEntryData([EntityData("user", "carol")], [OpData("nonsense", 1.0, False)]),
            RequestEntryData([], [OpData("producer_byte_rate", 1.0, False)]),
            RequestEntryData([EntityData("user", "dave")], [OpData("producer_byte_rate", 1.0, False)] * 21),
            change({"user": "erin"}, producer_byte_rate=10),
            change({"user": "frank"}, producer_byte_rate=10),
        )
        assert [ErrorCode(result.error_code).name for result in results] == [
            *("NONE", "INVALID_REQUEST", "INVALID_REQUEST", "INVALID_REQUEST", "INVALID_REQUEST", "NONE"),
            "POLICY_VIOLATION",
        ]
        assert "max.client.quotas = 2" in (results[-1].error_message or "")
        assert [names for names, _ in await described(wire)] == [["user=alice"], ["user=erin"]]


async def test_what_is_changed_twice_in_a_request_is_not_changed() -> None:
    async with broker_and_wire() as (_, wire):
        rate = OpData("producer_byte_rate", 10.0, False)
        results = await alter(
            wire,
            change({"user": "alice", "client-id": None}, producer_byte_rate=10),
            change({"user": "bob"}, producer_byte_rate=10),
            change({"client-id": None, "user": "alice"}, producer_byte_rate=20),
            RequestEntryData([EntityData("user", "carol")], [rate, OpData("producer_byte_rate", 0.0, True)]),
        )
        assert [ErrorCode(result.error_code).name for result in results] == [
            *("INVALID_REQUEST", "NONE", "INVALID_REQUEST", "INVALID_REQUEST"),
        ]
        assert [names for names, _ in await described(wire)] == [["user=bob"]]


async def test_librdkafka_is_throttled_and_loses_nothing() -> None:
    async with broker_and_wire() as (broker, wire):
        await wire.create_topic("t")
        await set_quotas(wire, {"client_id": "stock"}, producer_byte_rate=100_000, consumer_byte_rate=100_000)
        throttled: list[int] = []

        def work() -> int:
            producer = Producer(
                {
                    "bootstrap.servers": broker.address,
                    "client.id": "stock",
                    "linger.ms": 0,
                    "throttle_cb": lambda event: throttled.append(event.throttle_time),
                }
            )
            for number in range(110):
                producer.produce("t", b"%d " % number + b"x" * 10_000)
                producer.poll(0)
                if number % 10 == 9:
                    assert producer.flush(30) == 0
            producer.poll(0)
            consumer = Consumer(
                {
                    "bootstrap.servers": broker.address,
                    "client.id": "stock",
                    "group.id": "g",
                    "auto.offset.reset": "earliest",
                }
            )
            consumer.subscribe(["t"])
            seen: list[int] = []
            deadline = time.monotonic() + 60
            while len(seen) < 110 and time.monotonic() < deadline:
                message = consumer.poll(1)
                if message is not None and message.error() is None:
                    seen.append(int((message.value() or b"").split()[0]))
            consumer.close()
            assert seen == list(range(110))
            return len(seen)

        assert await asyncio.to_thread(work) == 110
        assert max(throttled) > 0


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_an_address_that_connects_too_often_is_refused_after_a_while(protocol: str, authority: Authority) -> None:
    async with broker_with_tls(authority, quota_window_num=2) as broker, RawConnection(broker.address) as wire:
        port, context = (broker.port, None) if protocol == "PLAINTEXT" else (tls_port(broker), authority.context())
        frame = b"".join(encode_request(MetadataRequest([]), 12, 1, "often"))

        async def is_refused() -> bool:
            try:
                reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
            except ConnectionError:
                return True
            writer.write(frame)
            try:
                return await reader.read(1) == b""
            except ConnectionError:
                return True
            finally:
                writer.close()

        await set_quotas(wire, {"ip": None}, connection_creation_rate=2)
        assert [await is_refused() for _ in range(2)] == [False, False]
        begun = time.monotonic()
        assert await is_refused()
        assert time.monotonic() - begun > 0.2
        await set_quotas(wire, {"ip": "127.0.0.1"}, connection_creation_rate=1000)
        assert not await is_refused()


@pytest.mark.parametrize("setting", ["max.connection.creation.rate", "listener.name.{}.max.connection.creation.rate"])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_connections_beyond_the_rate_of_the_broker_or_a_listener_are_accepted_later(
    protocol: str, setting: str, authority: Authority
) -> None:
    settings = {setting.format(protocol.lower()): "2", "quota.window.num": "2"}
    async with broker_with_tls(authority, **settings) as broker:
        port, context = (broker.port, None) if protocol == "PLAINTEXT" else (tls_port(broker), authority.context())

        async def call(port: int, context: ssl.SSLContext | None) -> None:
            reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
            writer.write(b"".join(encode_request(MetadataRequest([]), 12, 1, "often")))
            assert await reader.read(1)
            writer.close()

        for _ in range(2):
            await call(port, context)
        begun = time.monotonic()
        beyond = asyncio.create_task(call(port, context))
        if "listener" in setting:
            other = (tls_port(broker), authority.context()) if protocol == "PLAINTEXT" else (broker.port, None)
            await asyncio.gather(*(call(*other) for _ in range(5)))
        await beyond
        assert time.monotonic() - begun > 0.2


@pytest.mark.parametrize(("host", "name"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::1", "0:0:0:0:0:0:0:1")])
async def test_an_address_is_the_same_on_all_interfaces_and_in_every_spelling(host: str, name: str) -> None:
    async with (
        broker_and_wire(
            listeners="PLAINTEXT://:0,LOCAL://127.0.0.1:0",
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,LOCAL:PLAINTEXT",
            quota_window_num=2,
        ) as (broker, wire),
    ):
        await set_quotas(wire, {"ip": name}, connection_creation_rate=1)
        connected = []
        writers = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection(host, broker.port)
            connected.append(reader)
            writers.append(writer)
            writer.write(b"".join(encode_request(MetadataRequest([]), 12, 1, "often")))
        async with asyncio.timeout(60):
            assert await connected[0].read(1) != b""
            assert await connected[1].read(1) == b""
        for writer in writers:
            writer.close()
        assert await described(wire, ComponentData("ip", 0, name)) != []
        await set_quotas(wire, {"ip": name}, connection_creation_rate=None)


async def test_a_name_is_no_address() -> None:
    async with broker_and_wire() as (_, wire):
        (refused,) = await alter(wire, change({"ip": "localhost"}, connection_creation_rate=1))
        assert ErrorCode(refused.error_code) is ErrorCode.INVALID_REQUEST
        assert "'localhost' is not an IP address" in (refused.error_message or "")
