"""Attack with small batches that cost the broker a lot: files, memory, time."""

from __future__ import annotations

import asyncio
import contextlib

from oncelog.protocol.batch_header import assemble_batch
from oncelog.protocol.compression import Compression, compress
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.record_varint import write_varint
from oncelog.protocol.records import encode_record
from support.hostile.attack import attack
from support.hostile.requests import ask
from support.hostile.siege import Siege
from support.raw_connection import STAMP_MS, batch

INT32_MAX = 2**31 - 1


def long_batch() -> bytes:
    """Return a batch of one record that claims as many offsets as possible: the next batch needs a new segment."""
    record = encode_record(0, 0, None, b"", [])
    return assemble_batch(
        record,
        base_offset=0,
        leader_epoch=-1,
        attributes=0,
        last_offset_delta=INT32_MAX - 1,
        base_timestamp=STAMP_MS,
        max_timestamp=STAMP_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=INT32_MAX,
    )


def many_headers(count: int) -> bytes:
    """Return a batch of one record with `count` empty headers, compressed to a few kilobytes."""
    body = bytearray(1)
    write_varint(body, 0)
    write_varint(body, 0)
    body += b"\x02k\x01"  # the key "k", which compaction looks at, and no value
    write_varint(body, count)
    body += b"\x00\x01" * count
    record = bytearray()
    write_varint(record, len(body))
    return assemble_batch(
        compress(Compression.ZSTD, bytes(record + body)),
        base_offset=0,
        leader_epoch=-1,
        attributes=Compression.ZSTD,
        last_offset_delta=0,
        base_timestamp=STAMP_MS,
        max_timestamp=STAMP_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )


@attack("batches of 68 bytes that need a segment each", short=True)
async def segment_each(siege: Siege, whole: bool) -> None:
    async with siege.wire() as wire:
        await wire.create_topic("t", 24)
        data = long_batch()
        for _ in range(1000 if whole else 20):
            parts = [PartitionProduceData(index, data) for index in range(24)]
            request = ProduceRequest(
                acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData("t", partition_data=parts)]
            )
            await wire.call(request, 9)


@attack("a record in each of 30,000 partitions")
async def many_partitions(siege: Siege, whole: bool) -> None:
    await fill_partitions(siege, topics=3 if whole else 1, partitions=10_000 if whole else 500)


@attack("a record in each of 2,000 partitions where 1,024 files may be open", descriptors=1024)
async def more_partitions_than_descriptors(siege: Siege, whole: bool) -> None:
    await fill_partitions(siege, topics=1, partitions=2000)


async def fill_partitions(siege: Siege, topics: int, partitions: int) -> None:
    record = batch(b"x")
    for number in range(topics):
        name = f"wide-{number}"
        await ask(siege, CreateTopicsRequest([CreatableTopic(name, partitions, -1, [], [])], 10_000), 7)
        async with siege.wire() as wire:
            for first in range(0, partitions, 500):
                parts = [PartitionProduceData(index, record) for index in range(first, min(first + 500, partitions))]
                data = [TopicProduceData(name, partition_data=parts)]
                await wire.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data), 9)


@attack("30,000,000 headers in a record of 5 KB, produced to a compacted topic")
async def headers_to_compacted(siege: Siege, whole: bool) -> None:
    data = many_headers(30_000_000 if whole else 500_000)
    async with siege.wire() as wire:
        await wire.create_topic("t", cleanup_policy="compact")
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            for _ in range(3):
                await wire.produce("t", data)


@attack("30,000,000 headers in a record of 5 KB, looked for by time")
async def headers_by_time(siege: Siege, whole: bool) -> None:
    data = many_headers(30_000_000 if whole else 500_000)
    async with siege.wire() as wire:
        await wire.create_topic("t")
        await wire.produce("t", data)
    for timestamp in (STAMP_MS - 1, STAMP_MS, -3):
        topic = ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])
        await ask(siege, ListOffsetsRequest(-1, 0, [topic]), 7)


@attack(
    "six records of 30,000,000 headers, compacted",
    "log.cleaner.backoff.ms=100",
    "log.cleaner.min.cleanable.ratio=0",
    short=True,
)
async def headers_compacted(siege: Siege, whole: bool) -> None:
    data = many_headers(30_000_000 if whole else 500_000)
    async with siege.wire() as wire:
        await wire.create_topic("t", cleanup_policy="compact", segment_bytes="6000")
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            for _ in range(6):
                await wire.produce("t", data)
    await asyncio.sleep(5 if whole else 0.5)  # the cleaner runs meanwhile
