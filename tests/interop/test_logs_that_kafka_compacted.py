"""Logs that Apache Kafka has compacted or shortened are served from its files, also after kills and compactions."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from oncelog.broker.log.repair import inspect
from oncelog.broker.log.segment import LogSegment
from oncelog.broker.system.ports import RealFileSystem
from support.apache_kafka import ApacheKafka
from support.broker import BrokerProcess
from support.wire import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SMALL_SEGMENTS = {"segment.bytes": "1048576"}
COMPACTED = SMALL_SEGMENTS | {"min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
TOPICS = {"plain": COMPACTED, "transactional": COMPACTED, "shortened": SMALL_SEGMENTS}
COMPACTED_TOPICS = ("plain", "transactional")
RECORDS = 7_000

Seen = list[tuple[int, bytes | None, bytes | None]]


def read_all(address: str, topic: str) -> Seen:
    """The (offset, key, value) of all committed records, as a stock consumer gets them."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    seen: Seen = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"no answer after {len(seen)} records"
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return seen
        offset = message.offset()
        assert offset is not None
        seen.append((offset, message.key(), message.value()))


def fill(address: str, count: int, transactional_id: str) -> None:
    """Write `count` records to each topic, in transactions of 50 except to `plain`. Each fifth one is aborted."""
    rng = random.Random(7)
    plain = Producer({"bootstrap.servers": address, "linger.ms": 5})
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id, "linger.ms": 5})
    producer.init_transactions(60)
    for first in range(0, count, 50):
        producer.begin_transaction()
        for number in range(first, first + 50):
            key = b"rare %d" % number if number % 500 == 0 else b"key %d" % rng.randrange(20)
            for topic in TOPICS:
                (plain if topic == "plain" else producer).produce(topic, rng.randbytes(1000), key, partition=0)
        plain.flush(60)
        if first % 250 == 200:
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def segments(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.log"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Seen]]:
    """Kafka's data directory, and what its own readers saw in it last."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("java and mvn are not installed")
    directory = tmp_path_factory.mktemp("kafka")
    settings = {
        "log.cleaner.backoff.ms": "200",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "200",
        "file.delete.delay.ms": "0",
        "transaction.state.log.num.partitions": "1",
    }
    with ApacheKafka(directory, settings) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        new = [NewTopic(topic, 1, 1, config=config) for topic, config in TOPICS.items()]
        for creation in admin.create_topics(new).values():
            creation.result(60)
        fill(kafka.address, RECORDS, "filler")
        for done in admin.delete_records([TopicPartition("shortened", 0, RECORDS // 2)]).values():
            done.result(60)
        data = directory / "data"
        eventually(lambda: segments(data / "shortened-0")[0] > "0" * 20 + ".log", timeout_s=60)
        checkpoint = data / "cleaner-offset-checkpoint"
        # Later rounds would merge the small segments that the first round leaves, and with them the gaps.
        compact_from_now_on(admin)
        for topic in COMPACTED_TOPICS:
            line = f"{topic} 0 {int(segments(data / f'{topic}-0')[-1].removesuffix('.log'))}"
            eventually(lambda line=line: line in checkpoint.read_text().splitlines(), timeout_s=60)  # type: ignore[misc]
        seen = {topic: read_all(kafka.address, topic) for topic in TOPICS}
    return data, seen


def compact_from_now_on(admin: AdminClient) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry]) for topic in COMPACTED_TOPICS]
    for change in admin.incremental_alter_configs(resources).values():
        change.result(60)


def adopt(broker: BrokerProcess, data: Path) -> None:
    """Create the topics, and replace their partitions by Kafka's."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    new = [NewTopic(topic, 1, 1, config=config) for topic, config in TOPICS.items()]
    for creation in admin.create_topics(new).values():
        creation.result(60)
    compact_from_now_on(admin)
    broker.terminate()
    for topic in TOPICS:
        shutil.rmtree(broker.data_dir / f"{topic}-0", ignore_errors=True)
        shutil.copytree(data / f"{topic}-0", broker.data_dir / f"{topic}-0")


def latest(seen: Seen) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in seen}


def test_they_are_served_through_kills_and_compactions(stored: tuple[Path, dict[str, Seen]], tmp_path: Path) -> None:
    data, expected = stored
    assert gaps(data / "plain-0"), "Kafka's compaction has left no gap at the end of a segment"
    with BrokerProcess(tmp_path, "--set", "log.cleaner.backoff.ms=100") as broker:
        adopt(broker, data)
        assert inspect(str(broker.data_dir), RealFileSystem()) == []
        broker.start()
        for _ in range(3):
            seen = {topic: read_all(broker.address, topic) for topic in TOPICS}
            for topic in COMPACTED_TOPICS:
                assert latest(seen[topic]) == latest(expected[topic])
            # Kafka's checkpoint of start offsets stays behind, so the log begins with its first segment.
            assert [record for record in seen["shortened"] if record[0] >= RECORDS // 2] == expected["shortened"]
            broker.kill9()
            broker.start()
        fill(broker.address, 3_000, "another")
        for topic in COMPACTED_TOPICS:
            merged = broker.data_dir / f"{topic}-0" / segments(data / f"{topic}-0")[1]
            eventually(lambda merged=merged: not merged.exists(), timeout_s=60)  # type: ignore[misc]
        seen = {topic: read_all(broker.address, topic) for topic in TOPICS}
        broker.kill9()
        broker.start()
        again = {topic: read_all(broker.address, topic) for topic in TOPICS}
        for topic in TOPICS:
            assert latest(again[topic]) == latest(seen[topic])
            assert set(latest(expected[topic])) <= set(latest(again[topic])), "a key was lost"
        assert again["shortened"] == seen["shortened"]
        broker.terminate()
        assert inspect(str(broker.data_dir), RealFileSystem()) == []


def gaps(directory: Path) -> list[int]:
    """The end offsets of the finished segments that end before the next segment begins."""
    fs, names = RealFileSystem(), segments(directory)
    found = []
    for name, following in itertools.pairwise(names):
        segment = LogSegment(fs, str(directory), int(name.removesuffix(".log")), created_ms=0)
        segment.size = (directory / name).stat().st_size
        end_offset = segment.scanned_offsets().stop
        segment.release()
        if end_offset < int(following.removesuffix(".log")):
            found.append(end_offset)
    return found
