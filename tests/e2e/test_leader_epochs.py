"""Leader epochs in responses: 0 in a new partition, and the newest of the log in a directory that Kafka wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.protocol.records import iter_batches
from support.raw_connection import RawConnection, batch

E = ErrorCode
LATEST, EARLIEST = -1, -2
EPOCH = 4
EPOCH_FIELD = slice(12, 16)
"""The place of the leader epoch in a batch. The checksum does not cover it."""


async def listed(wire: RawConnection, topic: str, timestamp: int, partition: int = 0) -> tuple[int, int]:
    """The (offset, leader epoch) that ListOffsets has for a timestamp."""
    asked = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, timestamp)])])
    row = (await wire.call(asked, 6)).topics[0].partitions[0]
    assert row.error_code == 0
    return row.offset, row.leader_epoch


async def end_of_epoch(wire: RawConnection, topic: str, epoch: int, partition: int = 0) -> tuple[int, int]:
    """The (leader epoch, end offset) that OffsetForLeaderEpoch has for a leader epoch."""
    asked = OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(partition, -1, epoch)])
    row = (await wire.call(OffsetForLeaderEpochRequest(-1, [asked]), 4)).topics[0].partitions[0]
    assert row.error_code == 0
    return row.leader_epoch, row.end_offset


async def test_the_leader_epoch_of_an_empty_partition(bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(name)
        assert await listed(wire, name, LATEST) == (0, 0)
        assert await listed(wire, name, EARLIEST) == (0, 0)
        assert await end_of_epoch(wire, name, 0) == (0, 0)
        assert await end_of_epoch(wire, name, 1) == (-1, -1)
        await wire.produce(name, batch(b"x"))
        assert await end_of_epoch(wire, name, 0) == (0, 1)


async def fetch_code(wire: RawConnection, topic: str, current_leader_epoch: int) -> int:
    """The error code of a Fetch with this current leader epoch."""
    topics = [FetchTopic(topic, partitions=[FetchPartition(0, current_leader_epoch, 0, partition_max_bytes=1000)])]
    fetched = await wire.call(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), 12)
    return fetched.responses[0].partitions[0].error_code


async def test_a_partition_goes_on_with_the_newest_leader_epoch_of_its_log(tmp_path: Path) -> None:
    quiet = {"logging.level": "error"}
    async with BrokerNode(tmp_path, quiet) as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", 2)
        for partition in (0, 1):
            await wire.produce("t", batch(b"old"), partition)
    (segment,) = (tmp_path / "t-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[EPOCH_FIELD] = EPOCH.to_bytes(4, "big")
    segment.write_bytes(data)

    for records in (2, 3):  # the second start reads what the first has written
        async with BrokerNode(tmp_path, quiet) as broker, RawConnection(broker.address) as wire:
            known = await wire.call(MetadataRequest([MetadataRequestTopic(name="t")], False), 12)
            described = await wire.call(DescribeTopicPartitionsRequest([TopicRequest("t")]), 0)
            for topic in (known.topics[0], described.topics[0]):
                assert [(row.partition_index, row.leader_epoch) for row in topic.partitions] == [(0, EPOCH), (1, 0)]
            codes = [await fetch_code(wire, "t", epoch) for epoch in (-1, EPOCH - 1, EPOCH, EPOCH + 1)]
            assert codes == [0, E.FENCED_LEADER_EPOCH, 0, E.UNKNOWN_LEADER_EPOCH]
            assert (await wire.produce("t", batch(b"new"))).error_code == 0
            assert await listed(wire, "t", LATEST) == (records, EPOCH)
            assert await listed(wire, "t", EARLIEST) == (0, EPOCH)
            assert await end_of_epoch(wire, "t", EPOCH) == (EPOCH, records)
            fetched = (await wire.fetch("t")).responses[0].partitions[0].records
            assert [header.partition_leader_epoch for _, header in iter_batches(fetched or b"")] == [EPOCH] * records


async def test_a_topic_of_the_same_name_begins_with_leader_epoch_0(tmp_path: Path) -> None:
    quiet = {"logging.level": "error"}
    async with BrokerNode(tmp_path, quiet) as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t")
        await wire.produce("t", batch(b"old"))
    (segment,) = (tmp_path / "t-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[EPOCH_FIELD] = EPOCH.to_bytes(4, "big")
    segment.write_bytes(data)
    async with BrokerNode(tmp_path, quiet) as broker, RawConnection(broker.address) as wire:
        topic = broker.metadata.topic("t")
        assert topic is not None
        await broker.metadata.delete_topic(topic)
        await wire.create_topic("t")
        assert (await wire.produce("t", batch(b"new"))).error_code == 0
        known = await wire.call(MetadataRequest([MetadataRequestTopic(name="t")], False), 12)
        assert known.topics[0].partitions[0].leader_epoch == 0
        assert await listed(wire, "t", LATEST) == (1, 0)
