"""A producer epoch has 16 bits, and every transaction of KIP-890 takes one: past 32,766 a new producer id takes over.

Nobody may notice: not the producer in the middle of its work, not a new instance, not a reader.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from oncelog import Admin
from oncelog.broker.coordinator.transaction.state import MAX_PRODUCER_EPOCH, TransactionVersion
from oncelog.broker.coordinator.transaction.transaction_log import TRANSACTION_STATE_TOPIC, encode_key, encode_value
from oncelog.broker.log import AppendOrigin
from oncelog.broker.node import BrokerNode
from oncelog.client.admin import TransactionDescription
from oncelog.protocol.internal_topics import partition_for_key
from oncelog.protocol.records import Record, encode_batch
from support.back_to_back import bundled, librdkafka
from support.transaction_wire import read_decided
from support.wire import Wire

Names = Callable[[str], str]


async def used_up_to(epoch: int, directory: Path, transactional_id: str) -> None:
    """Leave a data directory behind in which the id has that epoch, as after so many transactions."""
    async with BrokerNode(directory, logging_level="error") as broker:
        async with Admin(bootstrap_servers=broker.address) as admin:
            await admin.fence_producers([transactional_id])
        metadata = dataclasses.replace(broker.transaction_coordinator.describe(transactional_id), producer_epoch=epoch)
        value = encode_value(metadata, TransactionVersion.TV_2)
        record = Record(0, metadata.last_update_timestamp_ms, encode_key(transactional_id), value, [])
        topic = broker.metadata.topic(TRANSACTION_STATE_TOPIC)
        assert topic is not None
        home = partition_for_key(transactional_id, topic.partitions)
        log = broker.replica_manager.partition(TRANSACTION_STATE_TOPIC, home).log
        log.append(encode_batch([record]), origin=AppendOrigin.COORDINATOR)


async def described(address: str, transactional_id: str) -> TransactionDescription:
    async with Admin(bootstrap_servers=address) as admin:
        return (await admin.describe_transactions([transactional_id]))[transactional_id]


async def values_of(address: str, topic: str, count: int) -> list[bytes]:
    """All committed records of partition 0, when the last markers are there."""

    def all_of_them() -> list[bytes]:
        with Wire(address) as wire:
            return read_decided(wire, topic)

    values = await asyncio.to_thread(all_of_them)
    assert len(values) == count
    return values


@pytest.mark.oncelog_only(reason="makes a data directory in which the epochs are nearly used up")
async def test_producer_works_on_under_a_new_producer_id(tmp_path: Path) -> None:
    await used_up_to(MAX_PRODUCER_EPOCH - 30, tmp_path, "worker")
    async with BrokerNode(tmp_path, logging_level="error") as broker:
        async with Admin(bootstrap_servers=broker.address) as admin:
            await admin.create_topic("t", 1)
        before = await described(broker.address, "worker")
        await asyncio.to_thread(bundled, broker.address, "t", "worker", 60)
        after = await described(broker.address, "worker")
        assert before.producer_epoch == MAX_PRODUCER_EPOCH - 30
        assert after.producer_id != before.producer_id
        assert 0 < after.producer_epoch < 60
        assert await values_of(broker.address, "t", 60) == [str(number).encode() for number in range(60)]


@pytest.mark.oncelog_only(reason="makes a data directory in which the epochs are nearly used up")
async def test_instances_of_older_clients_work_on_under_a_new_producer_id(tmp_path: Path) -> None:
    """librdkafka takes one epoch per instance, and one more where an instance left a transaction open."""
    await used_up_to(MAX_PRODUCER_EPOCH - 6, tmp_path, "worker")
    async with BrokerNode(tmp_path, logging_level="error") as broker:
        async with Admin(bootstrap_servers=broker.address) as admin:
            await admin.create_topic("t", 1)
        before = await described(broker.address, "worker")
        for _ in range(12):
            await asyncio.to_thread(librdkafka, broker.address, "t", "worker", 3)
        after = await described(broker.address, "worker")
        assert after.producer_id != before.producer_id
        assert await values_of(broker.address, "t", 36) == [b"0", b"1", b"2"] * 12


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_forty_thousand_transactions_of_the_bundled_client(bootstrap: str, fresh_name: Names) -> None:
    name, count = fresh_name("worker"), 40_000
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(name, 1)
        first = (await admin.fence_producers([name]))[name].producer_id
    await asyncio.to_thread(bundled, bootstrap, name, name, count)
    assert (await described(bootstrap, name)).producer_id != first
    assert await values_of(bootstrap, name, count) == [str(number).encode() for number in range(count)]


@pytest.mark.slow
@pytest.mark.oncelog_only(reason="makes a data directory in which the epochs are nearly used up")
@pytest.mark.timeout(3600)
async def test_forty_thousand_transactions_of_librdkafka(tmp_path: Path) -> None:
    """100 in an instance, 400 instances; the limit is in their middle."""
    await used_up_to(MAX_PRODUCER_EPOCH - 200, tmp_path, "worker")
    async with BrokerNode(tmp_path, logging_level="error") as broker:
        async with Admin(bootstrap_servers=broker.address) as admin:
            await admin.create_topic("t", 1)
        before = await described(broker.address, "worker")
        for _ in range(400):
            await asyncio.to_thread(librdkafka, broker.address, "t", "worker", 100)
        assert (await described(broker.address, "worker")).producer_id != before.producer_id
        expected = [str(number).encode() for number in range(100)] * 400
        assert await values_of(broker.address, "t", 40_000) == expected
