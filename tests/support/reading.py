"""Read topics back with confluent-kafka, so that oncelog's writer and reader cannot be wrong in the same way."""

from __future__ import annotations

import time
from typing import cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

TIMEOUT_S = 60.0


def make_topic(bootstrap: str, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
    """Create a topic and return its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})]).values():
        future.result(TIMEOUT_S)
    return topic


def read_topic(bootstrap: str, topic: str, committed: bool = True) -> dict[int, list[Message]]:
    """Return every record of a topic by partition: those of committed transactions, or all."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reading",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    try:
        partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
        found: dict[int, list[Message]] = {index: [] for index in partitions}
        left = set(partitions)
        deadline = time.monotonic() + TIMEOUT_S
        while left:
            assert time.monotonic() < deadline, f"the end of {topic} was not reached in the partitions {left}"
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found[partition_of(message)].append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            elif not error.retriable():
                raise KafkaException(error)
        return found
    finally:
        consumer.close()


def partition_of(message: Message) -> int:
    """Return the partition of a message that was read."""
    partition = message.partition()
    assert partition is not None
    return partition


def offset_of(message: Message) -> int:
    """Return the offset of a message that was read."""
    offset = message.offset()
    assert offset is not None
    return offset


def end_offsets(bootstrap: str, topic: str, stable: bool = False) -> dict[int, int]:
    """Return the high watermark of each partition, or with `stable` the last stable offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    level = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
    wanted = [TopicPartition(topic, index) for index in admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions]
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    found = admin.list_offsets(dict.fromkeys(wanted, cast(OffsetSpec, latest)), isolation_level=level)
    return {one.partition: int(future.result(TIMEOUT_S).offset) for one, future in found.items()}


def await_decided(bootstrap: str, topic: str) -> None:
    """Wait until no transaction is open: a commit is confirmed before its markers are in every partition."""
    deadline = time.monotonic() + TIMEOUT_S
    while end_offsets(bootstrap, topic) != end_offsets(bootstrap, topic, stable=True):
        assert time.monotonic() < deadline, f"a transaction on {topic} stays open"
        time.sleep(0.005)


def values(bootstrap: str, topic: str, committed: bool = True) -> list[bytes]:
    """Return the values of all committed records, partition after partition, once no transaction is open.

    Without `committed`, return the values of all records at once.
    """
    if committed:
        await_decided(bootstrap, topic)
    return [
        message.value() or b""
        for _, found in sorted(read_topic(bootstrap, topic, committed).items())
        for message in found
    ]


def committed_offset(bootstrap: str, group: str, topic: str, partition: int) -> int:
    """Return the offset that a group has committed; -1001 if there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], TIMEOUT_S)
        return int(found.offset)
    finally:
        consumer.close()
