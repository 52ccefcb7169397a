"""Whoever asks for the end of a log learns of all records that were acknowledged before, flushed or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog.broker.log.flusher import FlushTask
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from support.raw_connection import STAMP_MS, RawConnection, batch

TIMES = 20
"""Without the wait, nearly every request would come before the flush."""

LATEST, EARLIEST, NEWEST = -1, -2, -3


async def listed(
    wire: RawConnection, topic: str, *timestamps: int, isolation: int = 0
) -> list[ListOffsetsPartitionResponse]:
    """Return the row of partition 0, 1, ... for each timestamp."""
    partitions = [ListOffsetsPartition(index, -1, timestamp) for index, timestamp in enumerate(timestamps)]
    answer = await wire.call(ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(topic, partitions)]), 7)
    return answer.topics[0].partitions


async def delete_before(wire: RawConnection, topic: str, *offsets: int) -> list[DeleteRecordsPartitionResult]:
    partitions = [DeleteRecordsPartition(index, offset) for index, offset in enumerate(offsets)]
    answer = await wire.call(DeleteRecordsRequest([DeleteRecordsTopic(topic, partitions)], 10_000), 2)
    return answer.topics[0].partitions


@pytest.mark.parametrize("isolation", [0, 1], ids=["read_uncommitted", "read_committed"])
async def test_the_end_includes_what_was_acknowledged(bootstrap: str, fresh_name: Any, isolation: int) -> None:
    topic = fresh_name("end")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        for count in range(1, TIMES + 1):
            answer = await wire.produce(topic, batch(b"v"), acks=1)
            (row,) = await listed(wire, topic, LATEST, isolation=isolation)
            assert row.offset == answer.base_offset + 1 == count


@pytest.mark.parametrize(("timestamp", "found"), [(NEWEST, "the last"), (STAMP_MS, "the first")])
async def test_times_are_those_of_what_was_acknowledged(
    bootstrap: str, fresh_name: Any, timestamp: int, found: str
) -> None:
    async with RawConnection(bootstrap) as wire:
        for _ in range(TIMES):
            topic = fresh_name("times")
            await wire.create_topic(topic)
            await wire.produce(topic, batch(b"v"), acks=1)
            (row,) = await listed(wire, topic, timestamp)
            assert (row.offset, row.timestamp) == (0, STAMP_MS), found


async def test_what_was_acknowledged_can_be_deleted(bootstrap: str, fresh_name: Any) -> None:
    topic = fresh_name("deleted")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        for count in range(1, TIMES + 1):
            answer = await wire.produce(topic, batch(b"v"), acks=1)
            (row,) = await delete_before(wire, topic, answer.base_offset + 1 if count % 2 else -1)
            assert (row.error_code, row.low_watermark) == (0, count)


@pytest.mark.oncelog_only(reason="keeps a disk from flushing")
async def test_a_disk_that_does_not_flush_keeps_nobody_waiting_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the end is that of what is on disk, and rows that do not depend on it are the same."""
    monkeypatch.setattr("oncelog.broker.api.flush_wait.LONGEST_WAIT_S", 0.05)
    async with BrokerNode() as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", partitions=2)
        for partition in (0, 1):
            await wire.produce("t", batch(b"v"), partition=partition)
        flushing = asyncio.Event()
        with monkeypatch.context() as patch:
            patch.setattr(FlushTask, "run", lambda task, fs: asyncio.run(_until(flushing)))
            await wire.produce("t", batch(b"v"), acks=1)
            async with asyncio.timeout(30):
                rows = await listed(wire, "t", LATEST, LATEST)
                assert [row.offset for row in rows] == [1, 1]
                assert [row.offset for row in await listed(wire, "t", EARLIEST, NEWEST)] == [0, 0]
                (deleted,) = await delete_before(wire, "t", 2)
                assert deleted.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            flushing.set()


async def _until(event: asyncio.Event) -> None:
    while not event.is_set():
        await asyncio.sleep(0.001)
