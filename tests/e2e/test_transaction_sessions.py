"""Transactions of the bundled client on the wire: as few requests as can be, markers only where it wrote something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from oncelog import (
    AbortableError,
    CommitUnknownError,
    ConsumerGroupMetadata,
    KafkaError,
    PartitionNotRegisteredError,
    Producer,
    ProducerFencedError,
)
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.produce import ProduceRequest
from support.broker import BrokerProcess
from support.proxy import FaultProxy
from support.reading import await_decided, committed_offset, end_offsets, make_topic, values

Fresh = Callable[[str], str]
FAST = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50, "linger_ms": 0}
STEADY = 50


def assert_seen(proxy: FaultProxy, is_kafka: bool, *apis: str) -> None:
    """As many requests of each as transactions; Apache Kafka has some sent again while it writes markers."""
    assert set(proxy.seen) == set(apis)
    for api in apis:
        assert proxy.seen[api] == STEADY or (is_kafka and proxy.seen[api] > STEADY), proxy.seen


async def test_a_steady_transaction_is_produce_and_end_txn(bootstrap: str, fresh_name: Fresh, is_kafka: bool) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn")
    async with FaultProxy(bootstrap) as proxy:
        async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name) as producer:
            async with producer.transaction() as txn:
                txn.send(topic, b"first")
            proxy.seen.clear()
            for number in range(STEADY):
                async with producer.transaction() as txn:
                    txn.send(topic, b"%d" % number)
        assert_seen(proxy, is_kafka, "Produce", "EndTxn")
    assert len(values(bootstrap, topic)) == STEADY + 1


@pytest.mark.parametrize("bound", [False, True])
async def test_offsets_are_one_request_more_and_registering_beforehand_none(
    bootstrap: str, fresh_name: Fresh, bound: bool, is_kafka: bool
) -> None:
    topic, name, group = make_topic(bootstrap, fresh_name("topic")), fresh_name("txn"), fresh_name("group")
    partitions = [(topic, 0)] if bound else None
    async with FaultProxy(bootstrap) as proxy:
        async with Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name) as producer:
            for number in range(STEADY + 1):
                if number == 1:
                    proxy.seen.clear()
                async with producer.transaction(partitions) as txn:
                    txn.send(topic, b"%d" % number)
                    await txn.send_offsets({(topic, 0): number}, ConsumerGroupMetadata(group))
        assert_seen(proxy, is_kafka, "Produce", "TxnOffsetCommit", "EndTxn")
    assert committed_offset(bootstrap, group, topic, 0) == STEADY


async def test_a_transaction_bound_to_partitions_writes_to_no_other(bootstrap: str, fresh_name: Fresh) -> None:
    topic, other = make_topic(bootstrap, fresh_name("topic"), 4), make_topic(bootstrap, fresh_name("other"))
    name, group = fresh_name("txn"), fresh_name("group")
    async with Producer(FAST, bootstrap_servers=bootstrap, transactional_id=name) as producer:
        for number in range(3):
            async with producer.transaction([(topic, 1), (topic, 3)]) as txn:
                for _ in range(20):
                    await txn.enqueue(topic, b"%d" % number)
                with pytest.raises(PartitionNotRegisteredError, match="Name the partition there"):
                    txn.send(topic, b"no", partition=0)
                with pytest.raises(PartitionNotRegisteredError, match="Name the partition there"):
                    txn.send(other, b"no")
                await txn.send_offsets({(topic, 0): number}, ConsumerGroupMetadata(group))
        async with producer.transaction() as txn:
            txn.send(other, b"free again")
    assert len(values(bootstrap, topic)) == 60
    assert values(bootstrap, other) == [b"free again"]
    assert committed_offset(bootstrap, group, topic, 0) == 2
    ends = end_offsets(bootstrap, topic)
    assert (ends[0], ends[2]) == (0, 0)


async def test_markers_go_only_where_something_was_written(bootstrap: str, fresh_name: Fresh) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic"), 3), fresh_name("txn")
    async with Producer(FAST, bootstrap_servers=bootstrap, transactional_id=name) as producer:
        await producer.init_transactions()
        for commit in (True, False, True):
            await producer.begin_transaction([(topic, 0), (topic, 1), (topic, 2)])
            await producer.send(topic, b"x", partition=1)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    await_decided(bootstrap, topic)
    assert end_offsets(bootstrap, topic) == {0: 0, 1: 6, 2: 0}
    assert values(bootstrap, topic) == [b"x", b"x"]


async def test_nothing_sent_to_what_was_registered_commits_and_aborts(bootstrap: str, fresh_name: Fresh) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic"), 2), fresh_name("txn")
    async with Producer(FAST, bootstrap_servers=bootstrap, transactional_id=name) as producer:
        await producer.init_transactions()
        for partition in (0, 1, 0):
            for commit in (True, False):
                await producer.begin_transaction([(topic, partition)])
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        async with producer.transaction() as txn:
            txn.send(topic, b"after")
    assert values(bootstrap, topic) == [b"after"]


@pytest.mark.parametrize("lose", ["before", "after"])
@pytest.mark.parametrize("api", [ProduceRequest, EndTxnRequest])
async def test_lost_requests_and_answers_leave_commits_and_aborts_exact(
    bootstrap: str, fresh_name: Fresh, lose: str, api: type[ProduceRequest | EndTxnRequest]
) -> None:
    topic, name = make_topic(bootstrap, fresh_name("topic"), 2), fresh_name("txn")
    expected = []
    async with FaultProxy(bootstrap) as proxy:
        producer = Producer(FAST, bootstrap_servers=proxy.address, transactional_id=name)
        async with producer:
            await producer.init_transactions()
            for number in range(8):
                await producer.begin_transaction([(topic, 0), (topic, 1)] if number % 3 == 0 else None)
                (proxy.break_before if lose == "before" else proxy.break_after)(api)
                sent = proxy.seen["Produce"]
                producer.send(topic, b"%d" % number, partition=number % 2)
                if number % 4 == 3:
                    while proxy.seen["Produce"] == sent:
                        await asyncio.sleep(0.001)
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                    expected.append(b"%d" % number)
                proxy.clear_faults()
    assert sorted(values(bootstrap, topic)) == expected


@pytest.mark.oncelog_only(reason="restarts a broker of its own at another level")
@pytest.mark.parametrize(("before", "after"), [("4.1", "4.0"), ("4.0", "4.1")])
async def test_a_broker_that_changes_its_level_in_the_middle_tears_no_transaction(
    tmp_path: Path, before: str, after: str
) -> None:
    level = "inter.broker.protocol.version"
    with BrokerProcess(tmp_path, "--set", f"{level}={before}") as broker:
        topic = make_topic(broker.address, "topic", 2)
        committed, unknown = [], []
        async with Producer(FAST, bootstrap_servers=broker.address, transactional_id="job") as producer:
            await producer.init_transactions()
            for number in range(30):
                if number in (10, 20):
                    at = before if number == 20 else after
                    broker.extra_arguments[:] = ["--set", f"{level}={at}"]
                try:
                    await producer.begin_transaction([(topic, 0), (topic, 1)] if number % 2 else None)
                    for partition in range(2):
                        await producer.send(topic, b"%d" % number, partition=partition)
                    if number in (10, 20):
                        await asyncio.to_thread(broker.restart)
                    await producer.commit_transaction()
                    committed.append(number)
                except AbortableError:
                    await producer.abort_transaction()
                except (CommitUnknownError, ProducerFencedError) as error:
                    if isinstance(error, CommitUnknownError):
                        unknown.append(number)
                    await producer.init_transactions()
                except KafkaError as error:
                    raise AssertionError(f"transaction {number}: {error!r}") from error
        seen = [int(value) for value in values(broker.address, topic)]
        assert len(committed) >= 28
        assert set(committed) <= set(seen) <= set(committed) | set(unknown)
        assert all(seen.count(number) == 2 for number in set(seen)), "a transaction was torn"
