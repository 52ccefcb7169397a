"""Producers initialised for a group's assignment: who may commit what, with the extension and, falling back, without.

On our broker and, with --kafka, on Apache Kafka, where the bundled client has to fall back by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from oncelog import (
    AbortableError,
    Admin,
    ConcurrentProducerCommitError,
    ConfigError,
    Consumer,
    ConsumerAssignment,
    ConsumerGroupMetadata,
    GroupAssignment,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    PendingTransactionError,
    Producer,
    ProducerFencedError,
    RebalanceListener,
    TopicPartition,
    UnsupportedVersionError,
)
from oncelog.client.consumer import RebalanceInProgressError
from support.broker import BrokerProcess
from support.proxy import FaultProxy
from support.reading import committed_offset, make_topic, values

Fresh = Callable[[str], str]
FAST: dict[str, Any] = {
    "retry_backoff_ms": 5,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 50,
    "linger_ms": 0,
}
WAIT_S = 30.0
PARTITIONS = 4


@pytest.fixture
def extended(request: pytest.FixtureRequest) -> bool:
    """Whether the broker has the feature."""
    return not request.config.getoption("--kafka")


@pytest.fixture(params=["offered", "hidden", "transaction.version=1"])
async def address(bootstrap: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The broker as it is, and through a proxy that hides the feature, or the newer protocol of transactions."""
    if request.param == "offered":
        yield bootstrap
        return
    async with FaultProxy(bootstrap) as proxy:
        if request.param == "hidden":
            proxy.features["group.aware.transaction"] = 0
        else:
            proxy.features["transaction.version"] = 1
        yield proxy.address


@pytest.fixture
def aware(extended: bool, request: pytest.FixtureRequest) -> bool:
    """Whether a producer at `address` is to use the feature."""
    return extended and request.node.callspec.params["address"] != "hidden"


class Member(RebalanceListener):
    """Initialises its producer for each assignment, and copies records in one transaction per poll."""

    def __init__(self, consumer: Consumer, producer: Producer, target: str) -> None:
        self.consumer = consumer
        self.producer = producer
        self.target = target
        self.assignments: list[ConsumerAssignment] = []

    async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        assignment = self.consumer.group_assignment()
        self.consumer.forget_positions()
        try:
            await self.producer.init_transactions(assignment)
        except IllegalGenerationError:
            return  # the next rebalance is on its way, and the producer is of no use until then
        self.assignments.append(assignment)

    async def copy(self, timeout_ms: float = 500) -> int:
        """Copy what one poll gives; what cannot be committed is read again."""
        arrived = await self.consumer.getmany(timeout_ms)
        if not arrived:
            return 0
        try:
            async with self.producer.transaction() as txn:
                for records in arrived.values():
                    for record in records:
                        await txn.enqueue(self.target, record.value, partition=record.partition)
                await txn.send_offsets({one: self.consumer.consumed_offset(one) for one in arrived})
        except (AbortableError, ProducerFencedError, ConcurrentProducerCommitError, IllegalStateError):
            if not self.producer.ready:
                self.consumer.enforce_rebalance("the producer was fenced")
            self.consumer.forget_positions()
            return 0
        return sum(map(len, arrived.values()))


@asynccontextmanager
async def member(
    address: str, topic: str, target: str, group: str, instance: str | None = None, **settings: Any
) -> AsyncIterator[Member]:
    consumer = Consumer(
        bootstrap_servers=address,
        group_id=group,
        group_instance_id=instance,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=10,
        heartbeat_interval_ms=100,
        max_poll_records=10,
    )
    async with consumer, Producer(bootstrap_servers=address, **FAST, **settings) as producer:
        one = Member(consumer, producer, target)
        consumer.subscribe([topic], listener=one)
        yield one


async def fill(bootstrap: str, topic: str, count: int) -> list[bytes]:
    written = [b"%04d" % number for number in range(count)]
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number, value in enumerate(written):
            await producer.enqueue(topic, value, partition=number % PARTITIONS)
    return written


