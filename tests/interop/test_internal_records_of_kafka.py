"""The records that Apache Kafka keeps in its internal topics mean the same to us, and we write the same bytes.

kio, the oracle of all other definitions, does not know these; so the stock broker itself is asked.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from oncelog.protocol import codec
from oncelog.protocol.batch_header import iter_batches
from oncelog.protocol.messages.group_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from oncelog.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from oncelog.protocol.records import decode_batch
from oncelog.protocol.schema import Message
from support.apache_kafka import ApacheKafka

VALUES: dict[type, type[Message]] = {
    OffsetCommitKey: OffsetCommitValue,
    GroupMetadataKey: GroupMetadataValue,
    TransactionLogKey: TransactionLogValue,
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a stock broker that ran two transactions, one with offsets, and a group."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("java and mvn are not installed")
    few = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    directory = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(directory, few) as kafka:
        producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": "ïd", "linger.ms": 0})
        producer.init_transactions(60)
        settings = {"bootstrap.servers": kafka.address, "group.id": "group-1", "auto.offset.reset": "earliest"}
        producer.begin_transaction()
        producer.produce("numbers", b"1")
        producer.commit_transaction(60)
        consumer = Consumer(settings)
        consumer.subscribe(["numbers"])
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        consumer.commit(message=message, asynchronous=False)
        producer.begin_transaction()
        producer.produce("numbers", b"2")
        offsets = [TopicPartition("numbers", 0, 1, "note")]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
        producer.abort_transaction(60)
        consumer.close()
    return directory / "data"


def records(data: Path, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield key and value of every record of a topic's only partition, control records apart."""
    for segment in sorted((data / f"{topic}-0").glob("*.log")):
        log = segment.read_bytes()
        for position, header in iter_batches(log):
            if not header.is_control:
                for record in decode_batch(log, position, header):
                    assert record.key is not None
                    yield record.key, record.value


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("__transaction_state", {TransactionLogKey}),
        ("__consumer_offsets", {OffsetCommitKey, GroupMetadataKey}),
    ],
)
def test_kafkas_own_records_survive_being_read_and_written(data: Path, topic: str, expected: set[type]) -> None:
    seen = set()
    for raw_key, raw_value in records(data, topic):
        key = codec.decode_record_key(raw_key, VALUES)
        assert isinstance(key, Message)
        assert codec.encode_record_key(key) == raw_key
        seen.add(type(key))
        if raw_value is not None:
            value = codec.decode_record_value(VALUES[type(key)], raw_value)
            assert value.unknown_tags == ()
            assert codec.encode_record_value(value, codec.record_version(raw_value)) == raw_value
    assert seen == expected


def test_a_transaction_is_read_as_what_it_was(data: Path) -> None:
    values = [
        codec.decode_record_value(TransactionLogValue, value)
        for key, value in records(data, "__transaction_state")
        if codec.decode_record_key(key, [TransactionLogKey]) == TransactionLogKey("ïd") and value is not None
    ]
    assert {value.transaction_timeout_ms for value in values} == {60_000}
    assert len({value.producer_id for value in values}) == 1
    written = [topic.topic for value in values for topic in value.transaction_partitions or []]
    assert set(written) == {"numbers", "__consumer_offsets"}


def test_a_commit_is_read_as_what_it_was(data: Path) -> None:
    commits = [
        (value.offset, value.metadata)
        for raw_key, raw_value in records(data, "__consumer_offsets")
        if codec.decode_record_key(raw_key, [OffsetCommitKey]) == OffsetCommitKey("group-1", "numbers", 0) and raw_value
        for value in [codec.decode_record_value(OffsetCommitValue, raw_value)]
    ]
    assert (1, "") in commits
    assert (1, "note\0") in commits  # confluent-kafka sends the terminator along
