"""A transaction of many partitions is registered at once, and each partition gets one marker, whatever happens between
the slices of the work.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import GeneratorType, coroutine
from typing import Any, cast

import pytest
from oncelog.broker.api.handling import Deferred, RequestContext
from oncelog.broker.coordinator.transaction.decisions import ProducerIdentity
from oncelog.broker.coordinator.transaction.events import UNKNOWN_CALLER
from oncelog.broker.coordinator.transaction.state import TopicPartition, TransactionState, TransactionVersion
from oncelog.broker.handlers import add_partitions_to_txn
from oncelog.broker.node import BrokerNode
from oncelog.broker.partitions.markers import Marker
from oncelog.broker.partitions.replica_manager import ReplicaManager
from oncelog.broker.scheduling.steps import SLICE, Steps, run_at_once, run_in_slices
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.schema import Request
from support.dispatching import Peer
from support.logs import batch


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    async with BrokerNode(durability="os", logging_level="error", transaction_pending_wait_max_ms=600_000) as broker:
        yield broker


def context_of(broker: BrokerNode, request: Request[Any], version: int) -> RequestContext:
    return RequestContext(cast(Any, broker), cast(Any, Peer()), request.spec.key, version, 1, "client", -1)


ID = "id"
PARTITIONS = 2_000
"""More than a slice goes through."""


async def producer_of(broker: BrokerNode, *topics: str) -> ProducerIdentity:
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

    def __init__(self, broker: BrokerNode, request: AddPartitionsToTxnRequest, version: int) -> None:
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


def registered(broker: BrokerNode) -> Counter[str]:
    """How many partitions of each topic are registered with the ongoing transaction."""
    return Counter(name for name, _ in broker.transaction_coordinator.describe(ID).topic_partitions)


@pytest.mark.parametrize("version", [3, 4])
async def test_partitions_of_a_transaction_are_registered_all_in_one_turn(broker: BrokerNode, version: int) -> None:
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
    broker: BrokerNode, version: int, turns: int
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


async def test_topic_made_anew_with_fewer_partitions_in_between_is_not_registered(broker: BrokerNode) -> None:
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
async def test_producer_that_is_fenced_in_between_registers_nothing(broker: BrokerNode, version: int) -> None:
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
    broker: BrokerNode, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await producer_of(broker, "a", "b")
    transactions = broker.transaction_coordinator
    await transactions.registration.add_partitions(ID, *producer, [("b", 0)])
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
    broker: BrokerNode, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await producer_of(broker, "a", "b")
    transactions = broker.transaction_coordinator
    await transactions.registration.add_partitions(ID, *producer, [("b", 0)])
    may_mark = asyncio.Event()
    append_markers = broker.replica_manager.append_markers

    async def late(markers: list[Marker]) -> Any:
        await may_mark.wait()
        return await append_markers(markers)

    monkeypatch.setattr(broker.replica_manager, "append_markers", late)
    await transactions.end_txn(ID, *producer, True, TransactionVersion.TV_0)
    codes = asyncio.ensure_future(Handled(broker, registration(producer, version, "a", "b"), version).codes())
    while not transactions.waits.parked:
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
    broker: BrokerNode, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def append_markers(markers: list[Marker]) -> Any:
        return [dict.fromkeys(marker.partitions, ErrorCode.NONE) for marker in markers]

    monkeypatch.setattr(broker.replica_manager, "append_markers", append_markers)
    producer = await producer_of(broker, "a", "b")
    transactions = broker.transaction_coordinator
    await transactions.registration.add_partitions(ID, *producer, [("a", index) for index in range(PARTITIONS)])
    handled = Handled(broker, registration(producer, 4, "a", "b", verify_only=True), 4)
    for _ in range(turns):
        assert handled.turn()
    await transactions.end_txn(ID, *producer, True, TransactionVersion.TV_0)
    await transactions.registration.add_partitions(ID, *producer, [("b", index) for index in range(PARTITIONS)])
    answer, refusal = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE
    codes = await handled.codes()
    assert codes in (
        {"a": Counter({answer: PARTITIONS}), "b": Counter({refusal: PARTITIONS})},
        {"a": Counter({refusal: PARTITIONS}), "b": Counter({answer: PARTITIONS})},
    )


@pytest.mark.parametrize("copies", [1, add_partitions_to_txn.FEW], ids=["small", "large"])
async def test_small_registration_is_answered_at_once_and_as_a_large_one(broker: BrokerNode, copies: int) -> None:
    producer = await producer_of(broker, "a", "b")
    known, unknown = [("a", [0, 1]), ("b", [5])], [("a", [0, -1, PARTITIONS]), ("no", [0]), ("b", [5])]
    replies = []
    for rows in (unknown, known):
        topics = [AddPartitionsToTxnTopic(name, indexes * copies) for name, indexes in rows]
        request = AddPartitionsToTxnRequest([], ID, *producer, topics)
        reply = add_partitions_to_txn.handle(context_of(broker, request, 3), request)
        assert isinstance(reply, GeneratorType) is (copies > 1)
        response: Any = await run_in_slices(cast(Any, reply)) if copies > 1 else reply
        replies.append(
            {
                topic.name: {row.partition_index: row.partition_error_code for row in topic.results_by_partition}
                for topic in response.results_by_topic_v3_and_below
            }
        )
        assert registered(broker) == (Counter() if rows is unknown else Counter(a=2, b=1))
    none, missing = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replies == [
        {"a": {0: none, -1: missing, PARTITIONS: missing}, "no": {0: missing}, "b": {5: none}},
        {"a": {0: ErrorCode.NONE, 1: ErrorCode.NONE}, "b": {5: ErrorCode.NONE}},
    ]


# ---- the markers of a decided transaction


class NotedMarkers:
    """Markers are noted instead of appended, so that no files are made. Each appends to a partition that exists."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_partition: defaultdict[TopicPartition, list[tuple[int, bool]]] = defaultdict(list)
        """The epoch of each marker and whether it commits, by partition."""
        self.flush: asyncio.Future[None] | None = None
        notes = self

        def append(manager: ReplicaManager, key: TopicPartition, marker: Marker) -> asyncio.Future[None] | None:
            manager.partition(*key)
            notes.by_partition[key].append((marker.producer_epoch, marker.commit))
            return notes.flush

        def opened(manager: ReplicaManager, key: TopicPartition) -> Steps[None]:
            yield 0

        monkeypatch.setattr(ReplicaManager, "_append_marker", append)
        monkeypatch.setattr(ReplicaManager, "_opened", opened)

    def counts(self, *topics: str) -> Counter[tuple[tuple[int, bool], ...]]:
        """How many partitions of these topics have which markers."""
        return Counter(tuple(markers) for key, markers in self.by_partition.items() if key[0] in topics)


