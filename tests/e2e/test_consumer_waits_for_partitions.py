"""A consumer reads what comes to be there soon after it does, and meanwhile all the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import pytest
from oncelog import Admin, Broker, Consumer, Producer, TopicPartition
from oncelog.client.consumer import OffsetOutOfRangeError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from oncelog.protocol.schema import NO_UUID
from support.proxy import FaultProxy

WAIT_S = 20.0
"""Far below the time after which metadata are asked for without a reason."""
ALWAYS = 1_000_000


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with Broker(auto_create_topics_enable=False) as broker, FaultProxy(broker.address) as proxy:
        yield proxy


@pytest.fixture
async def admin(proxy: FaultProxy) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=proxy.address) as admin:
        yield admin


def offsets_of_first_are_pending(answer: OffsetFetchResponse) -> None:
    for group in answer.groups:
        for topic in group.topics:
            for partition in topic.partitions:
                if partition.partition_index == 0:
                    partition.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT


async def send(proxy: FaultProxy, topic: str, value: bytes, partition: int = 0) -> None:
    async with Producer(bootstrap_servers=proxy.address) as producer:
        await producer.send(topic, value, partition=partition)


async def values(consumer: Consumer, count: int) -> list[bytes | None]:
    read: list[bytes | None] = []
    async with asyncio.timeout(WAIT_S):
        while len(read) < count:
            read += [record.value for record in await consumer.poll(500)]
    return sorted(read, key=str)


async def until_missed(consumer: Consumer, topic: str) -> None:
    """Poll until the group has no partition of a topic that does not exist, and goes on without it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            await consumer.poll(100)
            known = consumer._cluster.metadata.topics.get(topic)
            missing = known is not None and known.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if missing and consumer.group_metadata().generation_id >= 0 and not consumer.assignment():
                return


async def test_a_subscribed_topic_is_read_soon_after_it_is_created(proxy: FaultProxy, admin: Admin) -> None:
    async with Consumer(
        bootstrap_servers=proxy.address, group_id="g", topics=["late"], auto_offset_reset="earliest"
    ) as consumer:
        await until_missed(consumer, "late")
        await admin.create_topic("late", 1)
        await send(proxy, "late", b"first")
        assert await values(consumer, 1) == [b"first"]


async def test_a_subscribed_topic_is_read_soon_after_it_is_created_anew(proxy: FaultProxy, admin: Admin) -> None:
    await admin.create_topic("twice", 1)
    await send(proxy, "twice", b"old")
    async with Consumer(
        bootstrap_servers=proxy.address, group_id="g", topics=["twice"], auto_offset_reset="earliest"
    ) as consumer:
        assert await values(consumer, 1) == [b"old"]
        await admin.delete_topics(["twice"])
        await until_missed(consumer, "twice")
        await admin.create_topic("twice", 1)
        await send(proxy, "twice", b"new")
        assert await values(consumer, 1) == [b"new"]


@pytest.mark.parametrize("policy", ["earliest", "none"])
async def test_a_topic_made_anew_between_two_refreshes_is_not_read_from_the_old_position(
    proxy: FaultProxy, admin: Admin, policy: Literal["earliest", "none"]
) -> None:
    partition = TopicPartition("twice", 0)
    await admin.create_topic("twice", 1)
    for number in range(3):
        await send(proxy, "twice", b"old %d" % number)
    async with Consumer(bootstrap_servers=proxy.address, auto_offset_reset=policy) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert await values(consumer, 3) == [b"old 0", b"old 1", b"old 2"]
        proxy.open.clear()  # the consumer notices nothing until all is there
        direct = proxy.target_address
        async with Admin(bootstrap_servers=direct) as other, Producer(bootstrap_servers=direct) as producer:
            await other.delete_topics(["twice"])
            await other.create_topic("twice", 1)
            for number in range(5):
                await producer.send("twice", b"new %d" % number)
        proxy.open.set()
        proxy.break_connections()
        if policy == "none":
            with pytest.raises(OffsetOutOfRangeError, match="created again"):
                await values(consumer, 1)
            consumer.seek(partition, 0)
        assert await values(consumer, 5) == [b"new %d" % number for number in range(5)]


