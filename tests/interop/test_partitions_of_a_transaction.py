"""The limit of the partitions of a transaction: clients abort the transaction, and can then continue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from oncelog import Admin, KafkaError, Producer
from oncelog.protocol.errors import ErrorCode
from support.broker import BrokerProcess
from support.proxy import FaultProxy
from support.transaction_wire import read_decided
from support.wire import Wire

pytestmark = pytest.mark.oncelog_only(reason="brokers with a limit of their own")

MOST = 3


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    """A broker with one topic, which has one partition more than a transaction may have."""
    with BrokerProcess(tmp_path, "--set", f"transaction.max.partitions={MOST}") as broker:
        asyncio.run(_create_topic(broker.address))
        yield broker.address


async def _create_topic(address: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topic("t", MOST + 1)


def committed(address: str) -> list[list[bytes]]:
    with Wire(address) as wire:
        return [read_decided(wire, "t", partition) for partition in range(MOST + 1)]


async def write_to_too_many(producer: Producer[Any, Any]) -> None:
    async with producer.transaction():
        for partition in range(MOST + 1):
            await producer.send("t", b"aborted", partition=partition)


@pytest.mark.parametrize("level", [1, 2])
async def test_bundled_client_aborts_and_continues(bootstrap: str, level: int) -> None:
    async with FaultProxy(bootstrap) as proxy:
        proxy.features["transaction.version"] = level
        async with Producer(bootstrap_servers=proxy.address, transactional_id="id", linger_ms=0) as producer:
            await producer.init_transactions()
            with pytest.raises(KafkaError) as raised:
                await write_to_too_many(producer)
            assert raised.value.code == ErrorCode.POLICY_VIOLATION
            async with producer.transaction():
                await producer.send("t", b"committed", partition=MOST)
    assert committed(bootstrap) == [[]] * MOST + [[b"committed"]]


def test_librdkafka_aborts_and_continues(bootstrap: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "id", "linger.ms": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition in range(MOST + 1):
        producer.produce("t", b"aborted", partition=partition)
        producer.flush(0 if partition == MOST else 20)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.commit_transaction(20)
    assert raised.value.args[0].txn_requires_abort()
    producer.abort_transaction(20)
    producer.begin_transaction()
    producer.produce("t", b"committed", partition=MOST)
    producer.commit_transaction(20)
    assert committed(bootstrap) == [[]] * MOST + [[b"committed"]]
