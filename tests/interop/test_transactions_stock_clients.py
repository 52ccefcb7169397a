"""Transactions of unmodified Python clients: commit, abort, fencing, and offsets that commit with the records."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from support.kafka_python import LEAVES_SOCKETS
from support.reading import partition_of
from support.wire import Wire

pytestmark = LEAVES_SOCKETS

Fresh = Callable[[str], str]
DEADLINE_S = 30


@pytest.fixture
def topic(bootstrap: str, fresh_name: Fresh) -> str:
    name = fresh_name("topic")
    with Wire(bootstrap) as wire:
        wire.create_topic(name, 2)
    return name


def producer(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **settings})
    made.init_transactions(DEADLINE_S)
    return made


def committed_values(bootstrap: str, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """The first `count` values that a reader of that isolation sees, sorted; fewer when no more come."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    values: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    try:
        while (len(values) < count or len(ended) < 2) and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
                ended.discard(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition_of(message))
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return sorted(values)


class TestConfluentKafka:
    def test_committed_records_are_seen_and_aborted_ones_are_not(
        self, bootstrap: str, topic: str, fresh_name: Fresh
    ) -> None:
        writer = producer(bootstrap, fresh_name("id"))
        for number in range(30):
            writer.begin_transaction()
            for partition in range(2):
                writer.produce(topic, b"%02d-%d" % (number, partition), partition=partition)
            if number % 3 == 2:
                writer.flush()
                writer.abort_transaction(DEADLINE_S)
            else:
                writer.commit_transaction(DEADLINE_S)
        expected = [b"%02d-%d" % (number, p) for number in range(30) if number % 3 != 2 for p in range(2)]
        assert committed_values(bootstrap, topic, len(expected)) == expected
        assert len(committed_values(bootstrap, topic, 60, "read_uncommitted")) == 60

    def test_second_instance_fences_the_first(self, bootstrap: str, topic: str, fresh_name: Fresh) -> None:
        name = fresh_name("id")
        first = producer(bootstrap, name)
        first.begin_transaction()
        first.produce(topic, b"zombie")
        first.flush()
        second = producer(bootstrap, name)
        second.begin_transaction()
        second.produce(topic, b"successor")
        second.commit_transaction(DEADLINE_S)
        with pytest.raises(KafkaException) as raised:
            first.commit_transaction(DEADLINE_S)
        assert raised.value.args[0].code() == KafkaError._FENCED
        assert committed_values(bootstrap, topic, 1) == [b"successor"]

    def test_consume_transform_produce_moves_offsets_with_records(
        self, bootstrap: str, topic: str, fresh_name: Fresh
    ) -> None:
        source, group = topic, fresh_name("group")
        sink = fresh_name("sink")
        with Wire(bootstrap) as wire:
            wire.create_topic(sink, 2)
        feeder = Producer({"bootstrap.servers": bootstrap})
        for number in range(100):
            feeder.produce(source, b"%02d" % number, partition=number % 2)
        feeder.flush()
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        for run in range(2):  # the second goes on where the first one's committed transactions ended
            reader, writer = Consumer(settings), producer(bootstrap, fresh_name("id"))
            reader.subscribe([source])
            moved = 0
            deadline = time.monotonic() + DEADLINE_S
            while moved < 50 and time.monotonic() < deadline:
                batch = [message for message in reader.consume(10, 1) if message.error() is None]
                if not batch:
                    continue
                for attempt in ("aborted", "committed"):
                    writer.begin_transaction()
                    for message in batch:
                        writer.produce(sink, message.value(), partition=partition_of(message))
                    writer.send_offsets_to_transaction(
                        reader.position(reader.assignment()), reader.consumer_group_metadata(), DEADLINE_S
                    )
                    if attempt == "aborted":
                        writer.abort_transaction(DEADLINE_S)
                    else:
                        writer.commit_transaction(DEADLINE_S)
                moved += len(batch)
            reader.close()
            assert moved >= 50, run
        assert committed_values(bootstrap, sink, 100) == [b"%02d" % number for number in range(100)]

    def test_transaction_that_takes_too_long_is_aborted(self, bootstrap: str, topic: str, fresh_name: Fresh) -> None:
        writer = producer(bootstrap, fresh_name("id"), **{"transaction.timeout.ms": 1000})
        writer.begin_transaction()
        writer.produce(topic, b"slow")
        writer.flush()
        plain = Producer({"bootstrap.servers": bootstrap})
        for partition in range(2):
            plain.produce(topic, b"behind", partition=partition)
        plain.flush()
        assert committed_values(bootstrap, topic, 2) == [b"behind", b"behind"]
        with pytest.raises(KafkaException):
            writer.commit_transaction(DEADLINE_S)


class TestAiokafka:
    async def test_commit_abort_fencing_and_offsets(self, bootstrap: str, topic: str, fresh_name: Fresh) -> None:
        name, group = fresh_name("id"), fresh_name("group")
        writer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        await writer.start()
        try:
            for number in range(6):
                await writer.begin_transaction()
                await writer.send_and_wait(topic, b"%d" % number, partition=number % 2)
                await writer.send_offsets_to_transaction({AioTopicPartition(topic, 0): number + 1}, group)
                if number % 2:
                    await writer.abort_transaction()
                else:
                    await writer.commit_transaction()
            reader = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                isolation_level="read_committed",
                enable_auto_commit=False,
            )
            await reader.start()
            try:
                assert await reader.committed(AioTopicPartition(topic, 0)) == 5
                assert await reader.committed(AioTopicPartition(topic, 1)) is None
            finally:
                await reader.stop()
            successor = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
            await successor.start()
            await successor.stop()
            with pytest.raises(ProducerFenced):
                async with writer.transaction():
                    await writer.send_and_wait(topic, b"zombie", partition=0)
        finally:
            await writer.stop()
        # A fenced aiokafka leaves failed futures behind, whose complaint must not come in the middle of an import.
        gc.collect()
        assert committed_values(bootstrap, topic, 3) == [b"0", b"2", b"4"]


class TestKafkaPython:
    def test_commit_and_abort(self, bootstrap: str, topic: str, fresh_name: Fresh) -> None:
        writer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=fresh_name("id"), acks="all")
        try:
            writer.init_transactions()
            for number in range(6):
                writer.begin_transaction()
                writer.send(topic, b"%d" % number, partition=number % 2).get(DEADLINE_S)
                if number % 2:
                    writer.abort_transaction()
                else:
                    writer.commit_transaction()
        finally:
            writer.close()
        reader = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            consumer_timeout_ms=3000,
        )
        try:
            seen = []
            for record in reader:
                seen.append(record.value)
                if len(seen) == 3:
                    break
        finally:
            reader.close()
        assert sorted(seen) == [b"0", b"2", b"4"]
        assert committed_values(bootstrap, topic, 3) == [b"0", b"2", b"4"]