async def test_members_that_come_and_go_copy_everything_once(
    bootstrap: str, address: str, fresh_name: Fresh, aware: bool
) -> None:
    topic, target = (make_topic(bootstrap, fresh_name(stem), PARTITIONS) for stem in ("in", "out"))
    group, name = fresh_name("group"), fresh_name("txn")
    expected = await fill(bootstrap, topic, 400)
    copied = 0
    async with (
        asyncio.timeout(WAIT_S),
        member(address, topic, target, group, instance="static", transactional_id=f"{name}-1") as first,
    ):
        while copied < 50:
            copied += await first.copy()
        async with member(address, topic, target, group, transactional_id=f"{name}-2") as second:
            while copied < 250:
                copied += sum(await asyncio.gather(first.copy(), second.copy()))
            assert first.producer.group_aware == second.producer.group_aware == aware
        while copied < 400:
            copied += await first.copy()
        assert len({one.generation_id for one in first.assignments}) >= 3
        assert first.assignments[0].partitions == {TopicPartition(topic, index) for index in range(PARTITIONS)}
    assert sorted(values(bootstrap, target)) == expected


async def test_an_outdated_producer_commits_nothing(bootstrap: str, address: str, fresh_name: Fresh) -> None:
    """Its partitions went to another member while its transaction was open."""
    topic, target = (make_topic(bootstrap, fresh_name(stem), PARTITIONS) for stem in ("in", "out"))
    group, name = fresh_name("group"), fresh_name("txn")
    expected = await fill(bootstrap, topic, 40)
    async with member(address, topic, target, group, transactional_id=f"{name}-1") as first:
        while not (arrived := await first.consumer.getmany(500)):
            pass
        await first.producer.begin_transaction()
        first.producer.send(target, b"outdated")
        offsets = {one: first.consumer.consumed_offset(one) for one in arrived}
        await first.consumer.unsubscribe()
        copied = 0
        async with asyncio.timeout(WAIT_S):
            async with member(address, topic, target, group, transactional_id=f"{name}-2") as second:
                while copied < 40:
                    copied += await second.copy()
                with pytest.raises((ProducerFencedError, AbortableError)):
                    await first.producer.send_offsets(offsets)
                with pytest.raises((ProducerFencedError, AbortableError)):
                    await first.producer.commit_transaction()
    assert sorted(values(bootstrap, target)) == expected
    assert sum(committed_offset(bootstrap, group, topic, index) for index in range(PARTITIONS)) == 40


@pytest.mark.oncelog_only(reason="needs the feature")
async def test_a_producer_of_an_older_generation_is_fenced_by_partition(bootstrap: str, fresh_name: Fresh) -> None:
    """Generations of the program's own, no members: only what overlaps is fenced, and everyone may come back."""
    topic, group = make_topic(bootstrap, fresh_name("in"), PARTITIONS), fresh_name("group")
    a, b, c = (TopicPartition(topic, index) for index in range(3))
    settings = {"bootstrap_servers": bootstrap, "transactional_group_id": group, **FAST}
    async with Producer(settings) as old, Producer(settings) as beside, Producer(settings) as new:
        await old.init_transactions(GroupAssignment(1, frozenset({a, b})))
        await beside.init_transactions(GroupAssignment(1, frozenset({c})))
        assert old.transactional_id
        assert old.transactional_id != beside.transactional_id
        await old.begin_transaction()
        await old.send_offsets({a: 1, b: 1})
        await beside.begin_transaction()
        await beside.send_offsets({c: 7})
        await new.init_transactions(GroupAssignment(2, frozenset({b})))
        with pytest.raises(ProducerFencedError):
            await old.commit_transaction()
        await beside.commit_transaction()
        async with new.transaction() as txn:
            await txn.send_offsets({b: 2})
        with pytest.raises(IllegalGenerationError, match=r"poll\(\)"):
            await old.init_transactions(GroupAssignment(1, frozenset({a, b})))
        await old.init_transactions(GroupAssignment(2, frozenset({a})))
        async with old.transaction() as txn:
            await txn.send_offsets({a: 5})
    committed = [committed_offset(bootstrap, group, topic, index) for index in range(3)]
    assert committed == [5, 2, 7]


@pytest.mark.oncelog_only(reason="needs the feature")
async def test_offsets_of_a_partition_that_another_producer_claims_are_refused(
    bootstrap: str, fresh_name: Fresh
) -> None:
    topic, group = make_topic(bootstrap, fresh_name("in"), PARTITIONS), fresh_name("group")
    a, b = (TopicPartition(topic, index) for index in range(2))
    settings = {"bootstrap_servers": bootstrap, "transactional_group_id": group, **FAST}
    async with Producer(settings) as owner, Producer(settings, transactional_id=fresh_name("txn")) as other:
        await owner.init_transactions(GroupAssignment(3, frozenset({a})))
        await other.init_transactions()
        with pytest.raises(ConcurrentProducerCommitError, match=r"CONCURRENT_PRODUCER_COMMIT.*consumer\.group_assign"):
            async with other.transaction() as txn:
                await txn.send_offsets({a: 1})
        await other.init_transactions(GroupAssignment(3, frozenset({b})))
        async with other.transaction() as txn:
            await txn.send_offsets({b: 1})
        async with owner.transaction() as txn:
            await txn.send_offsets({a: 2})
    assert [committed_offset(bootstrap, group, topic, index) for index in range(2)] == [2, 1]


