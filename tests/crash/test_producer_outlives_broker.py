"""The bundled producer while the broker is killed with -9 and started again: nothing lost, doubled or out of order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from oncelog import AbortableError, ConsumerGroupMetadata, Producer
from support.broker import BrokerProcess
from support.reading import committed_offset, make_topic, read_topic

RECORDS, TRANSACTIONS, KILLS = 12_000, 80, 2


async def records(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, batch_size=1000) as producer:
        for number in range(RECORDS):
            await producer.enqueue("records", b"%06d" % number, partition=number % 2)


async def transactions(bootstrap: str) -> None:
    done = 0
    async with Producer(bootstrap_servers=bootstrap, transactional_id="job") as producer:
        while done < TRANSACTIONS:
            try:
                async with producer.transaction() as txn:
                    for number in range(done * 5, done * 5 + 5):
                        txn.send("transactions", b"%06d" % number)
                    await txn.send_offsets({("records", 0): done}, ConsumerGroupMetadata("group"))
                done += 1
            except AbortableError:
                continue


@pytest.mark.timeout(180)
@pytest.mark.oncelog_only(reason="kills its own broker")
async def test_kill_9_under_records_and_transactions(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        make_topic(broker.address, "records", 2)
        make_topic(broker.address, "transactions")
        async with asyncio.TaskGroup() as group:
            group.create_task(records(broker.address))
            group.create_task(transactions(broker.address))
            for _ in range(KILLS):
                await asyncio.sleep(0.7)
                await asyncio.to_thread(broker.kill9)
                await asyncio.to_thread(broker.restart)
        for partition, found in read_topic(broker.address, "records").items():
            assert [message.value() for message in found] == [b"%06d" % n for n in range(partition, RECORDS, 2)]
        found = read_topic(broker.address, "transactions")[0]
        assert [message.value() for message in found] == [b"%06d" % number for number in range(TRANSACTIONS * 5)]
        assert committed_offset(broker.address, "group", "records", 0) == TRANSACTIONS - 1
