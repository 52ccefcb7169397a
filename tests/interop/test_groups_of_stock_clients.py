"""Groups of unmodified librdkafka, aiokafka and kafka-python clients, on oncelog and (with --kafka) on Apache Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonTopicPartition
from support.broker import BrokerProcess
from support.kafka_python import LEAVES_SOCKETS
from support.reading import offset_of, partition_of

pytestmark = LEAVES_SOCKETS

Fresh = Callable[[str], str]
PARTITIONS = 4
PER_PARTITION = 25
TOTAL = PARTITIONS * PER_PARTITION
WAIT_S = 40


def fill(address: str, topic: str) -> None:
    """Create the topic with PER_PARTITION records in each partition."""
    admin = AdminClient({"bootstrap.servers": address})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
        created.result(20)
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": address})
    for partition in range(PARTITIONS):
        for number in range(PER_PARTITION):
            producer.produce(
                topic,
                f"{partition}-{number}",
                partition=partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
    assert producer.flush(20) == 0
    assert failures == []


@pytest.fixture
def topic(bootstrap: str, fresh_name: Fresh) -> str:
    name = fresh_name("topic")
    fill(bootstrap, name)
    return name


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Callable[..., Consumer]]:
    """Make librdkafka consumers."""
    with ExitStack() as stack:

        def make(group: str, *, address: str = bootstrap, **settings: Any) -> Consumer:
            dotted = {name.replace("_", "."): value for name, value in settings.items()}
            made = Consumer(
                {
                    "bootstrap.servers": address,
                    "group.id": group,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "heartbeat.interval.ms": 200,
                    **dotted,
                }
            )
            stack.callback(made.close)
            return made

        yield make


def poll(consumers: list[Consumer], done: Callable[[], bool]) -> list[tuple[int, int]]:
    """Poll all of them until `done`; the (partition, offset) of what came."""
    seen = []
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, [sorted(p.partition for p in c.assignment()) for c in consumers]
        for one in consumers:
            for message in one.consume(50, 0.02):
                assert message.error() is None, message.error()
                seen.append((partition_of(message), offset_of(message)))
    return seen


def poll_count(one: Consumer, count: int) -> list[tuple[int, int]]:
    """Exactly that many records."""
    seen: list[tuple[int, int]] = []
    deadline = time.monotonic() + WAIT_S
    while len(seen) < count:
        assert time.monotonic() < deadline, len(seen)
        message = one.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            seen.append((partition_of(message), offset_of(message)))
    return seen


def owned(*consumers: Consumer) -> list[int]:
    """How many partitions each has."""
    return [len(one.assignment()) for one in consumers]


# ---- librdkafka


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_librdkafka_members_share_partitions_and_take_over_when_one_leaves(
    consumer: Callable[..., Consumer], fresh_name: Fresh, topic: str, strategy: str
) -> None:
    group = fresh_name("group")
    one = consumer(group, partition_assignment_strategy=strategy)
    one.subscribe([topic])
    seen = poll([one], lambda: owned(one) == [4])
    two = consumer(group, partition_assignment_strategy=strategy)
    two.subscribe([topic])
    seen += poll([one, two], lambda: owned(one, two) == [2, 2])
    two.unsubscribe()
    poll([one, two], lambda: owned(one, two) == [4, 0])


def test_librdkafka_resumes_where_it_committed(
    consumer: Callable[..., Consumer], fresh_name: Fresh, topic: str
) -> None:
    group = fresh_name("group")
    first = consumer(group)
    first.subscribe([topic])
    seen = poll_count(first, 60)
    first.commit(asynchronous=False)
    first.close()
    second = consumer(group)
    second.subscribe([topic])
    seen += poll_count(second, TOTAL - 60)
    assert len(set(seen)) == len(seen) == TOTAL
    assert second.poll(0.3) is None


def test_librdkafka_static_member_restarts_without_a_rebalance(
    consumer: Callable[..., Consumer], fresh_name: Fresh, topic: str
) -> None:
    group = fresh_name("group")
    members = [consumer(group, group_instance_id=name, session_timeout_ms=30_000) for name in ("a", "b")]
    rebalances: list[list[int]] = []
    for member in members:
        member.subscribe([topic], on_assign=lambda _, parts: rebalances.append(sorted(p.partition for p in parts)))
    poll(members, lambda: owned(*members) == [2, 2])
    before = sorted(part.partition for part in members[1].assignment())
    members[1].close()
    count = len(rebalances)
    back = consumer(group, group_instance_id="b", session_timeout_ms=30_000)
    back.subscribe([topic], on_assign=lambda _, parts: rebalances.append(sorted(p.partition for p in parts)))
    poll([members[0], back], lambda: owned(members[0], back) == [2, 2])
    assert rebalances[count:] == [before]  # nobody else was asked


def test_librdkafka_static_member_is_fenced_by_its_double(
    consumer: Callable[..., Consumer], fresh_name: Fresh, topic: str
) -> None:
    group = fresh_name("group")
    first = consumer(group, group_instance_id="a")
    first.subscribe([topic])
    poll([first], lambda: owned(first) == [4])
    second = consumer(group, group_instance_id="a")
    second.subscribe([topic])
    poll([second], lambda: owned(second) == [4])
    deadline = time.monotonic() + WAIT_S
    fenced = False
    while not fenced:
        assert time.monotonic() < deadline
        try:
            message = first.poll(0.1)
        except KafkaException as error:
            fenced = "FENCED" in str(error) or "fenced" in str(error)
        else:
            fenced = message is not None and message.error() is not None and "fenced" in str(message.error()).lower()


def test_librdkafka_admin_sees_and_deletes_groups(
    bootstrap: str, consumer: Callable[..., Consumer], fresh_name: Fresh, topic: str
) -> None:
    group = fresh_name("group")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    one = consumer(group, client_id="me")
    one.subscribe([topic])
    poll_count(one, 10)
    one.commit(offsets=[TopicPartition(topic, 1, 7, "note")], asynchronous=False)
    listed = {found.group_id: found for found in admin.list_consumer_groups().result(20).valid}
    assert listed[group].state is ConsumerGroupState.STABLE
    described = admin.describe_consumer_groups([group])[group].result(20)
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    (member,) = described.members
    assert member.client_id == "me"
    assert sorted(part.partition for part in member.assignment.topic_partitions) == [0, 1, 2, 3]
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(20)
    assert [(part.partition, part.offset, part.metadata) for part in found.topic_partitions] == [(1, 7, "note")]
    with pytest.raises(KafkaException, match="NON_EMPTY"):
        admin.delete_consumer_groups([group])[group].result(20)
    one.close()
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 3)])]
    admin.alter_consumer_group_offsets(wanted)[group].result(20)
    again = consumer(group)
    assert again.committed([TopicPartition(topic, 1)], 20)[0].offset == 3
    admin.delete_consumer_groups([group])[group].result(20)
    assert again.committed([TopicPartition(topic, 1)], 20)[0].offset < 0


def test_librdkafka_moves_records_and_offsets_in_one_transaction(
    bootstrap: str, consumer: Callable[..., Consumer], fresh_name: Fresh, topic: str
) -> None:
    group = fresh_name("group")
    one = consumer(group)
    one.subscribe([topic])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": fresh_name("id")})
    producer.init_transactions(20)
    moved = 0
    for commits in (False, True):
        producer.begin_transaction()
        batch = poll_count(one, 40)
        producer.send_offsets_to_transaction(one.position(one.assignment()), one.consumer_group_metadata(), 20)
        if commits:
            producer.commit_transaction(20)
            moved += len(batch)
        else:
            producer.abort_transaction(20)
            for part in one.committed(one.assignment(), 20):
                one.seek(TopicPartition(topic, part.partition, max(part.offset, 0)))
    committed = one.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], 20)
    assert sum(max(part.offset, 0) for part in committed) == moved == 40


@pytest.mark.oncelog_only(reason="kills its own broker")
@pytest.mark.parametrize("crash", [True, False], ids=["kill -9", "restart"])
def test_librdkafka_members_go_on_after_the_broker_was_gone(
    tmp_path: Path, consumer: Callable[..., Consumer], crash: bool
) -> None:
    with BrokerProcess(tmp_path) as broker:
        fill(broker.address, "t")
        settings = {
            "address": broker.address,
            "session_timeout_ms": 20_000,
            "heartbeat_interval_ms": 200,
            "reconnect_backoff_max_ms": 200,
            "reconnect_backoff_ms": 50,
        }
        members = [consumer("g", **settings) for _ in range(2)]
        rebalances: list[str] = []
        for member in members:
            member.subscribe(
                ["t"],
                on_assign=lambda *_: rebalances.append("assigned"),
                on_revoke=lambda *_: rebalances.append("revoked"),
            )
        poll(members, lambda: owned(*members) == [2, 2])
        for member in members:
            member.commit(
                offsets=[TopicPartition("t", p.partition, 5) for p in member.assignment()], asynchronous=False
            )
        before = list(rebalances)
        if crash:
            broker.kill9()
            broker.start()
        else:
            broker.restart()
        until = time.monotonic() + 3
        poll(members, lambda: time.monotonic() > until)
        assert rebalances == before, "a restart is not a rebalance"
        for member in members:
            assert [part.offset for part in member.committed(member.assignment(), 20)] == [5, 5]
            member.commit(
                offsets=[TopicPartition("t", p.partition, 6) for p in member.assignment()], asynchronous=False
            )


# ---- aiokafka


def aio(address: str, group: str, *topics: str, **settings: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        **settings,
    )


async def aio_count(consumer: AIOKafkaConsumer, count: int) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []
    async with asyncio.timeout(WAIT_S):
        while len(seen) < count:
            for messages in (await consumer.getmany(timeout_ms=100, max_records=count - len(seen))).values():
                seen += [(message.partition, message.offset) for message in messages]
    return seen


async def test_aiokafka_members_share_partitions_and_resume(bootstrap: str, fresh_name: Fresh, topic: str) -> None:
    group = fresh_name("group")
    one = aio(bootstrap, group, topic, partition_assignment_strategy=[StickyPartitionAssignor])
    async with one:
        seen = await aio_count(one, 30)
        await one.commit()
        two = aio(bootstrap, group, topic, partition_assignment_strategy=[StickyPartitionAssignor])
        async with two:
            async with asyncio.timeout(WAIT_S):
                while (len(one.assignment()), len(two.assignment())) != (2, 2):
                    await asyncio.gather(one.getmany(timeout_ms=50), two.getmany(timeout_ms=50))
    async with aio(bootstrap, group, topic) as again:
        seen += await aio_count(again, TOTAL - 30)
    assert len(set(seen)) == len(seen) == TOTAL


async def test_aiokafka_moves_offsets_in_a_transaction(bootstrap: str, fresh_name: Fresh, topic: str) -> None:
    group = fresh_name("group")
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=fresh_name("id"))
    async with producer, aio(bootstrap, group, topic, isolation_level="read_committed") as one:
        await aio_count(one, 10)
        where = AioTopicPartition(topic, 0)
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({where: 9}, group)
        await producer.abort_transaction()
        assert await one.committed(where) is None
        async with producer.transaction():
            await producer.send_offsets_to_transaction({where: 4}, group)
        # This client cannot ask for stable offsets, and a commit is told when it is decided, before it shows.
        async with asyncio.timeout(WAIT_S):
            while await one.committed(where) != 4:
                await asyncio.sleep(0.02)


async def test_aiokafka_admin_sees_groups(bootstrap: str, fresh_name: Fresh, topic: str) -> None:
    group = fresh_name("group")
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        async with aio(bootstrap, group, topic) as one:
            await aio_count(one, 10)
            await one.commit({AioTopicPartition(topic, 2): 5})
            assert (group, "consumer") in await admin.list_consumer_groups()
            assert await admin.list_consumer_group_offsets(group) == {AioTopicPartition(topic, 2): (5, "")}
            described: Any
            (described,) = await admin.describe_consumer_groups([group])
            assert described.groups[0][2] == "Stable"
    finally:
        await admin.close()


# ---- kafka-python


def python(address: str, group: str, *topics: str, **settings: Any) -> KafkaConsumer:
    return KafkaConsumer(
        *topics,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        **settings,
    )


def python_count(consumer: KafkaConsumer, count: int) -> list[tuple[int, int]]:
    """Poll for `count` records.

    Each poll has the whole time: kafka-python 3.0 never finishes a join that outlives the poll which began it, where a
    change of metadata was the reason for that join.
    """
    seen: list[tuple[int, int]] = []
    while len(seen) < count:
        polled = consumer.poll(WAIT_S * 1000, max_records=count - len(seen))
        assert polled, len(seen)
        for messages in polled.values():
            seen += [(message.partition, message.offset) for message in messages]
    return seen


def python_poll_until_assigned(consumer: KafkaConsumer, count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(consumer.assignment()) != count:
        assert time.monotonic() < deadline, consumer.assignment()
        consumer.poll(1000)


def test_kafka_python_members_share_partitions_and_resume(bootstrap: str, fresh_name: Fresh, topic: str) -> None:
    group = fresh_name("group")
    with closing(python(bootstrap, group, topic)) as one:
        seen = python_count(one, 30)
        one.commit()
        # each member in its own thread: it waits in its poll until the other has joined
        with closing(python(bootstrap, group, topic)) as two, ThreadPoolExecutor(2) as threads:
            for shared in [threads.submit(python_poll_until_assigned, member, 2) for member in (one, two)]:
                shared.result()
    with closing(python(bootstrap, group, topic)) as again:
        seen += python_count(again, TOTAL - 30)
    assert len(set(seen)) == len(seen) == TOTAL


def test_kafka_python_commits_without_membership_and_its_admin_sees_it(
    bootstrap: str, fresh_name: Fresh, topic: str
) -> None:
    group = fresh_name("group")
    where = PythonTopicPartition(topic, 1)
    with closing(python(bootstrap, group)) as one, closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        one.assign([where])
        one.commit({where: OffsetAndMetadata(7, "note", -1)})
        assert one.committed(where) == 7
        found = admin.list_group_offsets(group)  # pyright: ignore[reportAttributeAccessIssue]  # its types lack it
        assert found[group][where].offset == 7
