"""What a client asked for is done, though the client is gone before it is done."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from oncelog.protocol.compression import Compression
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.schema import Request
from support.raw_connection import TIMEOUT_S, RawConnection, batch

Name = Callable[[str], str]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await holds():
            await asyncio.sleep(0.02)


def ask_and_vanish(address: str, request: Request[Any], version: int) -> None:
    """Send a request and close at once, without reading anything."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(b"".join(encode_request(request, version, 1, "vanishing")))


async def names(wire: RawConnection, prefix: str) -> list[str]:
    topics = (await wire.call(MetadataRequest(None), 12)).topics
    return sorted(topic.name or "" for topic in topics if (topic.name or "").startswith(prefix))


async def test_topics_are_created_and_deleted_though_the_client_disconnects(bootstrap: str, fresh_name: Name) -> None:
    prefix = fresh_name("many")
    wanted = [f"{prefix}-{number:03}" for number in range(60)]
    async with RawConnection(bootstrap) as wire:
        creation = CreateTopicsRequest([CreatableTopic(n, 1, 1) for n in wanted], 10_000)
        ask_and_vanish(bootstrap, creation, 7)

        async def all_there() -> bool:
            return await names(wire, prefix) == wanted

        await until(all_there)
        deletion = DeleteTopicsRequest([DeleteTopicState(n) for n in wanted], timeout_ms=10_000)
        ask_and_vanish(bootstrap, deletion, 6)

        async def none_left() -> bool:
            return await names(wire, prefix) == []

        await until(none_left)


async def test_offsets_are_committed_though_the_consumer_disconnects(bootstrap: str, fresh_name: Name) -> None:
    topic, group, partitions = fresh_name("topic"), fresh_name("group"), 800
    async with RawConnection(bootstrap) as wire:
        await wire.call(CreateTopicsRequest([CreatableTopic(topic, partitions, 1)], 10_000), 7)
        rows = [OffsetCommitRequestPartition(index, 7) for index in range(partitions)]
        commit = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, partitions=rows)])
        fetch = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(topic, list(range(partitions)))])

        async def ready() -> bool:
            """Whether the broker would accept the commit: Apache Kafka makes coordinators and topics known later."""
            await wire.call(FindCoordinatorRequest(group), 3)
            (known,) = (await wire.call(MetadataRequest([MetadataRequestTopic(name=topic)]), 12)).topics
            return (await wire.call(fetch, 7)).error_code == 0 and len(known.partitions) == partitions

        async def committed() -> bool:
            (fetched,) = (await wire.call(fetch, 7)).topics
            return {partition.committed_offset for partition in fetched.partitions} == {7}

        await until(ready)
        ask_and_vanish(bootstrap, commit, 8)
        await until(committed)


@pytest.mark.oncelog_only(reason="whether Apache Kafka reads a request before it learns of the reset depends on timing")
async def test_a_produce_with_acks_0_under_way_survives_a_reset(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    # The batch expands to 80 MB, so it is still being checked when the reset arrives.
    expanding = batch(*[bytes(1_000_000)] * 80, compression=Compression.ZSTD)
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, expanding)])
    frame = b"".join(encode_request(ProduceRequest(acks=0, timeout_ms=5000, topic_data=[data]), 9, 1, "vanishing"))
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        host, _, port = bootstrap.rpartition(":")
        with socket.create_connection((host, int(port))) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(frame)
            for _ in range(20):  # the broker has had as many turns in which it could read the frame
                await wire.call(MetadataRequest([]), 12)
        ends = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, -1)])])

        async def appended() -> bool:
            return (await wire.call(ends, 6)).topics[0].partitions[0].offset == 80

        await until(appended)
