"""confluent-kafka (librdkafka), aiokafka and kafka-python, unmodified: admin, every codec, consuming, groups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from support.kafka_python import LEAVES_SOCKETS
from support.reading import offset_of, partition_of

pytestmark = LEAVES_SOCKETS

Name = Callable[[str], str]
COUNT = 500
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
DEADLINE_S = 30.0


def until(enough: Callable[[], bool]) -> Iterator[None]:
    """Turns of a loop that ends when `enough()`, and fails when that takes too long."""
    deadline = time.monotonic() + DEADLINE_S
    while not enough():
        assert time.monotonic() < deadline, "took too long"
        yield


def make_topic(bootstrap: str, name: str, partitions: int = 1) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(DEADLINE_S)
    return admin


def consume_all(bootstrap: str, topic: str, count: int, **config: Any) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of `count` records, read by a group of one."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10000,
            **config,
        }
    )
    seen: list[tuple[int, int, bytes]] = []
    try:
        consumer.subscribe([topic])
        for _ in until(lambda: len(seen) >= count):
            for message in consumer.consume(count, 0.2):
                assert message.error() is None, message.error()
                seen.append((partition_of(message), offset_of(message), message.value() or b""))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return seen


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_librdkafka_writes_and_reads(bootstrap: str, fresh_name: Name, codec: str, idempotent: bool) -> None:
    topic = fresh_name("rdkafka")
    make_topic(bootstrap, topic, 2)
    failures: list[object] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 2}
    )
    for number in range(COUNT):
        producer.produce(
            topic,
            b"value %d" % number,
            key=b"%d" % (number % 7),
            headers={"h": b"x"},
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []
    seen = consume_all(bootstrap, topic, COUNT)
    assert sorted(value for _, _, value in seen) == sorted(b"value %d" % number for number in range(COUNT))
    for partition in (0, 1):
        offsets = [offset for index, offset, _ in seen if index == partition]
        assert offsets == list(range(len(offsets)))


def test_librdkafka_administers(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("rdkafka-admin")
    admin = make_topic(bootstrap, topic)
    with pytest.raises(KafkaException, match="exists"):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(DEADLINE_S)
    for _ in until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3):
        pass
    resource = ConfigResource(ResourceType.TOPIC, topic)
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("retention.ms", "777", incremental_operation=AlterConfigOpType.SET)],
    )
    admin.incremental_alter_configs([change])[change].result(DEADLINE_S)
    rows = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    assert rows["retention.ms"].value == "777"
    ends = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})  # type: ignore[no-untyped-call]
    assert [future.result(DEADLINE_S).offset for future in ends.values()] == [0]
    cluster = admin.describe_cluster().result(DEADLINE_S)
    assert len(cluster.nodes) == 1
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    for _ in until(lambda: topic not in admin.list_topics(timeout=10).topics):
        pass


def test_librdkafka_goes_on_where_its_group_committed(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("rdkafka-group")
    make_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(DEADLINE_S) == 0
    assert len(consume_all(bootstrap, topic, 10)) == 10
    producer.produce(topic, b"next")
    assert producer.flush(DEADLINE_S) == 0
    assert [value for _, _, value in consume_all(bootstrap, topic, 1)] == [b"next"]


def test_librdkafka_reads_to_the_end_of_a_partition(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("rdkafka-tail")
    make_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "fetch.wait.max.ms": 500})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        consumer.poll(0.1)
        took = []
        for number in range(5):
            began = time.monotonic()
            producer.produce(topic, b"%d" % number)
            producer.flush(DEADLINE_S)
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            assert message.value() == b"%d" % number
            took.append(time.monotonic() - began)
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 5)
    finally:
        consumer.close()
    assert sorted(took)[1] < 0.4, "a waiting fetch is woken, not timed out"


@pytest.mark.parametrize("codec", CODECS)
async def test_aiokafka_writes_and_reads(bootstrap: str, fresh_name: Name, codec: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    topic = fresh_name("aiokafka")
    make_topic(bootstrap, topic, 2)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, enable_idempotence=True
    )
    await producer.start()
    try:
        sent = await asyncio.gather(
            *[producer.send_and_wait(topic, b"value %d" % number, key=b"%d" % number) for number in range(100)]
        )
        assert len({(meta.partition, meta.offset) for meta in sent}) == 100
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            values = [(await consumer.getone()).value for _ in range(100)]
        await consumer.commit()
    finally:
        await consumer.stop()
    assert sorted(value or b"" for value in values) == sorted(b"value %d" % number for number in range(100))


async def test_aiokafka_administers(bootstrap: str, fresh_name: Name) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

    topic = fresh_name("aiokafka-admin")
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        created: Any = await admin.create_topics([NewTopic(topic, 1, 1)])
        assert [error for _, error, *_ in created.topic_errors] == [0]
        await admin.create_partitions({topic: NewPartitions(2)})
        async with asyncio.timeout(DEADLINE_S):
            while True:
                [described] = await admin.describe_topics([topic])
                if len(described["partitions"]) == 2:
                    break
                await asyncio.sleep(0.05)
        assert topic in await admin.list_topics()
        await admin.delete_topics([topic])
    finally:
        await admin.close()


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_writes_and_reads(bootstrap: str, fresh_name: Name, codec: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    topic = fresh_name("kafka-python")
    make_topic(bootstrap, topic, 2)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=cast(Any, None if codec == "none" else codec)
    )
    try:
        futures = [producer.send(topic, b"value %d" % number, key=b"%d" % number) for number in range(100)]
        places = {(meta.partition, meta.offset) for meta in (future.get(DEADLINE_S) for future in futures)}
        assert len(places) == 100
    finally:
        producer.close(timeout=5)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=int(DEADLINE_S * 1000),
    )
    values = []
    try:
        for record in consumer:
            values.append(record.value)
            if len(values) == 100:
                break
        consumer.commit()
    finally:
        consumer.close()
    assert sorted(value or b"" for value in values) == sorted(b"value %d" % number for number in range(100))


def test_kafka_python_administers(bootstrap: str, fresh_name: Name) -> None:
    from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic

    topic = fresh_name("kafka-python-admin")
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(topic, 1, 1)])
        admin.create_partitions({topic: NewPartitions(2)})
        for _ in until(lambda: topic in admin.list_topics()):
            pass
        admin.delete_topics([topic])
        for _ in until(lambda: topic not in admin.list_topics()):
            pass
    finally:
        admin.close()
