"""WriteTxnMarkers by somebody who is not the coordinator: no marker tears a transaction or locks a producer out.

Each test sends a marker over the wire, and then looks at what the rightful producer can still do, and at what readers
get, before and after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from oncelog.broker.log import AppendOrigin
from oncelog.broker.node import BrokerNode
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from support.raw_connection import batch
from support.transaction_wire import TransactionWire, read, read_decided
from support.wire import Wire

E = ErrorCode
pytestmark = pytest.mark.oncelog_only(reason="Apache Kafka appends what anybody sends")


def mark(
    wire: Wire, producer_id: int, epoch: int, *partitions: tuple[str, int], commit: bool = False, coordinator: int = 0
) -> list[ErrorCode]:
    """Send one marker; the code of each partition."""
    topics = [WritableTxnMarkerTopic(topic, [index]) for topic, index in partitions]
    request = WriteTxnMarkersRequest([WritableTxnMarker(producer_id, epoch, commit, topics, coordinator)])
    (answer,) = wire.call(request, 1).markers
    codes = {
        (topic.name, result.partition_index): result.error_code
        for topic in answer.topics
        for result in topic.partitions
    }
    return [ErrorCode(codes[partition]) for partition in partitions]


async def with_broker(directory: Path, work: Callable[[Wire], None]) -> None:
    """Run blocking `work` against a broker on that directory."""
    async with BrokerNode(directory, logging_level="error") as broker:

        def connected() -> None:
            with Wire(broker.address) as wire:
                work(wire)

        await asyncio.to_thread(connected)


def transact(wire: Wire, transactional_id: str, *values: bytes, version: int = 3) -> None:
    """Commit one transaction with these values on "a" and "b"."""
    txn = TransactionWire(wire, transactional_id)
    assert txn.init().error_code == 0
    for topic in ("a", "b"):
        assert txn.add(topic, 0) == {0: 0}
        assert txn.produce(topic, *values) == 0
    assert txn.end(True, version=version).error_code == 0


@pytest.mark.parametrize("version", [3, 5])
async def test_marker_with_a_high_coordinator_epoch_tears_no_later_transaction(tmp_path: Path, version: int) -> None:
    def first(wire: Wire) -> None:
        for topic in ("a", "b"):
            wire.create_topic(topic)
        txn = TransactionWire(wire, "id")
        txn.init()
        txn.add("a", 0)
        assert txn.produce("a", b"1") == 0
        assert txn.end(True, version=version).error_code == 0
        assert read_decided(wire, "a") == [b"1"]
        assert mark(wire, txn.producer_id, txn.epoch, ("a", 0), coordinator=5) == [E.TRANSACTION_COORDINATOR_FENCED]
        for _ in range(3):
            transact(wire, "id", b"2", version=version)
        assert read_decided(wire, "a") == [b"1"] + [b"2"] * 3
        assert read_decided(wire, "b") == [b"2"] * 3

    def second(wire: Wire) -> None:
        transact(wire, "id", b"3", version=version)
        assert read_decided(wire, "a") == [b"1"] + [b"2"] * 3 + [b"3"]
        assert read_decided(wire, "b") == [b"2"] * 3 + [b"3"]

    await with_broker(tmp_path, first)
    await with_broker(tmp_path, second)


@pytest.mark.parametrize("version", [3, 5])
async def test_log_that_recorded_a_higher_coordinator_epoch_takes_transactions(tmp_path: Path, version: int) -> None:
    """As Apache Kafka leaves it behind after a few changes of the coordinator's leader."""
    async with BrokerNode(tmp_path, logging_level="error") as broker:

        def prepare() -> tuple[int, int]:
            with Wire(broker.address) as wire:
                for topic in ("a", "b"):
                    wire.create_topic(topic)
                txn = TransactionWire(wire, "id")
                txn.init()
                txn.add("a", 0)
                assert txn.produce("a", b"0") == 0
                txn.end(True)
                read_decided(wire, "a")
                return txn.producer_id, txn.epoch

        producer_id, epoch = await asyncio.to_thread(prepare)
        log = broker.replica_manager.partition("a", 0).log
        log.append(bytearray(control_batch(True, 7, producer_id, epoch, 0)), origin=AppendOrigin.COORDINATOR)

        def work() -> None:
            with Wire(broker.address) as wire:
                transact(wire, "id", b"1", b"2", version=version)
                assert read_decided(wire, "a") == [b"0", b"1", b"2"]
                assert read_decided(wire, "b") == [b"1", b"2"]

        await asyncio.to_thread(work)


