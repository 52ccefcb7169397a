"""A broker with few file descriptors serves more partitions and segments than it may have files open."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from oncelog.protocol.batch_header import CRC_END, CRC_START
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.broker import BrokerProcess
from support.raw_connection import STAMP_MS, RawConnection, batch, values_in

pytestmark = pytest.mark.oncelog_only(reason="limits the descriptors of a broker process of its own")


BESIDE_THE_POOL = 24
"""The files that a broker may have open beside those of its pool: its lock, the journal, and the directories that up to
16 threads sync at the same time."""


class LimitedBroker(BrokerProcess):
    """A broker process that may have `descriptors` open."""

    def __init__(self, directory: Path, descriptors: int, *arguments: str) -> None:
        super().__init__(directory, *arguments)
        self.descriptors: int = descriptors

    def open_data_files(self) -> int:
        """How many files of the data directory the process has open."""
        count = 0
        for descriptor in os.listdir(f"/proc/{self.pid}/fd"):
            try:
                target = os.readlink(f"/proc/{self.pid}/fd/{descriptor}")
            except FileNotFoundError:
                continue
            count += target.startswith(str(self.data_dir))
        return count

    def check_healthy(self) -> None:
        log = self.log.read_text()
        assert '"level": "error"' not in log, log[-2000:]
        assert "failed" not in log, log[-2000:]


async def create(wire: RawConnection, topic: str, partitions: int) -> None:
    response = await wire.call(CreateTopicsRequest([CreatableTopic(topic, partitions, -1, [], [])], 10_000), 7)
    assert [row.error_code for row in response.topics] == [0], response


async def produce_to_all(wire: RawConnection, topic: str, partitions: int, prefix: bytes, step: int) -> None:
    """One record to each partition, `step` partitions in a request."""
    for first in range(0, partitions, step):
        rows = [
            PartitionProduceData(index, batch(prefix + b"%d" % index))
            for index in range(first, min(first + step, partitions))
        ]
        answer = await wire.call(
            ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(topic, partition_data=rows)]), 9
        )
        codes = {row.error_code for row in answer.responses[0].partition_responses}
        assert codes == {0}, answer.responses[0].partition_responses[:3]


async def check_all(wire: RawConnection, topic: str, partitions: int, prefixes: list[bytes], step: int) -> None:
    """Read every partition from its beginning, and look up a timestamp in it."""
    for first in range(0, partitions, step):
        indexes = range(first, min(first + step, partitions))
        rows = [FetchPartition(index, -1, 0, partition_max_bytes=1 << 20) for index in indexes]
        answer = await wire.call(
            FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic, partitions=rows)]), 12
        )
        for row in answer.responses[0].partitions:
            assert (row.error_code, values_in(row.records)) == (
                0,
                [prefix + b"%d" % row.partition_index for prefix in prefixes],
            )
        asked = [ListOffsetsPartition(index, -1, STAMP_MS) for index in indexes]
        ends = await wire.call(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, asked)]), 6)
        assert {(row.error_code, row.offset) for row in ends.topics[0].partitions} == {(0, 0)}


async def served_with(broker: LimitedBroker, partitions: int, step: int) -> None:
    with broker:
        async with RawConnection(broker.address) as wire:
            await create(wire, "t", partitions)
            await produce_to_all(wire, "t", partitions, b"first ", step)
            await check_all(wire, "t", partitions, [b"first "], step)
            assert 0 < broker.open_data_files() <= broker.descriptors // 2 + BESIDE_THE_POOL
        assert broker.terminate(400) == 0
        broker.start(120)
        async with RawConnection(broker.address) as wire:
            await check_all(wire, "t", partitions, [b"first "], step)
            await produce_to_all(wire, "t", partitions, b"second ", step)
            await check_all(wire, "t", partitions, [b"first ", b"second "], step)
            assert 0 < broker.open_data_files() <= broker.descriptors // 2 + BESIDE_THE_POOL
        broker.kill9()
        broker.start(120)
        async with RawConnection(broker.address) as wire:
            await check_all(wire, "t", partitions, [b"first ", b"second "], step)
        broker.check_healthy()


@pytest.mark.parametrize("durability", ["flush", "os"])
async def test_300_partitions_are_served_with_128_descriptors(tmp_path: Path, durability: str) -> None:
    await served_with(LimitedBroker(tmp_path, 128, "--durability", durability), 300, 100)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_10_000_partitions_are_served_with_1024_descriptors(tmp_path: Path) -> None:
    await served_with(LimitedBroker(tmp_path, 1024), 10_000, 500)


async def many_segments(wire: RawConnection, topic: str, segments: int) -> None:
    """A topic of as many segments, each with two records, timestamps rising."""
    await wire.create_topic(topic, segment_bytes="1024")
    for number in range(2 * segments):
        stamped = batch(b"%d" % number + bytes(430))
        stamped = at_time(stamped, STAMP_MS + number)
        assert (await wire.produce(topic, stamped)).error_code == 0


def at_time(data: bytes, timestamp: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(">qq", changed, 27, timestamp, timestamp)
    struct.pack_into(">I", changed, CRC_START, crc32c(memoryview(changed)[CRC_END:]))
    return bytes(changed)


async def test_look_ups_and_reads_of_many_segments_keep_few_of_them_open(tmp_path: Path) -> None:
    segments = 177
    with LimitedBroker(tmp_path, 256, "--durability", "os", "--set", "max.open.files=40") as broker:
        async with RawConnection(broker.address) as wire:
            await many_segments(wire, "t", segments)
            # While snapshots of the producers cannot be written fast enough, segments grow instead of being rolled.
            assert len(list((broker.data_dir / "t-0").glob("*.log"))) > segments // 2
            for number in range(500):
                sought = number * 7 % (2 * segments)
                asked = ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, STAMP_MS + sought)])
                (row,) = (await wire.call(ListOffsetsRequest(-1, 0, [asked]), 6)).topics[0].partitions
                assert (row.error_code, row.offset) == (0, sought)
            assert broker.open_data_files() <= 40 + BESIDE_THE_POOL
            # Eight consumers take turns, each at a place of its own.
            positions = [number * 2 * segments // 8 for number in range(8)]
            for _ in range(40):
                for consumer, offset in enumerate(positions):
                    answer = await wire.fetch("t", offset, partition_max_bytes=600)
                    (value,) = values_in(answer.responses[0].partitions[0].records)
                    assert value is not None
                    assert value.rstrip(b"\0") == b"%d" % offset
                    positions[consumer] = offset + 1
            assert broker.open_data_files() <= 40 + BESIDE_THE_POOL
        broker.restart()
        async with RawConnection(broker.address) as wire:
            assert (await wire.produce("t", batch(b"last"))).base_offset == 2 * segments
        broker.check_healthy()


async def test_batches_that_claim_two_thousand_million_records_exhaust_nothing(tmp_path: Path) -> None:
    with LimitedBroker(tmp_path, 256, "--durability", "os") as broker:
        async with RawConnection(broker.address) as wire:
            await wire.create_topic("t")
            lying = bytearray(batch(b""))
            struct.pack_into(">i", lying, 23, 2**31 - 2)  # last offset delta
            struct.pack_into(">i", lying, 57, 2**31 - 1)  # record count
            struct.pack_into(">I", lying, CRC_START, crc32c(memoryview(lying)[CRC_END:]))
            for _ in range(200):
                code = (await wire.produce("t", bytes(lying))).error_code
                assert code in (0, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
            assert (await wire.produce("t", batch(b"an honest one"))).error_code == 0
            await create(wire, "other", 10)
            await produce_to_all(wire, "other", 10, b"", 10)
        broker.restart()
        async with RawConnection(broker.address) as wire:
            await check_all(wire, "other", 10, [b""], 10)
        broker.check_healthy()
