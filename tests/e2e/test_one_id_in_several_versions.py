"""Clients of different ages use one transactional id, or one epoch for several transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from oncelog.protocol.errors import ErrorCode
from support.transaction_wire import TransactionWire, read_decided
from support.wire import Wire

Name = Callable[[str], str]

pytestmark = pytest.mark.oncelog_only(reason="Apache Kafka accepts the requests that are refused here")


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    with Wire(bootstrap) as connection:
        yield connection


@pytest.mark.parametrize("commit", [False, True])
def test_a_fenced_producer_gets_no_identity_of_an_older_successor(wire: Wire, fresh_name: Name, commit: bool) -> None:
    """Its EndTxn v5 is no repetition of the successor's, which has the same epoch in all of its transactions."""
    topic, id = fresh_name("topic"), fresh_name("id")
    wire.create_topic(topic)
    fenced, successor = TransactionWire(wire, id), TransactionWire(wire, id)
    fenced.init(5)
    successor.init(4)
    successor.add(topic, 0, version=3)
    assert successor.produce(topic, b"first", version=9) == 0
    assert successor.end(commit, version=3).error_code == 0
    assert fenced.produce(topic, b"zombie", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert fenced.end(commit, version=5).error_code == ErrorCode.PRODUCER_FENCED
    assert fenced.end(not commit, version=5).error_code == ErrorCode.PRODUCER_FENCED
    successor.add(topic, 0, version=3)
    assert successor.produce(topic, b"second", version=9) == 0
    assert successor.end(True, version=3).error_code == 0
    assert read_decided(wire, topic) == [b"first", b"second"][0 if commit else 1 :]


@pytest.mark.parametrize("commit", [False, True])
def test_a_batch_is_no_duplicate_of_one_of_an_ended_transaction(wire: Wire, fresh_name: Name, commit: bool) -> None:
    """A producer that has no response to its first batch uses the sequence again, for another record."""
    topic = fresh_name("topic")
    wire.create_topic(topic)
    producer = TransactionWire(wire, fresh_name("id"))
    producer.init(4)
    producer.add(topic, 0)
    assert producer.produce(topic, b"first") == 0
    assert producer.end(commit).error_code == 0
    producer.sequences.clear()
    producer.add(topic, 0)
    assert producer.produce(topic, b"second") == ErrorCode.INVALID_TXN_STATE  # TRANSACTION_ABORTABLE from v11 on
    assert producer.end(False).error_code == 0
    assert read_decided(wire, topic) == ([b"first"] if commit else [])
