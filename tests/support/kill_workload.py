"""Run stock clients while the broker is killed, and compare what they were told with what readers see afterwards.

Three kinds of writers use one broker, each as a thread with a librdkafka client:

* an idempotent producer: an acknowledged record is stored exactly once and in order, any other record at most once;
* transactional producers: a committed transaction is stored as a whole and an aborted one not at all. One whose outcome
  the client never learned is stored either as a whole or not at all;
* a consume-transform-produce pair (KIP-447): every input is in the output exactly once.

`run` limits the time of everything. `verify` raises AssertionError with the difference.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .reading import offset_of, partition_of

TRANSACTION_TIMEOUT_MS = 10_000
SETTLE_S = 60.0
STOCK = {
    # librdkafka's default, rebootstrap (KIP-899), drops its broker handles when the only broker dies; 2.16 then keeps a
    # dropped one as the group's coordinator and never sends TxnOffsetCommit again, to any broker.
    "metadata.recovery.strategy": "none",
}


class KillableBroker(Protocol):
    """The broker to kill: `BrokerProcess` or `ApacheKafka`."""

    @property
    def address(self) -> str: ...
    def kill9(self) -> None: ...
    def start(self) -> Any: ...


class IdempotentWriter(threading.Thread):
    """A thread that sends 0, 1, 2, … to its partition, and stores the acknowledged records with their offsets."""

    def __init__(self, address: str, topic: str, partition: int, stop: threading.Event) -> None:
        super().__init__(name=f"idempotent-{partition}")
        self.topic, self.partition, self.stopping = topic, partition, stop
        self.acked: dict[int, int] = {}
        self.sent = 0
        self.failed: list[str] = []
        self.producer = Producer(
            {
                **STOCK,
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 60_000,
            }
        )

    def run(self) -> None:
        while not self.stopping.is_set():
            number = self.sent

            def delivered(error: KafkaError | None, message: Any, number: int = number) -> None:
                if error is None:
                    self.acked[number] = message.offset()
                else:
                    self.failed.append(f"{number}: {error}")

            try:
                self.producer.produce(self.topic, str(number).encode(), partition=self.partition, on_delivery=delivered)
                self.sent += 1
            except BufferError:
                self.producer.poll(0.05)
            self.producer.poll(0)
            if number % 20 == 0:
                # About a thousand records a second, in many small batches, so that kills hit many requests and readers
                # keep up.
                self.stopping.wait(0.02)
        if self.producer.flush(SETTLE_S):
            self.failed.append("records were left in the queue")


class TransactionalWriter(threading.Thread):
    """A thread that runs transactions of a few records over all partitions. It aborts a fifth of them on purpose."""

    def __init__(self, address: str, topic: str, partitions: int, name: str, seed: int, stop: threading.Event) -> None:
        super().__init__(name=name)
        self.address, self.topic, self.partitions, self.stopping = address, topic, partitions, stop
        self.random = random.Random(seed)
        self.records: dict[int, int] = {}
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.unknown: set[int] = set()
        self.failed: list[str] = []

    def new_producer(self) -> Producer:
        producer = Producer(
            {
                **STOCK,
                "bootstrap.servers": self.address,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(SETTLE_S)
        return producer

    def run(self) -> None:
        try:
            producer = self.new_producer()
            number = 0
            while not self.stopping.is_set():
                outcome = self.transaction(producer, number)
                outcome.add(number)
                if outcome is self.unknown:
                    producer = self.new_producer()
                number += 1
        except Exception as error:  # the test must see the failure of a thread
            self.failed.append(repr(error))

    def transaction(self, producer: Producer, number: int) -> set[int]:
        self.records[number] = count = self.random.randint(1, 5)
        try:
            producer.begin_transaction()
            for index in range(count):
                value = f"{self.name}/{number}/{index}".encode()
                producer.produce(self.topic, value, partition=(number + index) % self.partitions)
            if self.random.random() < 0.2:
                producer.abort_transaction(SETTLE_S)
                return self.aborted
            producer.commit_transaction(SETTLE_S)
            return self.committed
        except KafkaException as failure:
            error = failure.args[0]
            if error.txn_requires_abort():
                try:
                    producer.abort_transaction(SETTLE_S)
                    return self.aborted
                except KafkaException:
                    return self.unknown
            return self.unknown


class Transformer(threading.Thread):
    """A thread that copies `source` to `sink`, and commits the offsets in the same transactions.

    After every failure, it starts again with new clients from the committed offsets.
    """

    def __init__(self, address: str, source: str, sink: str, stop: threading.Event) -> None:
        super().__init__(name=f"{sink}-transformer")
        self.address, self.source, self.sink, self.stopping = address, source, sink, stop
        self.failed: list[str] = []
        self.restarts: list[str] = []

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.life()
        except Exception as error:
            self.failed.append(repr(error))

    def life(self) -> None:
        consumer = Consumer(
            {
                **STOCK,
                "bootstrap.servers": self.address,
                "group.id": self.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
            }
        )
        producer = Producer(
            {
                **STOCK,
                "bootstrap.servers": self.address,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
            }
        )
        try:
            producer.init_transactions(SETTLE_S)
            consumer.subscribe([self.source])
            while not self.stopping.is_set():
                batch = [message for message in consumer.consume(1000, 0.1) if message.error() is None]
                if not batch:
                    continue
                producer.begin_transaction()
                for message in batch:
                    producer.produce(self.sink, message.value(), partition=partition_of(message))
                positions = [at for at in consumer.position(consumer.assignment()) if at.offset >= 0]
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), SETTLE_S)
                producer.commit_transaction(SETTLE_S)
        except KafkaException as failure:
            # After any failure, new clients begin at the committed offsets, and init_transactions ends the open
            # transaction.
            self.restarts.append(str(failure))
        finally:
            consumer.close()


def read_all(address: str, topic: str, partitions: int, isolation: str) -> dict[int, list[tuple[int, bytes]]]:
    """Return every record up to the end, as `isolation` shows it: {partition: [(offset, value)]}."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"verify-{topic}",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(partitions)}
    at_end: set[int] = set()
    deadline = time.monotonic() + SETTLE_S
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, f"reading {topic} as {isolation} did not reach the end"
            for message in consumer.consume(5000, 0.5):
                error = message.error()
                if error is None:
                    found[partition_of(message)].append((offset_of(message), message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(partition_of(message))
                else:
                    raise AssertionError(str(error))
        return found
    finally:
        consumer.close()


class Workload:
    """The writers of one broker. `run` starts them and kills the broker, `verify` checks, `report` is a summary."""

    def __init__(self, broker: KillableBroker, name: str, seed: int) -> None:
        self.broker, self.seed = broker, seed
        self.random = random.Random(seed)
        self.plain, self.transactional, self.copy = f"{name}-plain", f"{name}-txn", f"{name}-copy"
        self.stop = threading.Event()
        self.partitions = 3
        admin = AdminClient({"bootstrap.servers": broker.address})
        topics = [NewTopic(topic, self.partitions, 1) for topic in (self.plain, self.transactional, self.copy)]
        for future in admin.create_topics(topics).values():
            future.result(SETTLE_S)
        self.idempotent = [
            IdempotentWriter(broker.address, self.plain, partition, self.stop) for partition in range(self.partitions)
        ]
        self.writers = [
            TransactionalWriter(
                broker.address, self.transactional, self.partitions, f"{name}-w{n}", seed + n, self.stop
            )
            for n in range(2)
        ]
        self.transformer_stop = threading.Event()
        self.transformer = Transformer(broker.address, self.plain, self.copy, self.transformer_stop)
        self.kills = 0

    def run(self, kills: int, at_least_s: float = 0.2, at_most_s: float = 1.5) -> None:
        for thread in (*self.idempotent, *self.writers, self.transformer):
            thread.start()
        self.wait_until(lambda: all(writer.committed for writer in self.writers), "the first transactions")
        for _ in range(kills):
            time.sleep(self.random.uniform(at_least_s, at_most_s))
            self.broker.kill9()
            self.kills += 1
            self.broker.start()
        time.sleep(1.0)
        self.stop.set()
        for thread in (*self.idempotent, *self.writers):
            thread.join(SETTLE_S * 2)
            assert not thread.is_alive(), f"{thread.name} does not end"
        self.wait_until(self.copied, f"the transformer to catch up, restarted after {self.transformer.restarts[-3:]}")
        self.transformer_stop.set()
        self.transformer.join(SETTLE_S * 2)
        assert not self.transformer.is_alive(), "the transformer does not end"

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SETTLE_S
        while not holds():
            assert time.monotonic() < deadline, f"waited {SETTLE_S:.0f} s for {what}"
            time.sleep(0.2)

    def copied(self) -> bool:
        written = read_all(self.broker.address, self.plain, self.partitions, "read_committed")
        copied = read_all(self.broker.address, self.copy, self.partitions, "read_committed")
        return sum(map(len, copied.values())) >= sum(map(len, written.values()))

    def verify(self) -> None:
        everyone: tuple[IdempotentWriter | TransactionalWriter | Transformer, ...] = (
            *self.idempotent,
            *self.writers,
            self.transformer,
        )
        failed = [(thread.name, thread.failed[:3]) for thread in everyone if thread.failed]
        assert not failed, failed
        plain = read_all(self.broker.address, self.plain, self.partitions, "read_committed")
        for writer in self.idempotent:
            stored = {offset: int(value) for offset, value in plain[writer.partition]}
            numbers = list(stored.values())
            assert numbers == sorted(set(numbers)), f"partition {writer.partition}: repeated or out of order"
            wrong = {n: offset for n, offset in writer.acked.items() if stored.get(offset) != n}
            assert not wrong, f"partition {writer.partition}: acknowledged but not there: {sorted(wrong.items())[:5]}"
        self.verify_transactions()
        copied = read_all(self.broker.address, self.copy, self.partitions, "read_committed")
        for partition, records in plain.items():
            assert [value for _, value in copied[partition]] == [value for _, value in records], f"copy of {partition}"
        self.wait_until(self.nothing_open, "the last stable offsets to reach the ends")

    def verify_transactions(self) -> None:
        stored = read_all(self.broker.address, self.transactional, self.partitions, "read_committed")
        seen = Counter(value.decode() for records in stored.values() for _, value in records)
        assert not [value for value, times in seen.items() if times > 1], "doubled records"
        per_transaction = Counter(tuple(value.rsplit("/", 1)[0].rsplit("/", 1)) for value in seen)
        for writer in self.writers:
            for number, count in writer.records.items():
                there = per_transaction[(writer.name, str(number))]
                label = f"{writer.name}/{number}: {there} of {count} records"
                if number in writer.committed:
                    assert there == count, f"committed, {label}"
                elif number in writer.aborted:
                    assert there == 0, f"aborted, {label}"
                else:
                    assert there in (0, count), f"torn, {label}"

    def nothing_open(self) -> bool:
        """Return whether no last stable offset is stuck: both isolation levels have the same end offsets."""
        ends = []
        for isolation in ("read_committed", "read_uncommitted"):
            consumer = Consumer(
                {"bootstrap.servers": self.broker.address, "group.id": "ends", "isolation.level": isolation}
            )
            topics = [TopicPartition(self.transactional, p) for p in range(self.partitions)]
            topics += [TopicPartition(self.copy, p) for p in range(self.partitions)]
            ends.append([consumer.get_watermark_offsets(topic, SETTLE_S)[1] for topic in topics])
            consumer.close()
        return ends[0] == ends[1]

    @property
    def report(self) -> str:
        acked = sum(len(writer.acked) for writer in self.idempotent)
        committed = sum(len(writer.committed) for writer in self.writers)
        aborted = sum(len(writer.aborted) for writer in self.writers)
        unknown = sum(len(writer.unknown) for writer in self.writers)
        return (
            f"seed {self.seed}: {self.kills} kills, {acked} records acknowledged and copied, "
            f"{committed} transactions committed, {aborted} aborted, {unknown} of unknown outcome"
        )