async def test_required_where_it_is_missing(bootstrap: str, fresh_name: Fresh, extended: bool) -> None:
    name, group = fresh_name("txn"), fresh_name("group")
    async with FaultProxy(bootstrap) as proxy:
        proxy.features["group.aware.transaction"] = 0
        for address in {proxy.address, bootstrap}:
            async with Producer(
                bootstrap_servers=address, transactional_id=name, consumer_group_aware_transaction="require", **FAST
            ) as producer:
                if extended and address == bootstrap:
                    await producer.init_transactions(GroupAssignment(), group_id=group)
                    assert producer.group_aware
                    continue
                with pytest.raises(UnsupportedVersionError, match=r"127\.0\.0\.1:\d+ .*group\.aware\.transaction"):
                    await producer.init_transactions(GroupAssignment(), group_id=group)


async def test_the_fall_back_says_what_it_needs(bootstrap: str, fresh_name: Fresh) -> None:
    group = fresh_name("group")
    async with FaultProxy(bootstrap) as proxy:
        proxy.features["group.aware.transaction"] = 0
        async with Producer(bootstrap_servers=proxy.address, transactional_group_id=group, **FAST) as producer:
            with pytest.raises(ConfigError, match=r"set transactional\.id"):
                await producer.init_transactions()
        async with Producer(bootstrap_servers=proxy.address, transactional_id=fresh_name("txn"), **FAST) as producer:
            with pytest.raises(ConfigError, match="the assignment has no member id"):
                await producer.init_transactions(GroupAssignment(1), group_id=group)


async def test_a_plain_producer_becomes_transactional_with_an_assignment(
    bootstrap: str, fresh_name: Fresh, extended: bool
) -> None:
    topic, group = make_topic(bootstrap, fresh_name("in")), fresh_name("group")
    async with Producer(bootstrap_servers=bootstrap, **FAST) as producer:
        await producer.send(topic, b"plain")
        assignment = GroupAssignment(1, frozenset({TopicPartition(topic, 0)}))
        if not extended:
            with pytest.raises(ConfigError, match=r"set transactional\.id"):
                await producer.init_transactions(assignment, group_id=group)
            return
        await producer.init_transactions(assignment, group_id=group)
        async with producer.transaction() as txn:
            txn.send(topic, b"transactional")
            await txn.send_offsets({(topic, 0): 1})
    assert values(bootstrap, topic) == [b"plain", b"transactional"]


async def test_a_fenced_producer_may_take_over_again(bootstrap: str, fresh_name: Fresh) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    settings = {"bootstrap_servers": bootstrap, "transactional_id": name, **FAST}
    async with Producer(settings) as one, Producer(settings) as two:
        for number in range(4):
            new, old = (one, two) if number % 2 else (two, one)
            if not old.ready:
                await old.init_transactions()
            await old.begin_transaction()
            await old.send(topic, b"never")
            await new.init_transactions()
            async with new.transaction() as txn:
                txn.send(topic, b"%d" % number)
            with pytest.raises(KafkaError):
                await old.commit_transaction()
            if number == 3:
                break
            with pytest.raises(ProducerFencedError):
                await old.abort_transaction()
    assert values(bootstrap, topic) == [b"0", b"1", b"2", b"3"]