@pytest.fixture
def markers(monkeypatch: pytest.MonkeyPatch) -> NotedMarkers:
    return NotedMarkers(monkeypatch)


def state_of(broker: BrokerNode) -> TransactionState:
    return broker.transaction_coordinator.describe(ID).state


async def decided(
    broker: BrokerNode, commit: bool = True, version: TransactionVersion = TransactionVersion.TV_2
) -> Any:
    """A transaction of all partitions of two topics that is decided; returns the identity of the next one."""
    producer = await producer_of(broker, "a", "b")
    transactions = broker.transaction_coordinator
    await transactions.registration.add_partitions(
        ID, *producer, [(name, n) for name in "ab" for n in range(PARTITIONS)]
    )
    return await transactions.end_txn(ID, *producer, commit, version)


async def in_between(broker: BrokerNode, turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    assert state_of(broker).is_prepare


async def completed(broker: BrokerNode) -> None:
    while state_of(broker).is_prepare:
        await asyncio.sleep(0)


TURNS = (*range(1, 95, 9), 100)
"""When something happens between the decision and COMPLETE_*: while partitions are sorted, marked, gone through."""


async def test_the_tests_below_come_before_between_and_after_the_markers(
    broker: BrokerNode, markers: NotedMarkers
) -> None:
    await decided(broker)
    marked = []
    for before, turns in pairwise((0, *TURNS)):
        await in_between(broker, turns - before)
        marked.append(markers.counts("a", "b").total())
    assert marked[0] == 0
    assert 0 < marked[len(marked) // 2] < 2 * PARTITIONS
    assert marked[-1] == 2 * PARTITIONS
    await completed(broker)


@pytest.mark.parametrize("turns", TURNS)
async def test_producer_is_fenced_while_markers_are_written(
    broker: BrokerNode, markers: NotedMarkers, turns: int
) -> None:
    identity = await decided(broker)
    await in_between(broker, turns)
    fenced = await broker.transaction_coordinator.fencing.fence(ID, cause=UNKNOWN_CALLER, reason="test")
    assert fenced is not None
    assert fenced.epoch_after > identity.producer_epoch
    assert markers.counts("a", "b") == {((identity.producer_epoch, True),): 2 * PARTITIONS}


@pytest.mark.parametrize("turns", TURNS)
async def test_next_transaction_begins_while_markers_are_written(
    broker: BrokerNode, markers: NotedMarkers, turns: int
) -> None:
    first = await decided(broker)
    await in_between(broker, turns)
    transactions = broker.transaction_coordinator
    await transactions.registration.add_partitions(
        ID, first.producer_id, first.producer_epoch, [("a", 0), ("b", 7)], TransactionVersion.TV_2
    )
    second = await transactions.end_txn(ID, first.producer_id, first.producer_epoch, False, TransactionVersion.TV_2)
    await completed(broker)
    commit, abort = (first.producer_epoch, True), (second.producer_epoch, False)
    assert markers.counts("a", "b") == {(commit,): 2 * PARTITIONS - 2, (commit, abort): 2}
    assert markers.by_partition["a", 0] == markers.by_partition["b", 7] == [commit, abort]


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("version", [TransactionVersion.TV_0, TransactionVersion.TV_2])
async def test_transaction_does_not_time_out_or_expire_while_its_markers_are_written(
    broker: BrokerNode, markers: NotedMarkers, turns: int, version: TransactionVersion
) -> None:
    identity = await decided(broker, version=version)
    await in_between(broker, turns)
    maintenance, late_ms = broker.transaction_coordinator.maintenance, broker.clock.now_ms() + 10**12
    assert run_at_once(maintenance.abort_timed_out(late_ms)) is None
    assert not maintenance.remove_expired(late_ms)
    await in_between(broker, 1)
    await completed(broker)
    assert state_of(broker) is TransactionState.COMPLETE_COMMIT
    assert markers.counts("a", "b") == {((identity.producer_epoch, True),): 2 * PARTITIONS}


@pytest.mark.parametrize("turns", TURNS)
async def test_topic_is_deleted_while_markers_are_written(
    broker: BrokerNode, markers: NotedMarkers, turns: int
) -> None:
    identity = await decided(broker, commit=False)
    await in_between(broker, turns)
    topic = broker.metadata.topic("a")
    assert topic is not None
    await broker.metadata.delete_topic(topic)
    await completed(broker)
    assert state_of(broker) is TransactionState.COMPLETE_ABORT
    abort = (identity.producer_epoch, False)
    assert markers.counts("b") == {(abort,): PARTITIONS}
    assert set(markers.counts("a")) <= {(abort,)}


@pytest.mark.parametrize("flushed", [True, False])
async def test_transaction_completes_only_when_all_markers_are_flushed(
    broker: BrokerNode, markers: NotedMarkers, flushed: bool
) -> None:
    markers.flush = asyncio.get_running_loop().create_future()
    await decided(broker)
    await in_between(broker, 10 * max(TURNS))
    assert markers.counts("a", "b").total() == 2 * PARTITIONS
    flush, markers.flush = markers.flush, None
    if flushed:
        flush.set_result(None)
    else:
        flush.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    await in_between(broker, 2)
    while state_of(broker).is_prepare:
        await asyncio.sleep(0.01)
    (times,) = {len(written) for written in markers.by_partition.values()}
    assert times == (1 if flushed else 2)


@pytest.mark.parametrize(
    ("size", "crowded"), [(10, None), (PARTITIONS, None), (1, 0), (10, 0), (PARTITIONS, 0), (PARTITIONS, 30)]
)
async def test_markers_of_transactions_that_end_together_take_turns(
    broker: BrokerNode, markers: NotedMarkers, size: int, crowded: int | None
) -> None:
    """Also of those that have waited together for file descriptors, from the turn `crowded` on."""
    await producer_of(broker, "a")
    partitions = [("a", index) for index in range(size)]
    count = 4_000 if size == 1 else 40_000 // size
    ends = [Marker(number, 0, coordinator_epoch=0, commit=True, partitions=partitions) for number in range(count)]
    crowding = broker.log_manager.crowding
    writing = asyncio.gather(*(broker.replica_manager.append_markers([marker]) for marker in ends))
    counts = [0]
    while not writing.done():
        if len(counts) - 1 == crowded:
            crowding.end = asyncio.get_running_loop().create_future()
        if crowding.end is not None and len(counts) == 1000:  # all of them wait by now
            assert counts[-1] == counts[-900]
            crowding.end.set_result(None)
            crowding.end = None
        await asyncio.sleep(0)
        counts.append(sum(map(len, markers.by_partition.values())))
    assert await writing == [[dict.fromkeys(partitions, ErrorCode.NONE)]] * len(ends)
    assert counts[-1] == len(ends) * size
    assert max(after - before for before, after in pairwise(counts)) <= 2 * SLICE // 10


async def test_markers_are_written_although_other_writers_use_every_free_descriptor(
    broker: BrokerNode, markers: NotedMarkers
) -> None:
    """The descriptors are crowded again whenever the turn of the markers comes."""
    await producer_of(broker, "a")
    crowding = broker.log_manager.crowding
    partitions = [("a", index) for index in range(PARTITIONS)]
    marker = Marker(1, 0, coordinator_epoch=0, commit=True, partitions=partitions)
    crowding.end = end = asyncio.get_running_loop().create_future()
    writing = asyncio.create_task(broker.replica_manager.append_markers([marker]))
    broker.replica_manager.partition("a", 0).log.append(batch("open"))
    of_operator = asyncio.create_task(broker.replica_manager.until_ready(("a", 0)))
    for _ in range(PARTITIONS // 10):
        for _ in range(5):
            await asyncio.sleep(0)
        crowding.end = None
        end.set_result(None)
        await asyncio.sleep(0)
        crowding.end = end = asyncio.get_running_loop().create_future()
    assert writing.done()
    assert await writing == [dict.fromkeys(partitions, ErrorCode.NONE)]
    assert of_operator.done()
    assert not broker.replica_manager.is_ready(("a", 0))
    assert broker.replica_manager.is_ready(("a", 0), has_waited=True)
    one = replace(marker, partitions=[("a", 0)], has_waited=True)
    with pytest.raises(StopIteration):
        broker.replica_manager.append_markers([one]).send(None)


@pytest.mark.parametrize("turns", TURNS)
async def test_broker_stops_while_markers_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    settings: dict[str, Any] = {"durability": "os", "logging_level": "error"}
    first = NotedMarkers(monkeypatch)
    async with BrokerNode(str(tmp_path), **settings) as broker:
        identity = await decided(broker)
        await in_between(broker, turns)
    commit = (identity.producer_epoch, True)
    assert set(first.counts("a", "b")) <= {(commit,)}
    second = NotedMarkers(monkeypatch)
    async with BrokerNode(str(tmp_path), **settings) as broker:
        await completed(broker)
        assert state_of(broker) is TransactionState.COMPLETE_COMMIT
    assert second.counts("a", "b") == {(commit,): 2 * PARTITIONS}


async def test_marker_of_an_operator_that_waits_for_descriptors_is_judged_by_what_happened_meanwhile(
    broker: BrokerNode,
) -> None:
    producer = await producer_of(broker, "a", "b")
    broker.replica_manager.partition("a", 0).log.append(
        batch("late", producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    )
    crowding = broker.log_manager.crowding
    crowding.end = end = asyncio.get_running_loop().create_future()
    transactions = broker.transaction_coordinator
    marker = Marker(*producer, coordinator_epoch=0, commit=False, partitions=[("a", 0)])
    abort = asyncio.create_task(transactions.write_external_markers([marker], UNKNOWN_CALLER))
    await asyncio.sleep(0)
    await transactions.registration.add_partitions(ID, *producer, [("a", 0), ("b", 0)], TransactionVersion.TV_0)
    crowding.end = None
    end.set_result(None)
    assert await abort == [{("a", 0): ErrorCode.NONE}]
    assert transactions.describe(ID).fenced, "the whole transaction was aborted, not its part in one partition"
