"""Transaction sessions on the wire: what a client of each generation may leave out, and what it is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
from oncelog.broker.coordinator.transaction.state import TransactionState
from oncelog.broker.node import BrokerNode
from oncelog.broker.partitions.markers import Marker
from oncelog.broker.system.ports import RealFileSystem
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from oncelog.protocol.messages.produce import ProduceRequest
from structlog.testing import LogCapture
from support.raw_connection import RawConnection
from support.session_wire import MIXED, NEWER, OLDER, SessionProducer, Speech

E = ErrorCode
OK = {E.NONE}
T0, T1, T2, U0 = ("t", 0), ("t", 1), ("t", 2), ("u", 0)
SPEECHES = pytest.mark.parametrize("speech", [NEWER, OLDER, MIXED], ids=str)


class World:
    """A broker in this process and connections to it; `hold` keeps markers back until `release`."""

    def __init__(self, broker: BrokerNode, wire: RawConnection) -> None:
        self.broker = broker
        self.wire = wire
        self.free = asyncio.Event()
        self.free.set()
        append_markers = broker.replica_manager.append_markers

        async def held(markers: list[Marker]) -> Any:
            await self.free.wait()
            return await append_markers(markers)

        broker.replica_manager.append_markers = held  # type: ignore[method-assign]

    async def session(self, speech: Speech, *partitions: tuple[str, int]) -> SessionProducer:
        """A producer whose session is these partitions, after a transaction that wrote them all."""
        producer = SessionProducer(self.wire, "id", speech)
        await producer.init()
        assert await producer.add(*partitions) == OK
        assert await producer.produce(*partitions) == OK
        assert await producer.end(*partitions) is E.NONE
        await self.complete()
        return producer

    def state(self) -> TransactionState:
        return self.broker.transaction_coordinator.describe("id").state

    async def complete(self) -> None:
        await until(lambda: not self.state().is_prepare)

    def end_offset(self, partition: tuple[str, int]) -> int:
        return self.broker.replica_manager.partition(*partition).log.log_end_offset

    async def stable(self, partition: tuple[str, int]) -> None:
        """Everything is decided and visible."""
        log = self.broker.replica_manager.partition(*partition).log
        await until(lambda: log.last_stable_offset == log.log_end_offset)


async def until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.001)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with BrokerNode(logging_level="error") as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", 3)
        await wire.create_topic("u", 1)
        made = World(broker, wire)
        yield made
        made.free.set()


@SPEECHES
async def test_a_steady_transaction_is_produce_and_end(world: World, speech: Speech) -> None:
    producer = await world.session(speech, T0, T1)
    before = world.end_offset(T1)
    for _ in range(5):
        assert await producer.produce(T0) == OK
        assert await producer.end(T0) is E.NONE
    await world.stable(T0)
    assert world.end_offset(T0) == 12, "six batches and six markers"
    assert world.end_offset(T1) == before, "registered, not written: no marker"


@SPEECHES
async def test_abort_and_go_on(world: World, speech: Speech) -> None:
    producer = await world.session(speech, T0)
    assert await producer.produce(T0) == OK
    assert await producer.end(T0, commit=False) is E.NONE
    await world.complete()
    if speech.bumps:
        assert await producer.produce(T0) == OK
        assert await producer.end(T0) is E.NONE
    else:
        assert await producer.produce(T0) == {E.INVALID_TXN_STATE}
        assert await producer.produce(T1) == {E.INVALID_TXN_STATE}
        assert await producer.add(T0) == OK, "and begins another one"
        assert await producer.produce(T0) == OK
        assert await producer.end(T0) is E.NONE
    await world.stable(T0)


@SPEECHES
async def test_a_partition_that_was_written_and_not_named_gets_its_marker(world: World, speech: Speech) -> None:
    producer = await world.session(speech, T0, T1, T2)
    assert await producer.produce(T0, T1) == OK
    assert await producer.end(T0) is E.NONE
    await world.stable(T0)
    await world.stable(T1)
    assert world.end_offset(T1) == 4
    assert world.end_offset(T2) == 2


@SPEECHES
async def test_a_named_partition_outside_changes_nothing(world: World, speech: Speech) -> None:
    producer = await world.session(speech, T0)
    assert await producer.produce(T0) == OK
    before = world.broker.transaction_coordinator.describe("id")
    for outside in (U0, ("nowhere", 0), ("t", 99)):
        assert await producer.end(T0, outside) is E.INVALID_REQUEST
    assert world.broker.transaction_coordinator.describe("id") == before
    assert await producer.end(T0) is E.NONE
    await world.stable(T0)


@SPEECHES
async def test_stock_ends_within_a_session_mark_everything_registered(world: World, speech: Speech) -> None:
    producer = await world.session(speech, T0, T1)
    assert await producer.produce(T0) == OK
    assert await producer.end(stock=True) is E.NONE
    await world.complete()
    assert (world.end_offset(T0), world.end_offset(T1)) == (4, 3)


@SPEECHES
async def test_offsets_open_a_transaction_as_well(world: World, speech: Speech) -> None:
    coordinator = world.broker.group_coordinator
    home = ("__consumer_offsets", coordinator.partition_for("g"))
    producer = SessionProducer(world.wire, "id", speech)
    await producer.init()
    assert await producer.add(T0, home) == OK
    assert await producer.commit_offsets("g", "t", 1) is E.NONE
    assert await producer.end(home) is E.NONE
    for offset in (2, 3):
        await world.complete()
        assert await producer.commit_offsets("g", "t", offset) is E.NONE
        opened = world.broker.transaction_coordinator.describe("id")
        assert (opened.state, opened.topic_partitions) == (TransactionState.ONGOING, frozenset({T0, home}))
        assert await producer.end() is E.NONE, "known to be written although not named"
    request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])], require_stable=True)
    async with asyncio.timeout(60):
        while (await world.wire.call(request, 7)).topics[0].partitions[0].committed_offset != 3:
            await asyncio.sleep(0.001)
    assert world.end_offset(T0) == 0


@pytest.mark.parametrize("count", [1, 150])
async def test_a_session_has_no_partitions_of_the_transaction_state(world: World, count: int) -> None:
    producer = SessionProducer(world.wire, "id", NEWER)
    await producer.init()
    internal = [("__transaction_state", index) for index in range(count)]
    assert await producer.add(*internal) == {E.TOPIC_AUTHORIZATION_FAILED}


async def test_an_older_offset_commit_outside_of_a_session_is_refused(world: World) -> None:
    producer = await world.session(OLDER, T0)
    assert await producer.commit_offsets("g", "t", 1) is E.INVALID_TXN_STATE
    assert world.state() is TransactionState.COMPLETE_COMMIT


class TestLate:
    """Where the epoch stays from one transaction to the next, a late batch is known by its sequence."""

    async def test_a_repeated_batch_is_refused_and_opens_nothing(self, world: World) -> None:
        producer = await world.session(OLDER, T0)
        for _ in range(3):
            assert await producer.produce(T0) == OK
        assert await producer.end(T0) is E.NONE
        await world.stable(T0)
        end_offset = world.end_offset(T0)
        for sequence in (1, 2, 3):
            assert await producer.produce(T0, sequence=sequence) == {E.INVALID_TXN_STATE}
        assert world.state() is TransactionState.COMPLETE_COMMIT
        assert world.end_offset(T0) == end_offset
        assert await producer.produce(T0) == OK, "the next one is not late"
        assert world.state() is TransactionState.ONGOING

    async def test_it_is_answered_at_once_while_the_markers_are_on_their_way(self, world: World) -> None:
        producer = await world.session(OLDER, T0)
        assert await producer.produce(T0) == OK
        world.free.clear()
        assert await producer.end(T0) is E.NONE
        assert await producer.produce(T0, sequence=1) == OK
        world.free.set()
        await world.stable(T0)
        assert world.end_offset(T0) == 4

    async def test_one_too_old_to_be_remembered_is_refused_and_opens_nothing(self, world: World) -> None:
        producer = await world.session(OLDER, T0)
        for _ in range(6):
            assert await producer.produce(T0) == OK
        assert await producer.end(T0) is E.NONE
        await world.stable(T0)
        assert await producer.produce(T0, sequence=0) == {E.OUT_OF_ORDER_SEQUENCE_NUMBER}
        assert await producer.produce(T0, sequence=9) == {E.OUT_OF_ORDER_SEQUENCE_NUMBER}
        assert world.state() is TransactionState.COMPLETE_COMMIT

    async def test_beside_a_batch_that_opens_it_is_refused_too(self, world: World) -> None:
        producer = await world.session(OLDER, T0, T1)
        producer.sequences[T0] = 0
        assert await producer.produce(T0, T1) == {E.NONE, E.INVALID_TXN_STATE}
        assert (world.end_offset(T0), world.end_offset(T1)) == (2, 3)
        producer.sequences[T0] = 1
        assert await producer.end(T1) is E.NONE
        await world.stable(T1)
        assert (world.end_offset(T0), world.end_offset(T1)) == (2, 4), "a repetition writes nothing: no marker"

    @pytest.mark.parametrize("speech", [NEWER, MIXED], ids=str)
    async def test_with_an_epoch_for_each_transaction_it_is_fenced(self, world: World, speech: Speech) -> None:
        producer = await world.session(speech, T0)
        late = producer.produce_request(T0)
        assert await producer.produce(T0) == OK
        assert await producer.end(T0) is E.NONE
        await world.complete()
        answer = await world.wire.call(late, speech.produce)
        assert answer.responses[0].partition_responses[0].error_code == E.INVALID_PRODUCER_EPOCH
        assert world.state() is TransactionState.COMPLETE_COMMIT


class TestParked:
    @SPEECHES
    async def test_the_first_batch_waits_for_the_transaction_before(self, world: World, speech: Speech) -> None:
        producer = await world.session(speech, T0)
        assert await producer.produce(T0) == OK
        world.free.clear()
        assert await producer.end(T0) is E.NONE
        waiting = asyncio.ensure_future(producer.produce(T0))
        await until(lambda: world.broker.metrics.value("oncelog_transaction_requests_parked") == 1)
        assert world.end_offset(T0) == 3
        world.free.set()
        assert await waiting == OK
        assert world.end_offset(T0) == 5, "behind the marker"
        waited = world.broker.metrics.value("oncelog_transaction_wait_seconds", "Produce", "done")
        assert waited == 1

    async def test_an_older_batch_outside_of_the_session_does_not_wait(self, world: World) -> None:
        producer = await world.session(OLDER, T0)
        assert await producer.produce(T0) == OK
        world.free.clear()
        assert await producer.end(T0) is E.NONE
        assert await producer.produce(T1) == {E.INVALID_TXN_STATE}
        assert world.broker.metrics.value("oncelog_transaction_requests_parked") == 0

    async def test_nothing_behind_it_is_executed_and_it_is_dropped_with_its_connection(self, world: World) -> None:
        producer = await world.session(OLDER, T0, T1)
        assert await producer.produce(T0) == OK
        world.free.clear()
        assert await producer.end(T0) is E.NONE
        async with RawConnection(world.broker.address) as other:
            other.send(producer.produce_request(T0), OLDER.produce, 1)
            other.send(InitProducerIdRequest("another", 60_000), 5)
            await until(lambda: world.broker.metrics.value("oncelog_transaction_requests_parked") == 1)
            await asyncio.sleep(0.02)
            assert "another" not in {entry.metadata.transactional_id for entry in self._entries(world)}
        await until(lambda: world.broker.metrics.value("oncelog_transaction_requests_parked") == 0)
        assert world.broker.metrics.value("oncelog_transaction_wait_seconds", "Produce", "closed") == 1
        world.free.set()
        await world.complete()
        assert world.state() is TransactionState.COMPLETE_COMMIT, "the dropped one opened nothing"
        assert world.end_offset(T0) == 4

    async def test_a_batch_whose_session_ends_while_it_waits_opens_nothing(self, world: World) -> None:
        """Its producer has given it up and aborts; what comes then is another transaction."""
        producer = await world.session(OLDER, T0)
        assert await producer.produce(T0) == OK
        world.free.clear()
        assert await producer.end(T0) is E.NONE
        parked = "oncelog_transaction_requests_parked"
        async with RawConnection(world.broker.address) as other:
            world.wire.send(producer.end_request(False, []), OLDER.end, 1)
            await until(lambda: world.broker.metrics.value(parked) == 1)
            late = asyncio.ensure_future(producer.produce(T0, sequence=2, wire=other))
            await until(lambda: world.broker.metrics.value(parked) == 2)
            world.free.set()
            assert (await world.wire.receive(EndTxnRequest, OLDER.end))[1].error_code == 0
            assert await late == {E.INVALID_TXN_STATE}
        assert world.state() is TransactionState.COMPLETE_ABORT
        await world.stable(T0)
        assert world.end_offset(T0) == 4, "two batches and two markers"

    async def test_past_the_bound_it_is_told_to_come_back(self) -> None:
        # Nothing but the markers takes longer than 30 ms: no transition waits for the disk.
        settings: dict[str, Any] = {"transaction_pending_wait_max_ms": 30, "durability": "os", "logging_level": "error"}
        async with BrokerNode(**settings) as broker, RawConnection(broker.address) as wire:
            await wire.create_topic("t", 3)
            world = World(broker, wire)
            for speech, code in ((NEWER, E.CONCURRENT_TRANSACTIONS), (OLDER, E.NOT_ENOUGH_REPLICAS)):
                producer = await world.session(speech, T0)
                assert await producer.produce(T0) == OK
                world.free.clear()
                assert await producer.end(T0) is E.NONE
                assert await producer.produce(T0) == {code}
                world.free.set()
                await world.complete()
                assert await producer.produce(T0) == OK

    def _entries(self, world: World) -> Any:
        return world.broker.transaction_coordinator.state.entries()


class TestRefused:
    async def test_session_with_verify_only(self, world: World) -> None:
        producer = SessionProducer(world.wire, "id", NEWER)
        await producer.init()
        assert await producer.add_batched(T0, session=True, verify_only=True) == {E.INVALID_REQUEST}
        assert world.state() is TransactionState.EMPTY
        assert await producer.add_batched(T0, session=True, verify_only=False) == OK
        assert world.broker.transaction_coordinator.describe("id").session_partitions == {T0}

    async def test_initialisation_ends_it(self, world: World) -> None:
        producer = await world.session(OLDER, T0)
        old = producer.who
        await producer.init()
        assert await producer.produce(T0) == {E.INVALID_TXN_STATE}
        producer.who = old
        assert await producer.produce(T0) == {E.INVALID_TXN_STATE}
        assert await producer.add(T0) == {E.PRODUCER_FENCED}

    async def test_topics_of_a_client_that_is_not_aware_narrow_the_markers_and_begin_nothing(
        self, world: World
    ) -> None:
        producer = SessionProducer(world.wire, "id", NEWER, extension_version=-1)
        await producer.init()
        assert await producer.add(T0, T1, session=False) == OK
        assert await producer.produce(T0) == OK
        assert await producer.end(T0) is E.NONE
        await world.complete()
        assert (world.end_offset(T0), world.end_offset(T1)) == (2, 0)
        assert world.broker.transaction_coordinator.describe("id").session_partitions == frozenset()


@pytest.mark.parametrize("speech", [NEWER, OLDER], ids=str)
async def test_below_the_level_the_fields_are_refused_and_nothing_changes(speech: Speech) -> None:
    settings: dict[str, Any] = {"inter_broker_protocol_version": "4.0", "logging_level": "error"}
    async with BrokerNode(**settings) as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", 3)
        producer = SessionProducer(wire, "id", speech)
        await producer.init()
        coordinator = broker.transaction_coordinator
        assert await producer.add(T0) == {E.UNSUPPORTED_VERSION}
        assert await producer.add_batched(T0, session=True, verify_only=False) == {E.UNSUPPORTED_VERSION}
        assert coordinator.describe("id").state is TransactionState.EMPTY
        assert await producer.add(T0, session=False) == OK
        assert await producer.produce(T0) == OK
        before = coordinator.describe("id")
        assert await producer.end(T0) is E.UNSUPPORTED_VERSION
        assert await producer.end() is E.UNSUPPORTED_VERSION
        assert coordinator.describe("id") == before
        assert await producer.end(stock=True) is E.NONE


async def test_without_verification_a_session_opens_its_transactions_all_the_same() -> None:
    settings: dict[str, Any] = {"transaction_partition_verification_enable": False, "logging_level": "error"}
    async with BrokerNode(**settings) as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", 3)
        world = World(broker, wire)
        producer = await world.session(OLDER, T0)
        assert await producer.produce(T0) == OK
        assert world.state() is TransactionState.ONGOING
        assert await producer.produce(T1) == OK, "nobody asks whether it is registered"
        assert await producer.end(T0) is E.NONE
        await world.stable(T0)


async def test_what_happens_is_told_with_who_did_it_by_which_request() -> None:
    capture = LogCapture()
    logger = structlog.wrap_logger(
        None, processors=[capture], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)
    )
    async with BrokerNode(logger=logger) as broker, RawConnection(broker.address, client_id="zombie") as wire:
        await wire.create_topic("t", 3)
        world = World(broker, wire)
        old = await world.session(NEWER, T0)
        assert await old.produce(T0) == OK
        async with RawConnection(broker.address, client_id="successor") as other:
            new = SessionProducer(other, "id", NEWER)
            await new.init()
        assert await old.produce(T0) == {E.INVALID_PRODUCER_EPOCH}
        assert await old.end(T0) is E.PRODUCER_FENCED
        assert await old.commit_offsets("g", "t", 1) is not E.NONE
    told = {entry["event"]: entry for entry in capture.entries if "client_id" in entry}
    for event in ("producer_fenced", "transaction_aborted"):
        assert (told[event]["client_id"], told[event]["host"]) == ("successor", "127.0.0.1")
        assert (told[event]["request"], told[event]["epoch_before"]) == ("InitProducerId", old.who[1])
    assert told["producer_fenced"]["epoch_after"] == new.who[1]
    refused = [entry for entry in capture.entries if entry["event"] == "request_refused"]
    assert [entry["request"] for entry in refused] == ["Produce", "EndTxn", "TxnOffsetCommit"], "one line for each"
    for entry in refused:
        assert (entry["client_id"], entry["host"], entry["transactional_id"]) == ("zombie", "127.0.0.1", "id")
        assert (entry["epoch_before"], entry["epoch_after"]) == (old.who[1], new.who[1])


async def test_a_deleted_topic_drops_out_of_session_and_transaction(world: World) -> None:
    producer = await world.session(NEWER, T0, U0)
    assert await producer.produce(T0, U0) == OK
    deleted = await world.wire.call(DeleteTopicsRequest([DeleteTopicState("u")]), 6)
    assert deleted.responses[0].error_code == 0
    assert await producer.end(T0, U0) is E.NONE
    await world.complete()
    assert world.broker.transaction_coordinator.describe("id").session_partitions == {T0}
    assert await producer.produce(T0) == OK
    assert await producer.end(T0) is E.NONE
    await world.stable(T0)


@pytest.mark.parametrize(
    "failure", [KafkaError(E.KAFKA_STORAGE_ERROR, "after the write"), RuntimeError("a bug")], ids=["disk", "bug"]
)
async def test_a_batch_that_may_be_in_the_log_counts_as_written(
    world: World, failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever failed behind the write: its partition gets a marker, and its readers don't wait for ever."""
    producer = await world.session(NEWER, T0, T1)
    log = world.broker.replica_manager.partition(*T1).log
    append = type(log).append

    def failing(appended_to: Any, *args: Any, **given: Any) -> Any:
        result = append(appended_to, *args, **given)
        if appended_to is log:
            raise failure
        return result

    monkeypatch.setattr(type(log), "append", failing)
    assert (await producer.produce(T1)).isdisjoint(OK)
    monkeypatch.undo()
    assert log.last_stable_offset < log.log_end_offset
    assert await producer.end(T0, commit=False) is E.NONE
    await world.stable(T1)


