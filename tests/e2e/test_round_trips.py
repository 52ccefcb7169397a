"""How many requests a steady transaction costs, counted on the wire. On our broker and, with --kafka, on Kafka 4.1."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer as StockProducer
from oncelog import ConsumerGroupMetadata, Producer, TopicPartition
from support.back_to_back import PATIENT
from support.broker import BrokerProcess
from support.proxy import FaultProxy
from support.topics import created_topic

Names = Callable[[str], str]
FIRST, MORE = 3, 20


async def cost(proxy: FaultProxy, transaction: Callable[[], Awaitable[None]]) -> Counter[str]:
    """Requests of MORE transactions, after the FIRST ones have found and registered what they need."""
    for _ in range(FIRST):
        await transaction()
    before = proxy.seen.copy()
    for _ in range(MORE):
        await transaction()
    background = ("Metadata", "ApiVersions", "FindCoordinator")
    spent = proxy.seen - before
    return Counter({name: count for name, count in spent.items() if name not in background})


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Ours never sends a request away here, however slow the machine is: each one that is repeated would be counted."""
    if request.config.getoption("--kafka"):
        yield request.getfixturevalue("bootstrap")
        return
    with BrokerProcess(tmp_path, *PATIENT) as broker:
        yield broker.address


@pytest.fixture
async def topic(address: str, fresh_name: Names) -> str:
    return await created_topic(address, fresh_name("topic"), 3)


async def test_one_partition_takes_two_requests(address: str, topic: str, fresh_name: Names) -> None:
    async with (
        FaultProxy(address) as proxy,
        Producer(bootstrap_servers=proxy.address, transactional_id=fresh_name("id"), linger_ms=0) as producer,
    ):
        await producer.init_transactions()

        async def transaction() -> None:
            async with producer.transaction() as txn:
                txn.send(topic, b"x", partition=0)

        assert await cost(proxy, transaction) == {"Produce": MORE, "EndTxn": MORE}


async def test_offsets_take_one_more(
    request: pytest.FixtureRequest, address: str, topic: str, fresh_name: Names
) -> None:
    group = ConsumerGroupMetadata(fresh_name("group"))
    async with (
        FaultProxy(address) as proxy,
        Producer(bootstrap_servers=proxy.address, transactional_id=fresh_name("id"), linger_ms=0) as producer,
    ):
        await producer.init_transactions()

        async def transaction() -> None:
            async with producer.transaction() as txn:
                txn.send(topic, b"x", partition=0)
                await txn.send_offsets({TopicPartition(topic, 1): 5}, group)

        spent = await cost(proxy, transaction)
        if request.config.getoption("--kafka"):  # where some are sent away, and ask again
            spent = Counter({name: min(count, MORE) for name, count in spent.items()})
        assert spent == {"Produce": MORE, "TxnOffsetCommit": MORE, "EndTxn": MORE}


@pytest.mark.oncelog_only(reason="transaction sessions")
async def test_partitions_registered_beforehand_take_no_more(address: str, topic: str, fresh_name: Names) -> None:
    partitions = [TopicPartition(topic, index) for index in range(3)]
    async with (
        FaultProxy(address) as proxy,
        Producer(bootstrap_servers=proxy.address, transactional_id=fresh_name("id"), linger_ms=50) as producer,
    ):
        await producer.init_transactions()

        async def transaction() -> None:
            async with producer.transaction(partitions) as txn:
                for one in partitions:
                    txn.send(topic, b"x", partition=one.partition)

        assert await cost(proxy, transaction) == {"Produce": MORE, "EndTxn": MORE}


async def test_client_before_kip_890_registers_each_time(address: str, topic: str, fresh_name: Names) -> None:
    name = fresh_name("id")
    async with FaultProxy(address) as proxy:
        producer = StockProducer({"bootstrap.servers": proxy.address, "transactional.id": name, "linger.ms": 0})
        await asyncio.to_thread(producer.init_transactions, 30)

        def one() -> None:
            producer.begin_transaction()
            producer.produce(topic, b"x", partition=0)
            producer.commit_transaction(30)

        async def transaction() -> None:
            await asyncio.to_thread(one)

        spent = await cost(proxy, transaction)
        assert spent["Produce"] == spent["EndTxn"] == MORE
        assert spent["AddPartitionsToTxn"] >= MORE  # more where it is sent away and asks again
