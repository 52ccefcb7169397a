"""A broker in a test: the code under test talks to a real one, which starts in about half a second.

Shows   A session's broker as a pytest fixture, a topic of its own for each test, and two tests: what is written is
        read back, and what fails half-way leaves nothing behind.
Run     pip install oncelog pytest
        pytest examples/test_orders.py
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from oncelog.sync import Admin, Broker, Consumer, Producer


def place_order(producer: Producer, topic: str, customer: str, items: list[str]) -> None:
    """The code under test, which would be imported from your package: write all items of an order, or none."""
    with producer.transaction() as txn:
        for item in items:
            if not item:
                raise ValueError(f"{customer}'s order has an item without a name")
            txn.send(topic, item.encode(), key=customer.encode())


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """The address of a broker on a free port; its data is removed at the end."""
    with Broker() as broker:
        yield broker.address


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic, so that tests do not see each other's records."""
    name = f"orders-{uuid.uuid4().hex}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(name, partitions=3)
    return name


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=bootstrap, transactional_id="test-orders") as producer:
        yield producer


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    """Return all committed values of a topic: the positions reach the ends, so nothing has to be waited for."""
    values: list[bytes | None] = []
    with Consumer(bootstrap_servers=bootstrap) as everything:  # open transactions, too
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
    assert committed(bootstrap, topic) == [b"apples", b"pears"]  # one key, one partition, one order


def test_half_an_order_is_never_seen(producer: Producer, bootstrap: str, topic: str) -> None:
    with pytest.raises(ValueError, match="alice's order"):
        place_order(producer, topic, "alice", ["apples", ""])
    assert committed(bootstrap, topic) == []
