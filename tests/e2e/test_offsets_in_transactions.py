"""Offsets that count when a transaction commits, on oncelog and (with --kafka) on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from support.broker import BrokerProcess
from support.group_wire import Member, commit, fetch, served, txn_commit
from support.transaction_wire import TransactionWire
from support.wire import Wire, eventually, retry

E = ErrorCode
Fresh = Callable[[str], str]


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    with Wire(bootstrap) as wire:
        yield wire


@pytest.fixture
def group(wire: Wire, fresh_name: Fresh) -> str:
    return served(wire, fresh_name("group"))


@pytest.fixture
def topic(wire: Wire, fresh_name: Fresh) -> str:
    name = fresh_name("topic")
    wire.create_topic(name, 2)
    return name


@pytest.fixture
def txn(wire: Wire, fresh_name: Fresh) -> TransactionWire:
    return TransactionWire(wire, fresh_name("id"))


def add_offsets(txn: TransactionWire, group: str) -> int:
    """AddOffsetsToTxn."""
    request = AddOffsetsToTxnRequest(txn.tid, txn.producer_id, txn.epoch, group)
    return retry(lambda: txn.wire.call(request, 3), lambda got: got.error_code, E.CONCURRENT_TRANSACTIONS).error_code


def offset_of(wire: Wire, group: str, topic: str, version: int = 9, *, stable: bool = False) -> int | ErrorCode:
    """The committed offset of partition 0, or the error in its place."""
    found = fetch(wire, group, [(topic, 0)], version, stable=stable)[topic, 0]
    return found.error or found.offset


def is_committed(wire: Wire, group: str, offset: int) -> bool:
    return offset_of(wire, group, "t", stable=True) == offset


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_offsets_count_when_their_transaction_commits(
    wire: Wire, txn: TransactionWire, group: str, topic: str, version: int, commits: bool
) -> None:
    commit(wire, group, {(topic, 0): 1})
    txn.init()
    if version < 5:
        assert add_offsets(txn, group) == 0
    assert txn_commit(txn, group, {(topic, 0): 10, (topic, 9): 1}, version) == {
        (topic, 0): E.NONE,
        (topic, 9): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert offset_of(wire, group, topic) == 1
    for asked in (7, 8, 9):
        assert offset_of(wire, group, topic, asked, stable=True) is E.UNSTABLE_OFFSET_COMMIT
    other = fetch(wire, group, [(topic, 1)], stable=True)[topic, 1]
    assert (other.offset, other.error) == (-1, E.NONE)
    assert txn.end(commits, 5 if version == 5 else 3).error_code == 0
    eventually(lambda: offset_of(wire, group, topic, stable=True) == (10 if commits else 1))


@pytest.mark.parametrize(("version", "expected"), [(3, E.INVALID_TXN_STATE), (4, E.TRANSACTION_ABORTABLE)])
def test_offsets_outside_of_the_transaction_are_refused(
    wire: Wire, txn: TransactionWire, group: str, topic: str, version: int, expected: ErrorCode
) -> None:
    txn.init()
    txn.add(topic, 0)
    assert txn_commit(txn, group, {(topic, 0): 10}, version) == {(topic, 0): expected}
    txn.end(False)
    assert offset_of(wire, group, topic, stable=True) == -1


@pytest.mark.parametrize("version", [3, 5])
def test_a_fenced_producer_commits_nothing(
    wire: Wire, txn: TransactionWire, group: str, topic: str, version: int
) -> None:
    txn.init()
    assert add_offsets(txn, group) == 0
    zombie = TransactionWire(wire, txn.tid)
    zombie.producer_id, zombie.epoch = txn.producer_id, txn.epoch
    txn.init()
    codes = txn_commit(zombie, group, {(topic, 0): 10}, version)
    assert codes[topic, 0] in (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)
    assert offset_of(wire, group, topic, stable=True) == -1


def test_members_are_checked_by_generation_member_and_instance(
    bootstrap: str, wire: Wire, txn: TransactionWire, group: str, topic: str
) -> None:
    with ExitStack() as stack:
        one = Member(stack.enter_context(Wire(bootstrap)), group, instance="i")
        one.join()
        one.sync({})
        txn.init()
        assert add_offsets(txn, group) == 0

        def code(generation: int, member: str, instance: str | None = None, version: int = 3) -> ErrorCode:
            return txn_commit(
                txn,
                group,
                {(topic, 0): 10},
                version,
                generation_id=generation,
                member_id=member,
                group_instance_id=instance,
            )[topic, 0]

        assert code(0, one.member_id) is E.ILLEGAL_GENERATION
        assert code(1, "stranger") is E.UNKNOWN_MEMBER_ID
        assert code(1, "stranger", "i") is E.FENCED_INSTANCE_ID
        assert offset_of(wire, group, topic, stable=True) == -1
        assert code(1, one.member_id, "i") is E.NONE
        assert code(1, one.member_id, "i", version=5) is E.NONE
        assert txn_commit(txn, group, {(topic, 0): 11}, 2) == {(topic, 0): E.NONE}
        txn.end(True)
    eventually(lambda: offset_of(wire, group, topic, stable=True) == 11)


def test_an_unknown_group_is_refused_with_a_generation_and_made_without(
    wire: Wire, txn: TransactionWire, group: str, topic: str
) -> None:
    txn.init()
    assert add_offsets(txn, group) == 0
    refused = txn_commit(txn, group, {(topic, 0): 1}, generation_id=1, member_id="m")
    assert refused == {(topic, 0): E.ILLEGAL_GENERATION}
    assert txn_commit(txn, group, {(topic, 0): 1}) == {(topic, 0): E.NONE}
    txn.end(True)
    eventually(lambda: offset_of(wire, group, topic, stable=True) == 1)


@pytest.mark.oncelog_only(reason="kills and restarts its own broker")
@pytest.mark.parametrize("crash", [True, False], ids=["kill -9", "restart"])
def test_pending_offsets_and_members_survive(tmp_path: Path, crash: bool) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Wire(broker.address) as wire, Wire(broker.address) as own:
            wire.create_topic("t", 1)
            one = Member(own, "members", instance="i")
            one.join()
            one.sync({one.member_id: b"mine"})
            assert one.commit(("t", 0), 3) is E.NONE
            txns = [TransactionWire(wire, name) for name in ("commits", "aborts", "times out")]
            for number, txn in enumerate(txns):
                txn.init(timeout_ms=1500 if txn.tid == "times out" else 60_000)
                assert txn_commit(txn, f"group-{number}", {("t", 0): 10}, 5) == {("t", 0): E.NONE}
        if crash:
            broker.kill9()
            broker.start()
        else:
            broker.restart()
        with Wire(broker.address) as wire, Wire(broker.address) as own:
            one.wire = own
            assert one.heartbeat() is E.NONE
            assert one.sync().assignment == b"mine"
            assert offset_of(wire, "members", "t", stable=True) == 3
            for number in range(2):
                assert offset_of(wire, f"group-{number}", "t", stable=True) is E.UNSTABLE_OFFSET_COMMIT
            for txn in txns[:2]:
                txn.wire = wire
                assert txn.end(txn.tid == "commits", 5).error_code == 0
            for number, expected in enumerate((10, -1, -1)):
                eventually(partial(is_committed, wire, f"group-{number}", expected))
