"""What a kill -9 leaves of transactions: decisions stand, open ones go on or are aborted, nothing stays stuck."""

from __future__ import annotations

from pathlib import Path

import pytest
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest
from support.broker import BrokerProcess
from support.transaction_wire import TransactionWire, read
from support.wire import Wire, eventually

PARTITIONS = 8


def state_of(wire: Wire, transactional_id: str) -> str:
    (state,) = wire.call(DescribeTransactionsRequest([transactional_id]), 0).transaction_states
    return str(state.transaction_state)


def begin(wire: Wire, name: str, value: bytes, version: int) -> TransactionWire:
    """A transaction with one record in every partition."""
    txn = TransactionWire(wire, name)
    assert txn.init().error_code == 0
    if version < 12:
        assert set(txn.add("t", *range(PARTITIONS)).values()) == {0}
    for partition in range(PARTITIONS):
        assert txn.produce("t", value, partition=partition, version=version) == 0
    return txn


@pytest.mark.parametrize("durability", ["flush", "os"])
@pytest.mark.parametrize("version", [9, 12])
def test_decision_that_was_told_is_carried_out_after_a_kill(tmp_path: Path, durability: str, version: int) -> None:
    end_version = 5 if version >= 12 else 3
    expected: list[bytes] = []
    with BrokerProcess(tmp_path, "--durability", durability) as broker:
        with Wire(broker.address) as wire:
            wire.create_topic("t", PARTITIONS)
        for number in range(4):
            with Wire(broker.address) as wire:
                txn = begin(wire, "id", b"%d" % number, version)
                commit = number % 2 == 0
                assert txn.end(commit, end_version).error_code == 0
                broker.kill9()
            if commit:
                expected.append(b"%d" % number)
            broker.restart()
            with Wire(broker.address) as wire:
                for partition in range(PARTITIONS):
                    eventually(lambda p=partition: read(wire, "t", p).values == expected)  # type: ignore[misc]
                complete = "CompleteCommit" if commit else "CompleteAbort"
                eventually(lambda state=complete: state_of(wire, "id") == state)  # type: ignore[misc]


def test_decision_that_nobody_was_told_is_the_same_everywhere(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Wire(broker.address) as wire:
            wire.create_topic("t", PARTITIONS)
        for number in range(4):
            with Wire(broker.address) as wire:
                txn = begin(wire, f"id-{number}", b"%d" % number, 9)
                wire.send(EndTxnRequest(txn.tid, txn.producer_id, txn.epoch, True), 3)
                broker.kill9()
            broker.restart()
            with Wire(broker.address) as wire:
                if state_of(wire, txn.tid) == "Ongoing":  # the decision had not been made: the producer asks again
                    assert wire.call(EndTxnRequest(txn.tid, txn.producer_id, txn.epoch, True), 3).error_code == 0
                for partition in range(PARTITIONS):
                    wanted = [b"%d" % n for n in range(number + 1)]
                    eventually(lambda p=partition, v=wanted: read(wire, "t", p).values == v)  # type: ignore[misc]


@pytest.mark.parametrize("version", [9, 12])
def test_open_transaction_goes_on_after_a_kill(tmp_path: Path, version: int) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Wire(broker.address) as wire:
            wire.create_topic("t", PARTITIONS)
            txn = begin(wire, "id", b"before", version)
            broker.kill9()
        broker.restart()
        with Wire(broker.address) as wire:
            assert read(wire, "t").values == []
            txn.wire = wire
            assert txn.produce("t", b"after", version=version) == 0
            assert txn.end(True, 5 if version >= 12 else 3).error_code == 0
            eventually(lambda: read(wire, "t").values == [b"before", b"after"])
            eventually(lambda: read(wire, "t", 1).values == [b"before"])


def test_open_transaction_of_a_producer_that_never_returns_times_out_after_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Wire(broker.address) as wire:
            wire.create_topic("t", 1)
            txn = TransactionWire(wire, "id")
            txn.init(timeout_ms=1_500)
            txn.add("t", 0)
            assert txn.produce("t", b"lost") == 0
            broker.kill9()
        broker.restart()
        with Wire(broker.address) as wire:
            eventually(lambda: read(wire, "t").last_stable_offset == 2)
            assert read(wire, "t").values == []
            txn.wire = wire
            assert txn.end(True).error_code == ErrorCode.PRODUCER_FENCED


def test_epochs_and_producer_ids_are_never_handed_out_twice(tmp_path: Path) -> None:
    seen: set[tuple[int, int]] = set()
    with BrokerProcess(tmp_path) as broker:
        for _ in range(3):
            with Wire(broker.address) as wire:
                for name in ("a", "b", "a"):
                    txn = TransactionWire(wire, name)
                    assert txn.init().error_code == 0
                    assert (txn.producer_id, txn.epoch) not in seen
                    seen.add((txn.producer_id, txn.epoch))
                broker.kill9()
            broker.restart()
    assert {epoch for _, epoch in seen} == set(range(6))