async def test_a_topic_whose_id_a_broker_does_not_know_is_not_taken_for_a_new_one(
    proxy: FaultProxy, admin: Admin
) -> None:
    """In a cluster of several releases, one broker may give topic ids and another one, before Kafka 2.8, none."""
    await admin.create_topic("named", 1)
    await send(proxy, "named", b"first")
    hidden = asyncio.Event()

    def without_ids(answer: MetadataResponse) -> None:
        for topic in answer.topics:
            topic.topic_id = NO_UUID
        hidden.set()

    async with (
        asyncio.timeout(60),
        Consumer(bootstrap_servers=proxy.address, auto_offset_reset="none", metadata_max_age_ms=100) as consumer,
    ):
        consumer.assign([("named", 0)])
        consumer.seek(TopicPartition("named", 0), 0)
        assert await values(consumer, 1) == [b"first"]
        proxy.change(MetadataRequest, without_ids, times=1000)
        while not hidden.is_set():
            await consumer.poll(50)
        for value in b"second", b"third":  # a fetch that was waiting already may bring the second
            await send(proxy, "named", value)
            assert await values(consumer, 1) == [value]


def without_leaders(answer: MetadataResponse) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.error_code, partition.leader_id = ErrorCode.LEADER_NOT_AVAILABLE, -1


async def test_a_partition_is_read_soon_after_it_has_a_leader_again(proxy: FaultProxy, admin: Admin) -> None:
    await admin.create_topic("t", 1)
    await send(proxy, "t", b"before")
    async with Consumer(bootstrap_servers=proxy.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        assert await values(consumer, 1) == [b"before"]
        proxy.change(MetadataRequest, without_leaders, times=ALWAYS)
        proxy.break_connections()
        async with asyncio.timeout(WAIT_S):
            while consumer._cluster.leader_of(("t", 0)) is not None:
                await consumer.poll(100)
        assert await consumer.poll(2000) == [], "by now nothing fails any more that would ask for metadata"
        proxy.clear_faults()
        await send(proxy, "t", b"after")
        assert await values(consumer, 1) == [b"after"]


def first_is_offline(answer: ListOffsetsResponse) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.partition_index == 0:
                partition.error_code, partition.offset = ErrorCode.KAFKA_STORAGE_ERROR, -1


async def test_a_partition_that_is_offline_does_not_hold_up_the_positions_of_others(
    proxy: FaultProxy, admin: Admin
) -> None:
    await admin.create_topic("t", 3)
    for partition in range(3):
        await send(proxy, "t", b"%d" % partition, partition)
    proxy.change(ListOffsetsRequest, first_is_offline, times=ALWAYS)
    async with Consumer(bootstrap_servers=proxy.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        assert await values(consumer, 1) == [b"1"]
        consumer.assign([("t", 0), ("t", 1), ("t", 2)])
        assert await values(consumer, 1) == [b"2"]
        proxy.clear_faults()
        assert await values(consumer, 1) == [b"0"]


async def test_offsets_that_a_transaction_has_pending_do_not_hold_up_other_partitions(
    proxy: FaultProxy, admin: Admin
) -> None:
    await admin.create_topic("t", 3)
    for partition in range(3):
        await send(proxy, "t", b"%d" % partition, partition)
    await admin.alter_group_offsets("g", {TopicPartition("t", 1): 0})
    proxy.change(OffsetFetchRequest, offsets_of_first_are_pending, times=ALWAYS)
    async with Consumer(
        bootstrap_servers=proxy.address, group_id="g", topics=["t"], auto_offset_reset="earliest"
    ) as consumer:
        assert await values(consumer, 2) == [b"1", b"2"]
        proxy.clear_faults()
        assert await values(consumer, 1) == [b"0"]
