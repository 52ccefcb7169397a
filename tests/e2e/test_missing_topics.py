"""Calls that name a topic or partition which does not exist fail soon, and say so, whatever the timeouts are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from oncelog import (
    AbortTransactionSpec,
    Admin,
    Broker,
    Consumer,
    ConsumerGroupMetadata,
    ConsumerRecord,
    KafkaError,
    Processor,
    Producer,
    TopicPartition,
    UnknownPartitionError,
    UnknownTopicError,
)
from oncelog.client.processor import ProcessorTransaction
from oncelog.protocol.errors import ErrorCode

WAIT_S = 20.0
GONE = TopicPartition("nope", 0)
BEYOND = TopicPartition("there", 7)


@pytest.fixture
async def bootstrap() -> AsyncIterator[str]:
    async with Broker(auto_create_topics_enable=False) as broker, Admin(bootstrap_servers=broker.address) as admin:
        await admin.create_topic("there", 1)
        yield broker.address


ADMIN: dict[str, Callable[[Admin, TopicPartition], Awaitable[Any]]] = {
    "describe_topics": lambda a, _: a.describe_topics(["nope"]),
    "delete_topics": lambda a, _: a.delete_topics(["nope"]),
    "create_partitions": lambda a, _: a.create_partitions({"nope": 3}),
    "delete_records": lambda a, p: a.delete_records({p: -1}),
    "list_offsets": lambda a, p: a.list_offsets({p: -1}),
    "list_offsets_or_errors": lambda a, p: a.list_offsets_or_errors({p: -1}),
    "describe_producers": lambda a, p: a.describe_producers([p]),
    "abort_transaction": lambda a, p: a.abort_transaction(AbortTransactionSpec(p, 1, 0, 0)),
    "alter_group_offsets": lambda a, p: a.alter_group_offsets("g", {p: 1}),
}
OF_TOPICS = {"describe_topics", "delete_topics", "create_partitions"}


@pytest.mark.parametrize("partition", [GONE, BEYOND], ids=["no topic", "no partition"])
@pytest.mark.parametrize("name", ADMIN)
async def test_an_admin_client_says_what_is_missing(bootstrap: str, name: str, partition: TopicPartition) -> None:
    if name in OF_TOPICS and partition is BEYOND:
        partition = GONE
    async with asyncio.timeout(WAIT_S), Admin(bootstrap_servers=bootstrap) as admin:
        with pytest.raises(KafkaError, match=partition.topic) as failed:
            await ADMIN[name](admin, partition)
        assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "call again later" not in str(failed.value)
        assert "create" in str(failed.value)
        assert "nope" not in admin._calls.cluster._tracked, "it is not asked for in every refresh from now on"


@pytest.mark.parametrize("partition", [GONE, BEYOND], ids=["no topic", "no partition"])
async def test_a_commit_says_what_is_missing(bootstrap: str, partition: TopicPartition) -> None:
    async with asyncio.timeout(WAIT_S), Consumer(bootstrap_servers=bootstrap, group_id="g") as consumer:
        with pytest.raises(KafkaError, match=f"nothing was committed, because {partition} does not exist") as failed:
            await consumer.commit({partition: 1})
        assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "call again later" not in str(failed.value)


async def test_offsets_of_a_transaction_say_what_is_missing(bootstrap: str) -> None:
    async with asyncio.timeout(WAIT_S), Producer(bootstrap_servers=bootstrap, transactional_id="x") as producer:
        with pytest.raises(KafkaError, match="does not exist") as failed:
            async with producer.transaction() as txn:
                await txn.send_offsets({GONE: 1}, ConsumerGroupMetadata("g"))
        assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with producer.transaction() as txn:
            await txn.send("there", b"goes on")


async def test_a_partition_that_a_topic_does_not_have_is_named(bootstrap: str) -> None:
    topic = BEYOND.topic
    async with (
        asyncio.timeout(WAIT_S),
        Admin(bootstrap_servers=bootstrap) as admin,
        Producer(bootstrap_servers=bootstrap, transactional_id="x") as producer,
    ):
        await producer.init_transactions()
        with pytest.raises(UnknownPartitionError, match="has only partitions 0 to 0, not 9") as refused:
            await producer.begin_transaction([(topic, 9), (topic, 0)])
        assert str(refused.value).endswith("(correct the partition's number, or add partitions to the topic)")
        await admin.create_partitions({topic: 10})
        await producer.begin_transaction([(topic, 9), (topic, 0)])  # it asks before it refuses
        await producer.send(topic, b"there now", partition=9)
        await producer.commit_transaction()


async def test_a_record_for_a_partition_that_was_added_a_moment_ago_is_not_refused(bootstrap: str) -> None:
    topic = BEYOND.topic
    async with (
        asyncio.timeout(WAIT_S),
        Admin(bootstrap_servers=bootstrap) as admin,
        Producer(bootstrap_servers=bootstrap) as producer,
        Producer(bootstrap_servers=bootstrap, transactional_id="x") as transactional,
    ):
        await producer.send(topic, b"known", partition=0)
        async with transactional.transaction() as txn:
            await txn.send(topic, b"known", partition=0)
        await admin.create_partitions({topic: 3})
        assert (await (await producer.enqueue(topic, b"new", partition=2))).partition == 2
        async with transactional.transaction() as txn:
            assert (await (await txn.enqueue(topic, b"new", partition=1))).partition == 1
        with pytest.raises(UnknownPartitionError, match="its known partitions are 0 to 2"):
            await producer.enqueue(topic, b"nowhere", partition=3)


@pytest.mark.parametrize("group_aware", [True, False], ids=["group-aware", "per-partition"])
@pytest.mark.parametrize(
    ("output", "failure", "text"),
    [
        (GONE, UnknownTopicError, "topic 'nope' does not exist, and was not created within 500 ms"),
        (BEYOND, UnknownPartitionError, "topic 'there' has no partition 7"),
    ],
    ids=["no topic", "no partition"],
)
async def test_a_processor_ends_if_its_output_has_nowhere_to_go(
    bootstrap: str, output: TopicPartition, failure: type[KafkaError], text: str, group_aware: bool
) -> None:
    def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for record in records:
            transaction.send(output.topic, record.value, partition=output.partition)

    async with asyncio.timeout(WAIT_S):
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send("there", b"input")
        processor = Processor(
            bootstrap_servers=bootstrap,
            topics=["there"],
            group_id="g",
            transactional_id="x",
            consumer_group_aware_transaction=group_aware,
            process=process,
            producer_settings={"max_block_ms": 500},
            max_batch_ms=1,
        )
        async with processor:
            with pytest.raises(failure, match=text) as ended:
                await processor.run()
    assert "abort the transaction" not in str(ended.value)
