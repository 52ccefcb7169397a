"""A broker in a test: the code under test talks to a real broker, which starts in about half a second.

Shows   A broker for the session as a pytest fixture, a separate topic for each test, and two tests: written records can
        be read, and a transaction that fails halfway leaves no records behind.
Run     pip install oncelog pytest
        pytest examples/test_orders.py
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from oncelog.sync import Admin, Broker, Consumer, Producer


def place_order(producer: Producer, topic: str, customer: str, items: list[str]) -> None:
    """Write all items of an order, or none. This is the code under test, which you would import from your package."""
    with producer.transaction() as txn:
        for item in items:
            if not item:
                raise ValueError(f"{customer}'s order has an item without a name")
            txn.send(topic, item.encode(), key=customer.encode())


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """Yield the address of a broker on a free port; its data is removed at the end of the session."""
    with Broker() as broker:
        yield broker.address


@pytest.fixture
def topic(bootstrap: str) -> str:
    """Create a new topic for a test, so that tests do not see each other's records; return its name."""
    name = f"orders-{uuid.uuid4().hex}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(name, partitions=3)
    return name


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=bootstrap, transactional_id="test-orders") as producer:
        yield producer


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    """Return all committed values of a topic. Reading stops at the end offsets, so the test needs no waiting time."""
    values: list[bytes | None] = []
    with Consumer(bootstrap_servers=bootstrap) as everything:  # read_uncommitted: end offsets include open transactions
        partitions = [(topic, one.index) for one in everything.partitions_for(topic)]
        ends = everything.end_offsets(partitions)
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            values += [record.value for record in consumer.poll(timeout_ms=1000)]
    return values


def test_an_order_is_written(producer: Producer, bootstrap: str, topic: str) -> None:
    place_order(producer, topic, "alice", ["apples", "pears"])
    assert committed(bootstrap, topic) == [b"apples", b"pears"]  # records with one key keep their order


def test_half_an_order_is_never_seen(producer: Producer, bootstrap: str, topic: str) -> None:
    with pytest.raises(ValueError, match="alice's order"):
        place_order(producer, topic, "alice", ["apples", ""])
    assert committed(bootstrap, topic) == []
