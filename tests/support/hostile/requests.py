"""Attack with requests, small or large, that cause a lot of work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest
from oncelog.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from oncelog.protocol.schema import Request
from support.hostile.attack import attack
from support.hostile.siege import Siege
from support.raw_connection import RawConnection, batch

PATIENCE_S = 120.0


async def ask(siege: Siege, request: Request[Any], version: int, times: int = 1) -> None:
    """Send a request, and wait until it is answered or the broker closes the connection. Both are allowed."""
    frame = b"".join(encode_request(request, version, 1, "attacker"))
    for _ in range(times):
        async with siege.wire() as wire:
            wire.send_bytes(frame)
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                async with asyncio.timeout(PATIENCE_S):
                    size = int.from_bytes(await wire._reader.readexactly(4), "big")
                    while size:
                        size -= len(await wire._reader.read(min(size, 1 << 16)) or b"x" * size)


async def pipelined(wire: RawConnection, requests: Iterable[tuple[Request[Any], int]]) -> None:
    """Send all requests at once, then read all responses."""
    sent = [(wire.send(request, version), type(request), version) for request, version in requests]
    for correlation_id, request_class, version in sent:
        assert (await wire.receive(request_class, version))[0] == correlation_id


@attack("one group of 5,000 offsets asked for 10,000 times in one OffsetFetch")
async def repeated_group(siege: Siege, whole: bool) -> None:
    offsets = [OffsetCommitRequestPartition(index, 1, -1, "") for index in range(5000)]
    async with siege.wire() as wire:
        await wire.create_topic("offsets", 5000)
        await wire.call(OffsetCommitRequest("group", topics=[OffsetCommitRequestTopic("offsets", b"", offsets)]), 8)
    group = OffsetFetchRequestGroup("group", topics=None)
    await ask(siege, OffsetFetchRequest(groups=[group] * (10_000 if whole else 500)), 8)


@attack("one partition asked for 5,000,000 times in one OffsetFetch", short=True)
async def repeated_offset(siege: Siege, whole: bool) -> None:
    count = 5_000_000 if whole else 200_000
    await ask(siege, OffsetFetchRequest("group", [OffsetFetchRequestTopic("t", [0] * count)]), 5)
    topics = [OffsetFetchRequestTopics("t", partition_indexes=[0] * count)]
    await ask(siege, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("group", topics=topics)]), 8)


@attack("5,000,000 partitions in one AddPartitionsToTxn", short=True)
async def partitions_of_a_transaction(siege: Siege, whole: bool) -> None:
    async with siege.wire() as wire:
        await wire.create_topic("t")
        producer = await wire.call(InitProducerIdRequest("id", 60_000), 4)
    for partitions in ([0] * 5_000_000, list(range(5_000_000))):
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic("t", partitions[: None if whole else 200_000])],
        )
        await ask(siege, request, 3)


@attack("the broker's settings asked for 20,000 times in one DescribeConfigs", short=True)
async def repeated_broker_settings(siege: Siege, whole: bool) -> None:
    resource = DescribeConfigsResource(4, "1", None)
    await ask(siege, DescribeConfigsRequest([resource] * (20_000 if whole else 1000), True, True), 4)


@attack("a topic's settings asked for 100,000 times in one DescribeConfigs")
async def repeated_topic_settings(siege: Siege, whole: bool) -> None:
    async with siege.wire() as wire:
        await wire.create_topic("t")
    resource = DescribeConfigsResource(2, "t", None)
    await ask(siege, DescribeConfigsRequest([resource] * (100_000 if whole else 3000), True, True), 4)


@attack("80,000 settings of the broker asked for in one DescribeConfigs, each by itself", short=True)
async def settings_one_by_one(siege: Siege, whole: bool) -> None:
    count = 80_000 if whole else 3000
    resources = [DescribeConfigsResource(4, "1", [f"setting.{number}"]) for number in range(count)]
    await ask(siege, DescribeConfigsRequest(resources, True, True), 4)


@attack("a partition of 2,000 producers asked for 10,000 times in one DescribeProducers")
async def repeated_producers(siege: Siege, whole: bool) -> None:
    async with siege.wire() as wire:
        await wire.create_topic("t")
        for producer_id in range(1000, 3000 if whole else 1200):
            await wire.produce("t", batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0))
    await ask(siege, DescribeProducersRequest([ProducersTopic("t", [0] * 10_000)]), 0)


@attack("one partition asked for 1,000,000 times in one ListOffsets")
async def repeated_list_offsets(siege: Siege, whole: bool) -> None:
    partition = ListOffsetsPartition(0, -1, -1)
    topic = ListOffsetsTopic("t", [partition] * (1_000_000 if whole else 50_000))
    await ask(siege, ListOffsetsRequest(-1, 0, [topic]), 6)


@attack("one partition asked for 500,000 times in one Fetch")
async def repeated_fetch(siege: Siege, whole: bool) -> None:
    async with siege.wire() as wire:
        await wire.create_topic("t")
        await wire.produce("t", batch(bytes(100_000)))
    partition = FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)
    topics = [FetchTopic("t", partitions=[partition] * (500_000 if whole else 20_000))]
    await ask(siege, FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), 12)


@attack("a fetch session of 700,000 unknown partitions, fetched again and again")
async def large_fetch_session(siege: Siege, whole: bool) -> None:
    count = 700_000 if whole else 20_000
    async with siege.wire() as wire:
        partitions = [FetchPartition(index, -1, 0, partition_max_bytes=1 << 20) for index in range(count)]
        topics = [FetchTopic("unknown", partitions=partitions)]
        wire.send(FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=topics), 12)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            _, answer = await wire.receive(FetchRequest, 12)
            for epoch in range(1, 6):
                fetch = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=answer.session_id, session_epoch=epoch)
                await wire.call(fetch, 12)


@attack("20,000 topics in one CreateTopics")
async def many_topics(siege: Siege, whole: bool) -> None:
    topics = [CreatableTopic(f"made-{index}", 1, -1, [], []) for index in range(20_000 if whole else 500)]
    await ask(siege, CreateTopicsRequest(topics, 10_000, True), 7)
    await ask(siege, CreateTopicsRequest(topics, 10_000), 7)


@attack("topics made by asking for the metadata of 24,000 names")
async def auto_created_topics(siege: Siege, whole: bool) -> None:
    for first in range(0, 24_000 if whole else 400, 200):
        names = [MetadataRequestTopic(name=f"asked-{index}") for index in range(first, first + 200)]
        await ask(siege, MetadataRequest(names, True), 12)


@attack("regular expressions that take long over 20,000 transactional ids")
async def expensive_patterns(siege: Siege, whole: bool) -> None:
    count = 20_000 if whole else 200
    async with siege.wire() as wire:
        for first in range(0, count, 50):
            requests = [InitProducerIdRequest("a" * 200 + f"{index:05}", 60_000) for index in range(first, first + 50)]
            await pipelined(wire, ((request, 4) for request in requests))
    for pattern in ("((a{1,30}){1,30})x", "(" * 2000 + "a" + ")" * 2000, "(.*)*" * 50 + "x", "(a|a?)+" * 100 + "x"):
        await ask(siege, ListTransactionsRequest([], [], -1, pattern), 2)
