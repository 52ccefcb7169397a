"""A Produce for very many partitions is executed in slices, whatever becomes of the batches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from types import GeneratorType
from typing import Any

import pytest
from oncelog.broker.api import transactional_produce
from oncelog.broker.api.handling import Deferred, RequestContext
from oncelog.broker.api.transactional_produce import ProduceAppend
from oncelog.broker.coordinator.transaction.decisions import ProducerIdentity
from oncelog.broker.coordinator.transaction.state import TransactionVersion
from oncelog.broker.handlers import produce
from oncelog.broker.node import BrokerNode
from oncelog.broker.scheduling.steps import SLICE, run_in_slices
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from support.logs import batch
from support.slices import context_of

MANY = 5 * SLICE
PARTITIONS = 300
ID = "id"


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    async with BrokerNode(durability="os", logging_level="error", response_max_rows=MANY) as broker:
        await broker.metadata.create_topic("t", PARTITIONS, {})
        yield broker


def request_of(*rows: PartitionProduceData, acks: int = 1, tid: str | None = None) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=tid, acks=acks, timeout_ms=1000, topic_data=[TopicProduceData("t", partition_data=list(rows))]
    )


class Handled:
    """The handling of a request, which counts what happens in each turn of the event loop."""

    def __init__(self, broker: BrokerNode, request: ProduceRequest, version: int = 11) -> None:
        self.context: RequestContext = context_of(broker, request, version)
        self.turn = 0
        self._request = request

    async def _count(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    async def response(self) -> ProduceResponse | None:
        counting = asyncio.ensure_future(self._count())
        try:
            reply: Any = produce.handle(self.context, self._request)
            while isinstance(reply, (Coroutine, GeneratorType, Deferred)):
                if isinstance(reply, Deferred):
                    assert reply.awaitable is not None
                    assert reply.finish is not None
                    reply = reply.finish(await reply.awaitable)
                else:
                    reply = await (reply if isinstance(reply, Coroutine) else run_in_slices(reply))
        finally:
            counting.cancel()
        assert reply is None or isinstance(reply, ProduceResponse)
        return reply


def codes(response: ProduceResponse | None) -> Counter[int]:
    assert response is not None
    return Counter(row.error_code for topic in response.responses for row in topic.partition_responses)


def end_offsets(broker: BrokerNode) -> int:
    return sum(log.log_end_offset for log in broker.log_manager.logs() if log.topic == "t")


async def test_unknown_partitions_of_a_topic_are_answered_in_slices_and_count_as_rows(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = Handled(broker, request_of(*(PartitionProduceData(PARTITIONS + n, batch("x")) for n in range(MANY))))
    looked_at: Counter[int] = Counter()
    inspect = produce._inspect

    def counted(appends: list[ProduceAppend]) -> list[ProduceAppend]:
        looked_at[handled.turn] += len(appends)
        return inspect(appends)

    monkeypatch.setattr(produce, "_inspect", counted)
    assert codes(await handled.response()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: MANY}
    assert handled.context.answer_rows == MANY
    assert max(looked_at.values(), default=0) <= SLICE
    assert handled.turn >= MANY // SLICE


async def test_request_for_too_many_rows_appends_nothing(broker: BrokerNode) -> None:
    rows = [PartitionProduceData(n % PARTITIONS, batch("x")) for n in range(MANY + 1)]
    with pytest.raises(KafkaError) as raised:
        await Handled(broker, request_of(*rows)).response()
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert "response.max.rows" in str(raised.value)
    assert end_offsets(broker) == 0


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_unknown_partitions_do_not_affect_known_ones(broker: BrokerNode, acks: int) -> None:
    rows = [PartitionProduceData(n, batch("x")) for n in range(2 * PARTITIONS)]
    handled = Handled(broker, request_of(*rows, acks=acks))
    response = await handled.response()
    assert end_offsets(broker) == PARTITIONS
    if acks == 0:
        assert response is None
        assert not handled.context.connection.is_open  # type: ignore[attr-defined]
    else:
        assert codes(response) == {0: PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: PARTITIONS}


def transactional(producer: ProducerIdentity, sequence: int = 0) -> bytearray:
    return batch(
        "x",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        transactional=True,
    )


async def test_batches_of_a_transaction_are_registered_in_slices(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition is the same in all batches, and the producer in every second one: the others are refused."""
    producer = await broker.transaction_coordinator.init_producer_id(ID, 60_000)
    other = ProducerIdentity(producer.producer_id + 1, 0)
    rows = [PartitionProduceData(n % PARTITIONS, transactional(other if n % 2 else producer)) for n in range(2 * SLICE)]
    handled = Handled(broker, request_of(*rows, tid=ID), 12)
    verified: Counter[int] = Counter()
    verify = transactional_produce._verify

    def counted(context: RequestContext, tid: str, append: ProduceAppend) -> ErrorCode:
        verified[handled.turn] += 1
        return verify(context, tid, append)

    monkeypatch.setattr(transactional_produce, "_verify", counted)
    answered = codes(await handled.response())
    assert answered[ErrorCode.INVALID_PRODUCER_ID_MAPPING] == SLICE
    assert answered[ErrorCode.NONE] == SLICE
    assert end_offsets(broker) == PARTITIONS // 2, "a repeated batch is a duplicate"
    assert max(verified.values()) <= 2 * produce.PARTITIONS_AT_ONCE


async def test_transaction_that_ends_while_its_partitions_are_registered_gets_no_more_batches(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch may come after the marker: it would begin a transaction that never ends."""
    producer = await broker.transaction_coordinator.init_producer_id(ID, 60_000)
    partitions = [("t", index) for index in range(PARTITIONS)]
    await broker.transaction_coordinator.registration.add_partitions(ID, *producer, partitions)
    rows = [PartitionProduceData(n, transactional(producer)) for n in range(PARTITIONS)]
    handled = Handled(broker, request_of(*rows, tid=ID))
    verify = transactional_produce._verify
    calls = 0

    def ending(context: RequestContext, tid: str, append: ProduceAppend) -> ErrorCode:
        nonlocal calls
        calls += 1
        if calls == PARTITIONS:  # the last one of the registration, before any append
            broker.transaction_coordinator.end_txn_now(ID, *producer, False, TransactionVersion.TV_0)
        return verify(context, tid, append)

    monkeypatch.setattr(transactional_produce, "_verify", ending)
    answered = codes(await handled.response())
    assert answered[ErrorCode.NONE] == 0
    for log in broker.log_manager.logs():
        assert log.topic != "t" or not list(log.producers.open_transactions())
