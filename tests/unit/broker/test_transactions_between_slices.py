"""A large AddPartitionsToTxn registers all of its partitions at once, whatever happens between its slices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from types import GeneratorType, coroutine
from typing import Any, cast

import pytest
from oncelog import Broker
from oncelog.broker.coordinator.transaction.decisions import ProducerIdentity
from oncelog.broker.coordinator.transaction.state import TransactionVersion
from oncelog.broker.handlers import add_partitions_to_txn
from oncelog.broker.handling import Deferred, RequestContext
from oncelog.broker.markers import Marker
from oncelog.broker.steps import SLICE, run_in_slices
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.schema import Request
from support.dispatching import Peer


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(durability="os", logging_level="error") as broker:
        yield broker


def context_of(broker: Broker, request: Request[Any], version: int) -> RequestContext:
    return RequestContext(broker, cast(Any, Peer()), request.spec.key, version, 1, "client", -1)


ID = "id"
PARTITIONS = 2_000
"""More than a slice goes through."""


async def producer_of(broker: Broker, *topics: str) -> ProducerIdentity:
    for name in topics:
        await broker.metadata.create_topic(name, PARTITIONS, {})
    return await broker.transaction_coordinator.init_producer_id(ID, 60_000)


def registration(producer: ProducerIdentity, version: int, *topics: str, **fields: Any) -> AddPartitionsToTxnRequest:
    rows = [AddPartitionsToTxnTopic(name, list(range(PARTITIONS))) for name in topics]
    if version >= 4:
        return AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(ID, *producer, topics=rows, **fields)])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=rows,
    )


class Handled:
    """The handling of a request, which a test carries on by hand: nothing else happens unless the test does it."""

    def __init__(self, broker: Broker, request: AddPartitionsToTxnRequest, version: int) -> None:
        self._turns: Any = self._run(add_partitions_to_txn.handle(context_of(broker, request, version), request))

    async def _run(self, reply: Any) -> Any:
        while isinstance(reply, (Coroutine, GeneratorType)):
            reply = await (reply if isinstance(reply, Coroutine) else run_in_slices(reply))
        if isinstance(reply, Deferred):
            assert reply.awaitable is not None
            assert reply.finish is not None
            reply = await self._run(reply.finish(await reply.awaitable))
        return reply

    def turn(self) -> bool:
        """Run up to the next turn of the event loop; returns whether there is more to do."""
        try:
            self._turns.send(None)
        except StopIteration:
            return False
        return True

    @coroutine
    def _rest(self) -> Any:
        while True:
            try:
                waited_for = self._turns.send(None)
            except StopIteration as end:
                return end.value
            yield waited_for

    async def codes(self) -> dict[str, Counter[int]]:
        """Run to the end; returns how often each code was answered, by topic."""
        response = await self._rest()
        topics = list(response.results_by_topic_v3_and_below)
        for transaction in response.results_by_transaction:
            topics += transaction.topic_results
        return {
            topic.name: Counter(result.partition_error_code for result in topic.results_by_partition)
            for topic in topics
        }


def registered(broker: Broker) -> Counter[str]:
    """How many partitions of each topic are registered with the ongoing transaction."""
    return Counter(name for name, _ in broker.transaction_coordinator.describe(ID).topic_partitions)


@pytest.mark.parametrize("version", [3, 4])
async def test_partitions_of_a_transaction_are_registered_all_in_one_turn(broker: Broker, version: int) -> None:
    producer = await producer_of(broker, "a", "b")
    handled = Handled(broker, registration(producer, version, "a", "b"), version)
    states = [registered(broker)]
    while handled.turn():
        states.append(registered(broker))
    states.append(registered(broker))
    assert len(states) > 2 * PARTITIONS // SLICE
    whole = Counter(a=PARTITIONS, b=PARTITIONS)
    assert [state for state in states if state] == [whole] * (len(states) - states.index(whole))


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("turns", [1, 3, 5, 7, 8])
async def test_topic_that_is_deleted_in_between_is_not_registered_with_a_transaction(
    broker: Broker, version: int, turns: int
) -> None:
    producer = await producer_of(broker, "a", "b")
    handled = Handled(broker, registration(producer, version, "a", "b"), version)
    for _ in range(turns):
        assert handled.turn()
    assert not registered(broker)
    topic = broker.metadata.topic("a")
    assert topic is not None
    await broker.metadata.delete_topic(topic)
    assert await handled.codes() == {
        "a": Counter({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: PARTITIONS}),
        "b": Counter({ErrorCode.OPERATION_NOT_ATTEMPTED: PARTITIONS}),
    }
    assert not registered(broker)


async def test_topic_made_anew_with_fewer_partitions_in_between_is_not_registered(broker: Broker) -> None:
    producer = await producer_of(broker, "a", "b")
    handled = Handled(broker, registration(producer, 3, "a", "b"), 3)
    for _ in range(6):
        assert handled.turn()
    topic = broker.metadata.topic("a")
    assert topic is not None
    await broker.metadata.delete_topic(topic)
    await broker.metadata.create_topic("a", 5, {})
    assert await handled.codes() == {
        "a": Counter({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: PARTITIONS - 5, ErrorCode.OPERATION_NOT_ATTEMPTED: 5}),
        "b": Counter({ErrorCode.OPERATION_NOT_ATTEMPTED: PARTITIONS}),
    }
    assert not registered(broker)


@pytest.mark.parametrize("version", [3, 4])
async def test_producer_that_is_fenced_in_between_registers_nothing(broker: Broker, version: int) -> None:
    producer = await producer_of(broker, "a")
    handled = Handled(broker, registration(producer, version, "a"), version)
    assert handled.turn()
    await broker.transaction_coordinator.init_producer_id(ID, 60_000)
    if version >= 4:
        assert await handled.codes() == {"a": Counter({ErrorCode.PRODUCER_FENCED: PARTITIONS})}
    else:
        with pytest.raises(KafkaError) as refusal:
            await handled.codes()
        assert refusal.value.code is ErrorCode.PRODUCER_FENCED
    assert not registered(broker)


@pytest.mark.parametrize("version", [3, 4])
async def test_transaction_that_ends_in_between_gets_none_of_the_partitions(
    broker: Broker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await producer_of(broker, "a", "b")
    transactions = broker.transaction_coordinator
    await transactions.add_partitions(ID, *producer, [("b", 0)])
    marked: list[Marker] = []
    append_markers = broker.replica_manager.append_markers

    async def noted(markers: list[Marker]) -> Any:
        marked.extend(markers)
        return await append_markers(markers)

    monkeypatch.setattr(broker.replica_manager, "append_markers", noted)
    handled = Handled(broker, registration(producer, version, "a"), version)
    assert handled.turn()
    await transactions.end_txn(ID, *producer, True, TransactionVersion.TV_0)
    assert await handled.codes() == {"a": Counter({ErrorCode.NONE: PARTITIONS})}
    assert [marker.partitions for marker in marked] == [[("b", 0)]]
    assert registered(broker) == Counter(a=PARTITIONS)


@pytest.mark.parametrize("version", [3, 4])
async def test_topic_that_is_deleted_while_the_request_waits_is_not_registered(
    broker: Broker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await producer_of(broker, "a", "b")
    transactions = broker.transaction_coordinator
    await transactions.add_partitions(ID, *producer, [("b", 0)])
    may_mark = asyncio.Event()
    append_markers = broker.replica_manager.append_markers

    async def late(markers: list[Marker]) -> Any:
        await may_mark.wait()
        return await append_markers(markers)

    monkeypatch.setattr(broker.replica_manager, "append_markers", late)
    await transactions.end_txn(ID, *producer, True, TransactionVersion.TV_0)
    codes = asyncio.ensure_future(Handled(broker, registration(producer, version, "a", "b"), version).codes())
    while not transactions._waits.parked:
        await asyncio.sleep(0)
    topic = broker.metadata.topic("a")
    assert topic is not None
    await broker.metadata.delete_topic(topic)
    may_mark.set()
    assert await codes == {
        "a": Counter({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: PARTITIONS}),
        "b": Counter({ErrorCode.OPERATION_NOT_ATTEMPTED: PARTITIONS}),
    }
    assert not registered(broker)


@pytest.mark.parametrize("turns", range(1, 9))
async def test_verification_answers_as_of_one_point_in_time(
    broker: Broker, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def append_markers(markers: list[Marker]) -> Any:
        return [dict.fromkeys(marker.partitions, ErrorCode.NONE) for marker in markers]

    monkeypatch.setattr(broker.replica_manager, "append_markers", append_markers)
    producer = await producer_of(broker, "a", "b")
    transactions = broker.transaction_coordinator
    await transactions.add_partitions(ID, *producer, [("a", index) for index in range(PARTITIONS)])
    handled = Handled(broker, registration(producer, 4, "a", "b", verify_only=True), 4)
    for _ in range(turns):
        assert handled.turn()
    await transactions.end_txn(ID, *producer, True, TransactionVersion.TV_0)
    await transactions.add_partitions(ID, *producer, [("b", index) for index in range(PARTITIONS)])
    answer, refusal = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE
    codes = await handled.codes()
    assert codes in (
        {"a": Counter({answer: PARTITIONS}), "b": Counter({refusal: PARTITIONS})},
        {"a": Counter({refusal: PARTITIONS}), "b": Counter({answer: PARTITIONS})},
    )