class NearlyFull(RealFileSystem):
    """A disk whose free space is what the test says."""

    free = 1 << 40

    def free_space(self, path: str) -> int:
        return self.free


async def test_a_disk_that_is_full_but_for_the_reserve_holds_no_transaction_open() -> None:
    disk = NearlyFull()
    settings: dict[str, Any] = {"log_reserve_bytes": 1 << 20, "logging_level": "error"}
    async with BrokerNode(fs=disk, **settings) as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", 3)
        world = World(broker, wire)
        producer = await world.session(NEWER, T0)
        assert await producer.produce(T0) == OK
        disk.free = 1 << 20
        broker.log_manager._disk_space.refresh()
        assert await producer.produce(T0) == {E.KAFKA_STORAGE_ERROR}
        stock = await wire.call(ProduceRequest(acks=-1, topic_data=producer.produce_request(T1).topic_data), 9)
        assert stock.responses[0].partition_responses[0].error_code != 0
        assert await producer.commit_offsets("g", "t", 7) is E.NONE
        assert await producer.end(T0) is E.NONE
        await world.stable(T0)
        assert world.end_offset(T0) == 4, "the batch before, and the markers"


@pytest.mark.parametrize("speech", [NEWER, OLDER], ids=str)
async def test_a_full_disk_is_not_filled_further_by_transactions_that_can_write_nothing(speech: Speech) -> None:
    disk = NearlyFull()
    settings: dict[str, Any] = {"log_reserve_bytes": 1 << 20, "logging_level": "error"}
    async with BrokerNode(fs=disk, **settings) as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", 3)
        world = World(broker, wire)
        producer = await world.session(speech, T0)
        await asyncio.sleep(0.3)  # for COMPLETE_COMMIT to be in the log
        state = ("__transaction_state", broker.transaction_coordinator.state._state_log.partition_for("id"))
        before = world.end_offset(state)
        disk.free = 1 << 20
        broker.log_manager._disk_space.refresh()
        for _ in range(5):
            assert await producer.produce(T0) == {E.KAFKA_STORAGE_ERROR}
        assert world.state() is TransactionState.COMPLETE_COMMIT, "none was opened"
        assert world.end_offset(state) == before
        disk.free = 1 << 40
        assert await producer.produce(T0) == OK
        assert await producer.end(T0) is E.NONE
        await world.stable(T0)
