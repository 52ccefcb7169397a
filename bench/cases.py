"""Measure brokers with the same client, librdkafka (confluent-kafka), in several cases.

Each case takes a broker's address and returns its figures. The loads have a fixed size, and every wait has a timeout.
"""

from __future__ import annotations

import multiprocessing
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `more_is_better` is False for times and memory. The table marks such figures."""

    name: str
    unit: str
    value: float
    more_is_better: bool = True


def fresh_topic(address: str, partitions: int = 1, **config: Any) -> str:
    """Create a topic with a random name and return the name."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    # The client is kept in a variable, because its removal would cancel the request.
    admin = AdminClient({"bootstrap.servers": address, **config})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)
    return name


def produce(address: str, topic: str, size: int, count: int, **config: Any) -> float:
    """Send `count` values of `size` bytes with acks=all; return the seconds until all are acknowledged.

    Raises RuntimeError if a record fails or is not acknowledged in time.
    """
    failed: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            **config,
        }
    )
    value = bytes(i * 31 % 251 for i in range(size))
    producer.list_topics(topic, timeout=TIMEOUT_S)
    begun = time.perf_counter()
    for number in range(count):
        producer.produce(topic, value, on_delivery=delivered)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    took = time.perf_counter() - begun
    if left or failed:
        raise RuntimeError(f"{left} records not acknowledged, {len(failed)} failed: {failed[:1]}")
    return took


