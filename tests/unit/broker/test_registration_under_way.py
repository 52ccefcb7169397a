"""AddPartitionsToTxn and AddOffsetsToTxn are answered before the registration is on disk; nothing is written before.

A record that is on disk although its registration is not would belong to a transaction that nobody ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.broker.topic_names import OFFSETS_TOPIC
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest
from support.held_flushes import HeldFlushes
from support.raw_connection import RawConnection
from support.session_wire import OLDER, SessionProducer

E = ErrorCode
ID = "id"
SILENCE_S = 0.1


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    async with BrokerNode(durability="os", offsets_topic_num_partitions=1, logging_level="error") as broker:
        yield broker


@pytest.fixture
async def wire(broker: BrokerNode) -> AsyncIterator[RawConnection]:
    async with RawConnection(broker.address) as wire:
        await wire.create_topic("t", 2)
        yield wire


@pytest.fixture
async def other(broker: BrokerNode) -> AsyncIterator[RawConnection]:
    async with RawConnection(broker.address) as other:
        yield other


@pytest.fixture
async def producer(wire: RawConnection) -> SessionProducer:
    producer = SessionProducer(wire, ID, OLDER)
    await producer.init()
    return producer


@pytest.fixture
def flushes(broker: BrokerNode, producer: SessionProducer, monkeypatch: pytest.MonkeyPatch) -> HeldFlushes:
    """From now on, nothing that the coordinator writes is durable."""
    flushes = HeldFlushes(broker, monkeypatch)
    flushes.hold()
    return flushes


async def add(producer: SessionProducer, *partitions: int, version: int = 3) -> set[ErrorCode]:
    topics = [AddPartitionsToTxnTopic("t", list(partitions))]
    answer = await producer.wire.call(AddPartitionsToTxnRequest([], ID, *producer.who, topics), version)
    return codes_of(answer.results_by_topic_v3_and_below)


def codes_of(results: Any) -> set[ErrorCode]:
    return {ErrorCode(row.partition_error_code) for topic in results for row in topic.results_by_partition}


def batched(producer: SessionProducer, *, verify_only: bool) -> AddPartitionsToTxnRequest:
    """The request of a broker that acts for the producer."""
    topics = [AddPartitionsToTxnTopic("t", [0])]
    return AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(ID, *producer.who, verify_only, topics)])


async def is_silent(task: asyncio.Future[Any]) -> bool:
    """Whether the task gets no answer."""
    await asyncio.wait([task], timeout=SILENCE_S)
    return not task.done()


def end_of(broker: BrokerNode, topic: str, partition: int = 0) -> int:
    return broker.replica_manager.partition(topic, partition).log.log_end_offset


async def test_a_batch_waits_for_the_registration_of_its_partition(
    broker: BrokerNode, producer: SessionProducer, flushes: HeldFlushes
) -> None:
    assert await add(producer, 0) == {E.NONE}
    producing = asyncio.ensure_future(producer.produce(("t", 0)))
    assert await is_silent(producing)
    assert end_of(broker, "t") == 0
    flushes.release()
    assert await producing == {E.NONE}
    assert end_of(broker, "t") == 1
    assert await producer.end(stock=True) == E.NONE


async def test_a_batch_for_a_partition_that_is_not_being_registered_is_refused_at_once(
    producer: SessionProducer, flushes: HeldFlushes
) -> None:
    assert await add(producer, 0) == {E.NONE}
    assert await producer.produce(("t", 1)) == {E.INVALID_TXN_STATE}


async def test_a_batch_for_a_registered_partition_does_not_wait_for_another_registration(
    broker: BrokerNode, producer: SessionProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await add(producer, 0) == {E.NONE}
    flushes = HeldFlushes(broker, monkeypatch)
    flushes.hold()
    assert await add(producer, 1) == {E.NONE}
    assert await producer.produce(("t", 0)) == {E.NONE}
    flushes.release()
    assert await producer.produce(("t", 1)) == {E.NONE}


async def test_a_late_producer_does_not_wait_for_the_registration_of_its_successor(
    wire: RawConnection, broker: BrokerNode, producer: SessionProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    successor = SessionProducer(wire, ID, OLDER)
    await successor.init()
    HeldFlushes(broker, monkeypatch).hold()
    assert await add(successor, 0) == {E.NONE}
    assert await producer.produce(("t", 0)) == {E.INVALID_PRODUCER_EPOCH}


async def test_offsets_wait_for_the_registration_of_their_partition(
    broker: BrokerNode, producer: SessionProducer, flushes: HeldFlushes
) -> None:
    assert (await producer.wire.call(AddOffsetsToTxnRequest(ID, *producer.who, "g"), 3)).error_code == E.NONE
    committing = asyncio.ensure_future(producer.commit_offsets("g", "t", 5))
    assert await is_silent(committing)
    assert end_of(broker, OFFSETS_TOPIC) == 0
    flushes.release()
    assert await committing == E.NONE
    assert await producer.end(stock=True) == E.NONE


async def test_the_same_registration_is_confirmed_again(producer: SessionProducer, flushes: HeldFlushes) -> None:
    assert await add(producer, 0, 1) == {E.NONE}
    assert await add(producer, 0) == {E.NONE}


async def test_the_end_of_the_transaction_waits_for_the_registration(
    producer: SessionProducer, flushes: HeldFlushes
) -> None:
    assert await add(producer, 0) == {E.NONE}
    ending = asyncio.ensure_future(producer.wire.call(EndTxnRequest(ID, *producer.who, True), 3))
    assert await is_silent(ending)
    flushes.release()
    assert (await ending).error_code == E.NONE


@pytest.mark.parametrize("verify_only", [False, True])
async def test_a_broker_that_acts_for_the_producer_waits(
    producer: SessionProducer, other: RawConnection, flushes: HeldFlushes, verify_only: bool
) -> None:
    """It appends to the partition next, without asking again."""
    assert await add(producer, 0) == {E.NONE}
    asking = asyncio.ensure_future(other.call(batched(producer, verify_only=verify_only), 4))
    assert await is_silent(asking)
    flushes.release()
    (result,) = (await asking).results_by_transaction
    assert codes_of(result.topic_results) == {E.NONE}


async def test_what_is_confirmed_is_seen(producer: SessionProducer, other: RawConnection, flushes: HeldFlushes) -> None:
    assert await add(producer, 1) == {E.NONE}
    (described,) = (await other.call(DescribeTransactionsRequest([ID]), 0)).transaction_states
    assert described.transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", [1])]
    (listed,) = (await other.call(ListTransactionsRequest(), 1)).transaction_states
    assert listed.transaction_state == "Ongoing"


async def test_without_the_registration_nothing_is_written(
    broker: BrokerNode, producer: SessionProducer, other: RawConnection, flushes: HeldFlushes
) -> None:
    """The disk has failed, so the registration is not known to be on it."""
    assert await add(producer, 0) == {E.NONE}
    producing = asyncio.ensure_future(producer.produce(("t", 0)))
    asking = asyncio.ensure_future(other.call(batched(producer, verify_only=True), 4))
    assert await is_silent(producing)
    assert await is_silent(asking)
    flushes.fail(KafkaError(E.KAFKA_STORAGE_ERROR))
    assert await producing == {E.NOT_ENOUGH_REPLICAS}, "as in Kafka, the client sends the batch again"
    assert await producer.produce(("t", 0)) == {E.INVALID_TXN_STATE}, "and aborts"
    assert end_of(broker, "t") == 0
    (result,) = (await asking).results_by_transaction
    assert codes_of(result.topic_results) == {E.INVALID_TXN_STATE}
