"""A transaction that ends between the moment in which a batch is admitted and the moment in which it is appended.

The batch would lie behind the transaction's marker, or in a partition that gets none, and hold the last stable offset
for good. So it is checked once more, in the step in which it is appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from oncelog.broker.coordinator.transaction.state import TransactionState, TransactionVersion
from oncelog.broker.handlers import produce
from oncelog.broker.node import BrokerNode
from oncelog.broker.topic_names import OFFSETS_TOPIC
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.raw_connection import RawConnection, batch
from support.session_wire import NEWER, SessionProducer
from support.slices import context_of

E = ErrorCode
ID = "id"
MANY = produce.PARTITIONS_AT_ONCE + 50


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    async with BrokerNode(durability="os", offsets_topic_num_partitions=1, logging_level="error") as broker:
        yield broker


class HeldFlushes:
    """What the transaction coordinator writes is durable when the test says so."""

    def __init__(self, broker: BrokerNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        log = broker.transaction_coordinator.state._state_log
        monkeypatch.setattr(log, "pending_flush", self._pending_flush)
        self._holding = False

    def _pending_flush(self, partition: int, end_offset: int) -> asyncio.Future[None] | None:
        if not self._holding:
            return None
        flush: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(flush)
        return flush

    def hold(self) -> None:
        self._holding = True

    def release(self) -> None:
        self._holding = False
        for flush in self._waiting:
            flush.set_result(None)


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize("late", ["batch", "offsets"])
async def test_what_waits_for_its_registration_is_refused_when_the_transaction_ends_in_the_same_turn(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """The decision names what was written, so the partition that is being registered gets no marker."""
    coordinator = broker.transaction_coordinator
    async with RawConnection(broker.address) as wire, RawConnection(broker.address) as other:
        await wire.create_topic("t", 2)
        producer = SessionProducer(wire, ID, NEWER)
        await producer.init()
        assert await producer.produce(("t", 1)) == {E.NONE}
        flushes = HeldFlushes(broker, monkeypatch)
        flushes.hold()

        async def come_late() -> set[ErrorCode]:
            if late == "offsets":
                return {await producer.commit_offsets("g", "t", 5)}
            return await producer.produce(("t", 0))

        waiting = asyncio.ensure_future(come_late())
        await until(lambda: coordinator.state._entries[ID].pending is not None)
        ending = asyncio.ensure_future(
            other.call(producer.end_request(True, [("t", 1)]), NEWER.end, producer.extension_version)
        )
        await until(lambda: coordinator.waits.parked)
        flushes.release()
        assert await waiting == {E.INVALID_PRODUCER_EPOCH}
        assert (await ending).error_code == E.NONE
        await until(lambda: coordinator.describe(ID).state is TransactionState.COMPLETE_COMMIT)
        for partition in [("t", 0), ("t", 1), (OFFSETS_TOPIC, 0)]:
            log = broker.replica_manager.partition(*partition).log
            assert log.last_stable_offset == log.log_end_offset, partition
            assert log.producers.open_transactions() == [], partition


def many_batches(producer_id: int, producer_epoch: int, transactional_id: str = ID) -> ProduceRequest:
    records = batch(
        b"late", producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=0, transactional=True
    )
    rows = [PartitionProduceData(index, bytearray(records)) for index in range(MANY)]
    return ProduceRequest(transactional_id, -1, 30_000, [TopicProduceData(name="t", partition_data=rows)])


async def answer_of(reply: Any) -> Any:
    while isinstance(reply, Coroutine):
        reply = await reply
    return reply


def rest_of(handling: Coroutine[Any, Any, Any]) -> Any:
    """Run to its end what waits for nothing."""
    while True:
        try:
            handling.send(None)
        except StopIteration as end:
            return end.value


async def test_portions_of_a_large_request_are_refused_once_the_transaction_has_ended(broker: BrokerNode) -> None:
    """Before KIP-890 the epoch stays after an EndTxn, so the logs would take the rest of the batches."""
    coordinator = broker.transaction_coordinator
    await broker.metadata.create_topic("t", MANY, {})
    who = await coordinator.init_producer_id(ID, 60_000)
    partitions = [("t", index) for index in range(MANY)]
    await coordinator.registration.add_partitions(ID, *who, partitions)
    logs = [broker.replica_manager.partition(*partition).log for partition in partitions]
    request = many_batches(*who)
    handling = answer_of(produce.handle(context_of(broker, request, 9), request))
    while not logs[0].log_end_offset:
        handling.send(None)
    appended = [log for log in logs if log.log_end_offset]
    assert 0 < len(appended) < MANY
    await coordinator.end_txn(ID, *who, True, TransactionVersion.TV_0)
    await until(lambda: coordinator.describe(ID).state is TransactionState.COMPLETE_COMMIT)
    answer = rest_of(handling)
    codes = [partition.error_code for partition in answer.responses[0].partition_responses]
    assert codes == [E.NONE] * len(appended) + [E.TRANSACTION_ABORTABLE] * (MANY - len(appended))
    for log in logs:
        assert log.last_stable_offset == log.log_end_offset, log.name
        assert log.producers.open_transactions() == [], log.name


async def test_batches_of_a_session_that_ends_before_they_are_registered_open_no_transaction(
    broker: BrokerNode,
) -> None:
    """Each pause of a large request is tried: its producer aborts there, on another connection."""
    await broker.metadata.create_topic("t", MANY, {})
    pauses = 1
    while await aborted_at_pause(broker, pauses):
        pauses += 1
    assert pauses > 3


async def aborted_at_pause(broker: BrokerNode, number: int) -> bool:
    """Abort while batches of a session are prepared. Return whether their request has a pause with this number."""
    coordinator, name = broker.transaction_coordinator, f"{ID}-{number}"
    partitions = [("t", index) for index in range(MANY)]
    who = await coordinator.init_producer_id(name, 60_000)
    await coordinator.registration.add_partitions(name, *who, partitions, session=True)
    await coordinator.end_txn(name, *who, True, TransactionVersion.TV_0, written=frozenset(), keeps_session=True)
    await until(lambda: coordinator.describe(name).state is TransactionState.COMPLETE_COMMIT)
    request = many_batches(*who, name)
    handling = answer_of(produce.handle(context_of(broker, request, 9), request))
    try:
        for _ in range(number):
            handling.send(None)
    except StopIteration:
        return False
    await coordinator.end_txn(name, *who, False, TransactionVersion.TV_0)
    await until(lambda: coordinator.describe(name).state is TransactionState.COMPLETE_ABORT)
    rest_of(handling)
    assert coordinator.describe(name).state is TransactionState.COMPLETE_ABORT, number
    for partition in partitions:
        log = broker.replica_manager.partition(*partition).log
        assert log.last_stable_offset == log.log_end_offset, (log.name, number)
        assert log.producers.open_transactions() == [], (log.name, number)
    return True