def consume(address: str, topic: str, count: int, **config: Any) -> float:
    """Read `count` records from the start of partition 0; return the seconds from the first batch to the last.

    Raises RuntimeError on an error, or if the records do not arrive in time.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 1_000_000,
            "fetch.message.max.bytes": 8_000_000,
            **config,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen, begun = 0, 0.0
        deadline = time.monotonic() + TIMEOUT_S
        while seen < count and time.monotonic() < deadline:
            batch = consumer.consume(10_000, 1.0)
            for message in batch:
                if message.error():
                    raise RuntimeError(str(message.error()))
            if batch and not begun:
                begun = time.perf_counter()
            seen += len(batch)
        if seen < count:
            raise RuntimeError(f"read {seen} of {count} records within {TIMEOUT_S:.0f} s")
        return time.perf_counter() - begun
    finally:
        consumer.close()


def produce_and_consume_1k(address: str) -> list[Figure]:
    """Measure the throughput of writing and of reading records of 1 KB."""
    topic, count = fresh_topic(address), 150_000
    written = produce(address, topic, 1000, count)
    read = consume(address, topic, count)
    return [
        Figure("produce 1 KB", "MB/s", count / 1000 / written),
        Figure("consume 1 KB", "MB/s", count / 1000 / read),
    ]


def produce_100_b(address: str) -> list[Figure]:
    """Measure the throughput of writing records of 100 bytes."""
    topic, count = fresh_topic(address), 500_000
    return [Figure("produce 100 B", "k records/s", count / 1000 / produce(address, topic, 100, count))]


def transactions(address: str, records: int, count: int) -> list[Figure]:
    """Measure `count` consecutive transactions of one producer, with `records` records each."""
    topic = fresh_topic(address)
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": uuid.uuid4().hex, "linger.ms": 0, "acks": "all"}
    )
    producer.init_transactions(TIMEOUT_S)
    took: list[float] = []
    value = b"x" * 100
    for number in range(count + 20):
        begun = time.perf_counter()
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, value)
        producer.commit_transaction(TIMEOUT_S)
        if number >= 20:
            took.append(time.perf_counter() - begun)
    cuts = statistics.quantiles(took, n=100)
    name = f"transactions of {records}"
    return [
        Figure(name, "/s", count / sum(took)),
        Figure(f"{name}, p50", "ms", cuts[49] * 1000, more_is_better=False),
        Figure(f"{name}, p99", "ms", cuts[98] * 1000, more_is_better=False),
    ]


def consume_transform_produce(address: str) -> list[Figure]:
    """Measure transactions that read up to 1,000 records, write as many, and commit the offsets (KIP-447)."""
    count = 100_000
    source, sink = fresh_topic(address), fresh_topic(address)
    produce(address, source, 100, count)
    group = uuid.uuid4().hex
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = Producer({"bootstrap.servers": address, "transactional.id": group, "linger.ms": 5})
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([source])
    done, begun = 0, 0.0
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while done < count and time.monotonic() < deadline:
            batch = [message for message in consumer.consume(1000, 1.0) if not message.error()]
            if not batch:
                continue
            begun = begun or time.perf_counter()
            producer.begin_transaction()
            for message in batch:
                producer.produce(sink, (message.value() or b"").upper(), message.key())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
            )
            producer.commit_transaction(TIMEOUT_S)
            done += len(batch)
        if done < count:
            raise RuntimeError(f"transformed {done} of {count} records within {TIMEOUT_S:.0f} s")
        return [Figure("consume-transform-produce", "records/s", done / (time.perf_counter() - begun))]
    finally:
        consumer.close()


def fifty_producers(address: str, each: int = 40) -> list[Figure]:
    """Measure 50 concurrent transactional producers, each with its own group and `each` transactions.

    Each transaction has one record and one committed offset.
    """
    took, latencies = transactions_with_offsets(address, 50, each)
    return [Figure("50 producers with offsets", "transactions/s", len(latencies) / took)]


def transactions_with_offsets(address: str, producers: int, each: int) -> tuple[float, list[float]]:
    """Run the transactions of `fifty_producers`; return the seconds that all took, and those that each took."""
    source, sink = fresh_topic(address), fresh_topic(address, 10)
    begin = threading.Barrier(producers + 1)
    latencies: list[float] = []

    def work(number: int) -> None:
        group = uuid.uuid4().hex
        consumer = Consumer({"bootstrap.servers": address, "group.id": group})
        producer = Producer({"bootstrap.servers": address, "transactional.id": group, "linger.ms": 0})
        producer.init_transactions(TIMEOUT_S)
        for transaction in range(each + 1):
            if transaction == 1:  # the first transaction is not timed, because it has to find the coordinators
                begin.wait(TIMEOUT_S)
            begun = time.perf_counter()
            producer.begin_transaction()
            producer.produce(sink, b"x" * 100, partition=number % 10)
            offsets = [TopicPartition(source, 0, transaction)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
            if transaction:
                latencies.append(time.perf_counter() - begun)
        consumer.close()

    with ThreadPoolExecutor(producers) as threads:
        running = [threads.submit(work, number) for number in range(producers)]
        begin.wait(TIMEOUT_S)
        begun = time.perf_counter()
        for one in running:
            one.result(TIMEOUT_S)
        return time.perf_counter() - begun, latencies


def latency(address: str) -> list[Figure]:
    """Measure the time from produce() until a consumer has the record, one record at a time."""
    topic, count = fresh_topic(address), 1000
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "all"})
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": uuid.uuid4().hex, "fetch.wait.max.ms": 500, "fetch.min.bytes": 1}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        took: list[float] = []
        for number in range(count + 50):
            begun = time.perf_counter()
            producer.produce(topic, b"x" * 100)
            producer.poll(0)
            message = consumer.poll(TIMEOUT_S)
            if message is None or message.error():
                raise RuntimeError(f"record {number} did not arrive: {message and message.error()}")
            if number >= 50:
                took.append(time.perf_counter() - begun)
        cuts = statistics.quantiles(took, n=100)
        return [
            Figure("produce to consume, p50", "ms", cuts[49] * 1000, more_is_better=False),
            Figure("produce to consume, p99", "ms", cuts[98] * 1000, more_is_better=False),
        ]
    finally:
        consumer.close()


def neighbour(address: str) -> list[Figure]:
    """Measure a client's Metadata requests, alone and beside eight producers that send without acks at full speed."""
    topics = [fresh_topic(address) for _ in range(8)]
    admin = AdminClient({"bootstrap.servers": address})

    def median_ms() -> float:
        took: list[float] = []
        for _ in range(200):
            begun = time.perf_counter()
            admin.list_topics(topics[0], timeout=TIMEOUT_S)
            took.append(time.perf_counter() - begun)
        return statistics.median(took) * 1000

    alone = median_ms()
    flooding = [multiprocessing.Process(target=_flood, args=(address, topic), daemon=True) for topic in topics]
    for process in flooding:
        process.start()
    try:
        time.sleep(1.0)
        beside = median_ms()
    finally:
        for process in flooding:
            process.kill()
            process.join()
    return [
        Figure("metadata alone, p50", "ms", alone, more_is_better=False),
        Figure("metadata beside 8 flooders, p50", "ms", beside, more_is_better=False),
    ]


def _flood(address: str, topic: str) -> None:
    """Send records without acks until the process is killed."""
    while True:
        produce(address, topic, 1000, 50_000, acks=0)


CASES: dict[str, Callable[[str], list[Figure]]] = {
    "produce": produce_and_consume_1k,
    "produce-small": produce_100_b,
    "transactions-1": lambda address: transactions(address, 1, 1000),
    "transactions-30": lambda address: transactions(address, 30, 500),
    "transform": consume_transform_produce,
    "fifty-producers": fifty_producers,
    "latency": latency,
    "neighbour": neighbour,
}
