"""Run a member as stock clients build it: confluent-kafka, with one transactional producer per input partition.

Applications were built like this before group-aware producers. `python -m support.partition_producers …` is one
process. Each assigned partition has a producer with the id `{application}-{topic}-{partition}`, which is initialised
before the committed offsets are read. Offsets are sent with member and generation (send_offsets_to_transaction with the
group's metadata, KIP-447), which fences them against members of the other kind. After any failure, the process starts
again: with new clients, from the committed offsets.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from .reading import offset_of, partition_of

CALL_S = 30.0


class PartitionProducers:
    """A member that copies `source` to `sink`, with one transaction per partition and batch."""

    def __init__(self, options: argparse.Namespace, stopping: threading.Event) -> None:
        self.options = options
        self.stopping = stopping
        self.producers: dict[int, Producer] = {}
        self.gathered: dict[int, list[Message]] = {}
        self.next: dict[int, int] = {}
        self.closing = False

    def client(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.options.bootstrap,
            # See kill_workload.STOCK: librdkafka 2.16 loses the coordinator otherwise when the only broker dies.
            "metadata.recovery.strategy": "none",
        }

    def live(self) -> None:
        """Copy with new clients until asked to stop. Raises KafkaException after a failure."""
        consumer = Consumer(
            {
                **self.client(),
                "group.id": self.options.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",  # it also waits for pending offset commits (RequireStable)
                "session.timeout.ms": self.options.session_timeout_ms,
                "heartbeat.interval.ms": self.options.session_timeout_ms // 20,
                "partition.assignment.strategy": self.options.strategy,
            }
        )
        try:
            consumer.subscribe([self.options.source], on_assign=self.on_assign, on_revoke=self.on_revoke)
            while not self.stopping.is_set():
                self.gather(consumer)
                while self.gathered:
                    self.transact(consumer, *self.gathered.popitem())
        finally:
            self.producers.clear()
            self.closing = True
            consumer.close()

    def gather(self, consumer: Consumer) -> None:
        """Poll messages one by one, because a rebalance may revoke their partition: then they must be dropped.

        `consume` is not used: its batch may hold messages from before a rebalance that happened during the call, and
        these messages come again. Only messages that follow the committed offset directly are taken: on Apache Kafka,
        librdkafka 2.16 was seen to return the first messages of a partition twice within one assignment.
        """
        deadline = time.monotonic() + 0.1
        count = 0
        while count < self.options.batch and (wait := deadline - time.monotonic()) > 0:
            message = consumer.poll(wait)
            if message is None or message.error() is not None:
                continue
            partition, offset = partition_of(message), offset_of(message)
            if offset != self.next.get(partition):
                print(f"[{partition}] {offset} came instead of {self.next.get(partition)}", file=sys.stderr, flush=True)
                continue
            self.next[partition] = offset + 1
            self.gathered.setdefault(partition, []).append(message)
            count += 1

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Fence the earlier producers of the partitions, and abort their transactions, before offsets are read."""
        if self.closing:
            return  # nothing will be read, and errors raised inside `Consumer.close` cannot be caught
        for one in partitions:
            producer = Producer(
                {
                    **self.client(),
                    "transactional.id": f"{self.options.application}-{one.topic}-{one.partition}",
                    "transaction.timeout.ms": self.options.transaction_timeout_ms,
                    "linger.ms": 0,
                }
            )
            producer.init_transactions(CALL_S)
            self.producers[one.partition] = producer
        for one in consumer.committed(partitions, CALL_S):
            if one.error is not None:
                raise KafkaException(one.error)
            self.next[one.partition] = max(one.offset, 0)

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self.producers.pop(one.partition, None)
            self.gathered.pop(one.partition, None)
            self.next.pop(one.partition, None)

    def transact(self, consumer: Consumer, partition: int, messages: list[Message]) -> None:
        producer = self.producers[partition]
        producer.begin_transaction()
        for message in messages:
            headers = [("member", self.options.name.encode())]
            producer.produce(self.options.sink, message.value(), partition=partition, headers=headers)
        behind = TopicPartition(self.options.source, partition, offset_of(messages[-1]) + 1)
        producer.send_offsets_to_transaction([behind], consumer.consumer_group_metadata(), CALL_S)
        producer.commit_transaction(CALL_S)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "application", "source", "sink", "strategy", "name"):
        parser.add_argument(f"--{name}", required=True)
    for name, default in (("session-timeout-ms", 6000), ("transaction-timeout-ms", 6000), ("batch", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    stopping = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stopping.set())
    while not stopping.is_set():
        try:
            PartitionProducers(options, stopping).live()
        except (KafkaException, KeyError) as failure:  # KeyError: its producer could not be initialised
            print(f"starting again after {failure!r}", file=sys.stderr, flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    main()