async def test_a_reader_waits_for_an_undecided_commit_and_then_says_so(
    bootstrap: str, address: str, fresh_name: Fresh
) -> None:
    topic, name, group = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn"), fresh_name("group")
    settings = {"bootstrap_servers": address, "group_id": group, "retry_backoff_ms": 5}
    async with Producer(bootstrap_servers=address, transactional_id=name, **FAST) as producer:
        async with producer.transaction() as txn:
            await txn.send_offsets({(topic, 0): 1}, ConsumerGroupMetadata(group))
        await producer.begin_transaction()
        async with Consumer(settings) as reader, Consumer(settings, default_api_timeout_ms=300) as hasty:
            reader.assign([(topic, 0)])
            hasty.assign([(topic, 0)])
            await producer.send_offsets({(topic, 0): 5}, reader.group_metadata())
            with pytest.raises(PendingTransactionError, match=f"{topic}-0 has not ended") as caught:
                await hasty.committed((topic, 0))
            assert caught.value.retriable
            with pytest.raises(KafkaTimeoutError):
                await hasty.position((topic, 0))
            async with Admin(bootstrap_servers=address, default_api_timeout_ms=300, retry_backoff_ms=5) as admin:
                with pytest.raises(KafkaTimeoutError):
                    await admin.group_offsets(group, require_stable=True)
                assert (await admin.group_offsets(group))[TopicPartition(topic, 0)].offset == 1
            waiting = asyncio.create_task(reader.committed((topic, 0)))
            position = asyncio.create_task(reader.position((topic, 0)))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            assert not position.done(), "a record was to be fetched from where it may not begin"
            await producer.commit_transaction()
            found = (await waiting)[TopicPartition(topic, 0)]
            assert found is not None
            assert found.offset == await position == 5


async def test_who_is_no_member_has_no_assignment(bootstrap: str, fresh_name: Fresh) -> None:
    topic, group = make_topic(bootstrap, fresh_name("topic"), 2), fresh_name("group")
    async with Consumer(bootstrap_servers=bootstrap, group_id=group, topics=[topic]) as consumer:
        with pytest.raises(RebalanceInProgressError, match=r"poll"):
            consumer.group_assignment()
        async with asyncio.timeout(WAIT_S):
            while not consumer.assignment():
                await consumer.poll(100)
        assignment = consumer.group_assignment()
        assert assignment.partitions == {(topic, 0), (topic, 1)}
        assert assignment.metadata == consumer.group_metadata()
        assert assignment.generation_id >= 1
        await consumer.unsubscribe()
        consumer.subscribe([topic])
        with pytest.raises(RebalanceInProgressError):
            consumer.group_assignment()
    async with Consumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        consumer.assign([(topic, 1)])
        assert consumer.group_assignment() == ConsumerAssignment(-1, frozenset({TopicPartition(topic, 1)}), group)
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        with pytest.raises(IllegalStateError, match=r"group\.id"):
            consumer.group_assignment()


@pytest.mark.oncelog_only(reason="restarts a broker of its own at another level")
@pytest.mark.parametrize("level", ["4.0", "4.1"])
async def test_a_group_lives_through_a_change_of_the_brokers_level(tmp_path: Path, level: str) -> None:
    name = "inter.broker.protocol.version"
    before = {"4.0": "4.1", "4.1": "4.0"}[level]
    with BrokerProcess(tmp_path, "--set", f"{name}={before}") as broker:
        topic, target = (make_topic(broker.address, stem, PARTITIONS) for stem in ("in", "out"))
        expected = await fill(broker.address, topic, 400)
        async with asyncio.timeout(60), member(broker.address, topic, target, "g", transactional_id="t") as one:
            copied = 0
            while copied < 100:
                copied += await one.copy()
            assert one.producer.group_aware == (before == "4.1")
            broker.extra_arguments[:] = ["--set", f"{name}={level}"]
            await asyncio.to_thread(broker.restart)
            while set(values(broker.address, target)) != set(expected):
                for _ in range(20):
                    await one.copy(50)
            before_it = len(one.assignments)
            one.consumer.enforce_rebalance()
            while len(one.assignments) == before_it:
                await one.copy()
            assert one.producer.group_aware == (level == "4.1")
        assert sorted(values(broker.address, target)) == expected


@pytest.mark.oncelog_only(reason="needs a transactional id that the broker assigns")
async def test_a_producer_that_becomes_transactional_forgets_no_earlier_failure(
    bootstrap: str, fresh_name: Fresh
) -> None:
    topic = fresh_name("topic")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(topic, 1, configs={"max.message.bytes": "500"})
    async with Producer(bootstrap_servers=bootstrap, **FAST) as producer, asyncio.timeout(WAIT_S):
        delivery = producer.send(topic, bytes(5000))
        while not delivery.done():
            await asyncio.sleep(0.01)
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await producer.init_transactions(group_id=fresh_name("group"))
        await producer.init_transactions(group_id=fresh_name("group"))
        assert producer.ready
