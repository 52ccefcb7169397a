"""Partition directories that Apache Kafka wrote take transactions: of the same producer ids and of new ones."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from oncelog.broker.log import PartitionLog
from oncelog.broker.node import BrokerNode
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from support.apache_kafka import ApacheKafka, class_path, jvm_options
from support.raw_connection import RawConnection
from support.transaction_wire import TransactionWire, read_decided
from support.wire import Wire

TOPICS = ("a", "b")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def transact(address: str, transactional_id: str, value: bytes, *, commit: bool = True) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for topic in TOPICS:
        producer.produce(topic, value, partition=0)
    producer.flush(60)
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a stock broker that was restarted between its transactions, which raises its epochs."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("java and mvn are not installed")
    few = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    directory = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(directory, few) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        for creation in admin.create_topics([NewTopic(topic, 1, 1) for topic in TOPICS]).values():
            creation.result(60)
        for number in range(3):
            transact(kafka.address, "x", b"%d" % number)
            transact(kafka.address, "y", b"aborted", commit=False)
            kafka.stop()
            kafka.start()
    return directory / "data"


def committed(address: str, topic: str, count: int) -> list[bytes | None]:
    """What a stock reader gets."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[Any] = []
    while len(values) < count:
        message = consumer.poll(30)
        assert message is not None, values
        assert message.error() is None, message.error()
        values.append(message.value())
    consumer.close()
    return values


async def test_transactions_go_on_in_partitions_that_kafka_wrote(data: Path, tmp_path: Path) -> None:
    async with BrokerNode(tmp_path, logging_level="error") as broker:

        def create() -> None:
            with Wire(broker.address) as wire:
                for topic in TOPICS:
                    wire.create_topic(topic)

        await asyncio.to_thread(create)
    for topic in TOPICS:
        shutil.copytree(data / f"{topic}-0", tmp_path / f"{topic}-0")
    expected = [b"0", b"1", b"2"]

    def work(address: str) -> None:
        with Wire(address) as wire:
            for topic in TOPICS:
                assert read_decided(wire, topic) == expected
            known = {entry.producer_id for topic in TOPICS for entry in broker_producers(topic)}
            assert known
            fresh = wire.call(InitProducerIdRequest(None, 60_000), 4).producer_id
            assert fresh > max(known), "a new producer must not continue another's sequences"
            for version, value in ((3, b"old protocol"), (5, b"new protocol")):
                txn = TransactionWire(wire, "z")
                txn.init()
                for topic in TOPICS:
                    txn.add(topic, 0)
                    assert txn.produce(topic, value) == 0
                assert txn.end(True, version=version).error_code == 0
            transact(address, "x", b"stock")
            transact(address, "y", b"aborted", commit=False)
            transact(address, "y", b"last")
            for topic in TOPICS:
                assert read_decided(wire, topic) == [*expected, b"old protocol", b"new protocol", b"stock", b"last"]
                assert committed(address, topic, 7) == [*expected, b"old protocol", b"new protocol", b"stock", b"last"]

    async with BrokerNode(tmp_path, logging_level="error") as broker:
        log = broker.replica_manager.partition("a", 0).log
        assert isinstance(log, PartitionLog)
        assert log.leader_epochs.latest > 0
        assert any(entry.coordinator_epoch > 0 for entry in log.producers.entries()), "the restarts raised no epoch"

        def broker_producers(topic: str) -> list[Any]:
            return list(broker.replica_manager.partition(topic, 0).log.producers.entries())

        await asyncio.to_thread(work, broker.address)


async def test_a_java_consumer_seeks_and_continues_in_partitions_that_kafka_wrote(data: Path, tmp_path: Path) -> None:
    """Batches, offsets and Metadata have the same leader epoch. Otherwise Java's consumer waits for newer metadata."""
    settings = {"logging.level": "error"}
    async with BrokerNode(tmp_path, settings) as broker, RawConnection(broker.address) as wire:
        for topic in ("a", "empty"):
            await wire.create_topic(topic)
    shutil.rmtree(tmp_path / "a-0")
    shutil.copytree(data / "a-0", tmp_path / "a-0")
    program = Path(__file__).resolve().parent / "clients" / "java" / "Seeks.java"
    async with BrokerNode(tmp_path, settings) as broker:
        command = ("java", *jvm_options("256m"), "-cp", class_path(), str(program), broker.address, "a", "3", "empty")
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert output.decode().splitlines()[-1] == "ok"


async def test_kafkas_own_producer_ids_and_transaction_state_go_on(data: Path, tmp_path: Path) -> None:
    """With `__transaction_state` copied, too, the ids keep their producer ids, and Kafka's markers count."""
    settings = {"transaction.state.log.num.partitions": 1, "logging.level": "error"}
    async with BrokerNode(tmp_path, settings) as broker:

        def create() -> None:
            with Wire(broker.address) as wire:
                for topic in TOPICS:
                    wire.create_topic(topic)

        await asyncio.to_thread(create)
    for name in (*TOPICS, "__transaction_state"):
        shutil.rmtree(tmp_path / f"{name}-0", ignore_errors=True)
        shutil.copytree(data / f"{name}-0", tmp_path / f"{name}-0")

    def work(address: str) -> None:
        with Wire(address) as wire:
            for value in (b"3", b"4"):
                transact(address, "x", value)
            for topic in TOPICS:
                assert read_decided(wire, topic) == [b"0", b"1", b"2", b"3", b"4"]

    for _ in range(2):
        async with BrokerNode(tmp_path, settings) as broker:
            before = broker.transaction_coordinator.describe("x").producer_id
            log = broker.replica_manager.partition("a", 0).log
            entry = log.producers.entry(before)
            assert entry is not None
            assert entry.coordinator_epoch > 0
            if log.log_end_offset < 12:
                await asyncio.to_thread(work, broker.address)