async def test_marker_with_a_high_producer_epoch_locks_nobody_out(tmp_path: Path) -> None:
    def work(wire: Wire) -> None:
        for topic in ("a", "b"):
            wire.create_topic(topic)
        txn = TransactionWire(wire, "id")
        txn.init()
        txn.add("a", 0)
        assert mark(wire, txn.producer_id, 30_000, ("a", 0)) == [E.NONE]
        assert txn.produce("a", b"1") == 0
        assert mark(wire, txn.producer_id, 30_000, ("a", 0)) == [E.INVALID_PRODUCER_EPOCH]
        assert mark(wire, txn.producer_id, 30_000, ("a", 0), commit=True) == [E.INVALID_PRODUCER_EPOCH]
        assert txn.produce("a", b"2") == 0
        assert txn.end(True).error_code == 0
        assert read_decided(wire, "a") == [b"1", b"2"]
        transact(wire, "id", b"3")
        assert read_decided(wire, "a") == [b"1", b"2", b"3"]

    await with_broker(tmp_path, work)


async def test_nobody_but_the_coordinator_commits(tmp_path: Path) -> None:
    def work(wire: Wire) -> None:
        for topic in ("a", "b"):
            wire.create_topic(topic)
        txn = TransactionWire(wire, "id")
        txn.init()
        for topic in ("a", "b"):
            txn.add(topic, 0)
            assert txn.produce(topic, b"1") == 0
        assert mark(wire, txn.producer_id, txn.epoch, ("a", 0), commit=True) == [E.INVALID_TXN_STATE]
        assert read(wire, "a").values == []
        assert txn.end(False).error_code == 0
        assert read_decided(wire, "a") == read_decided(wire, "b") == []

    await with_broker(tmp_path, work)


async def test_abort_of_one_partition_aborts_the_whole_transaction(tmp_path: Path) -> None:
    def work(wire: Wire) -> None:
        for topic in ("a", "b"):
            wire.create_topic(topic)
        txn = TransactionWire(wire, "id")
        txn.init()
        for topic in ("a", "b"):
            txn.add(topic, 0)
            assert txn.produce(topic, b"1") == 0
        assert mark(wire, txn.producer_id, txn.epoch, ("a", 0)) == [E.NONE]
        assert txn.end(True).error_code in (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH)
        assert read_decided(wire, "a") == read_decided(wire, "b") == []
        transact(wire, "id", b"2")
        assert read_decided(wire, "a") == read_decided(wire, "b") == [b"2"]

    await with_broker(tmp_path, work)


async def test_marker_for_an_unknown_producer_changes_nothing(tmp_path: Path) -> None:
    def work(wire: Wire) -> None:
        wire.create_topic("a", 50)
        assert mark(wire, 77, 0, *(("a", index) for index in range(50))) == [E.NONE] * 50
        assert mark(wire, 77, 32_767, ("a", 0), commit=True, coordinator=9) == [E.TRANSACTION_COORDINATOR_FENCED]
        assert mark(wire, -1, -1, ("a", 0)) == [E.NONE]
        assert mark(wire, 77, 0, ("__transaction_state", 0), ("__consumer_offsets", 3)) == [E.NONE, E.NONE]
        assert mark(wire, 77, 0, ("nowhere", 0)) == [E.UNKNOWN_TOPIC_OR_PARTITION]

    await with_broker(tmp_path, work)
    assert not list(tmp_path.glob("a-*")), "asking makes no logs"


async def test_producer_ids_begin_above_those_in_the_logs(tmp_path: Path) -> None:
    async with BrokerNode(tmp_path, logging_level="error") as broker:

        def create() -> None:
            with Wire(broker.address) as wire:
                wire.create_topic("a")

        await asyncio.to_thread(create)
        log = broker.replica_manager.partition("a", 0).log
        log.append(batch(b"copied in", producer_id=5_000, producer_epoch=7, base_sequence=0))
        log.append(batch(b"made up", producer_id=2**63 - 1, producer_epoch=7, base_sequence=0))

    def work(wire: Wire) -> None:
        ids = [wire.call(InitProducerIdRequest(None, 60_000), 4).producer_id for _ in range(3)]
        assert ids == [5_001, 5_002, 5_003]

    await with_broker(tmp_path, work)


async def test_producer_whose_epoch_is_higher_in_a_log_goes_on_above_it(tmp_path: Path) -> None:
    async with BrokerNode(tmp_path, logging_level="error") as broker:

        def prepare() -> int:
            with Wire(broker.address) as wire:
                for topic in ("a", "b"):
                    wire.create_topic(topic)
                txn = TransactionWire(wire, "id")
                txn.init()
                txn.add("b", 0)
                assert txn.produce("b", b"lost") == 0
                return txn.producer_id

        producer_id = await asyncio.to_thread(prepare)
        log = broker.replica_manager.partition("a", 0).log
        log.append(bytearray(control_batch(True, 3, producer_id, 500, 0)), origin=AppendOrigin.COORDINATOR)

    def work(wire: Wire) -> None:
        assert read_decided(wire, "b") == []
        transact(wire, "id", b"1")
        assert read_decided(wire, "a") == read_decided(wire, "b") == [b"1"]

    await with_broker(tmp_path, work)
