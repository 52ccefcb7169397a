"""Attack with connections that send slowly, never read, or demand all of the broker's time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator

from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.hostile.attack import attack
from support.hostile.siege import Siege
from support.raw_connection import batch

ANNOUNCED = 100_000_000

_SEND_BUFFER = 32_768
"""The size in bytes of each socket's send buffer.

By default the kernel would give megabytes to each socket, until the machine's memory for TCP is used up, and then lose
packets of all connections. Real attackers are on other machines than the broker and its neighbours.
"""


@contextlib.asynccontextmanager
async def sockets(
    siege: Siege, count: int, receive_buffer: int = 0, address: str = ""
) -> AsyncIterator[list[socket.socket]]:
    """Yield `count` connections, which read nothing unless the caller does."""
    loop = asyncio.get_running_loop()
    host, _, port = (address or siege.address).rpartition(":")
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            if receive_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            await loop.sock_connect(sock, (host, int(port)))
            opened.append(sock)
        yield opened


async def send(sock: socket.socket, data: bytes, patience_s: float) -> None:
    """Send as much as the broker accepts within `patience_s` seconds. The broker may close the connection."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(patience_s):
            await asyncio.get_running_loop().sock_sendall(sock, data)


async def send_at_once(opened: list[socket.socket], data: bytes, patience_s: float) -> None:
    """Send the same bytes on all connections at the same time, as `send` does."""
    async with asyncio.TaskGroup() as tasks:
        for sock in opened:
            tasks.create_task(send(sock, data, patience_s))


@attack("100 frames of 100 MB, of which 20 MB come", short=True)
async def unfinished_frames(siege: Siege, whole: bool) -> None:
    count, size = (100, 20_000_000) if whole else (40, 4_000_000)
    frame = struct.pack(">i", ANNOUNCED) + bytes(size)
    async with sockets(siege, count) as opened:
        await send_at_once(opened, frame, 10 if whole else 2)


@attack("2,000 frames of 1 MB that never come whole")
async def unfinished_small_frames(siege: Siege, whole: bool) -> None:
    frame = struct.pack(">i", 1_000_000) + bytes(900_000)
    async with sockets(siege, 2000 if whole else 200) as opened:
        await send_at_once(opened, frame, 10 if whole else 3)


@attack("500 frames of 100 MB, a byte at a time", short=True)
async def dripping_frames(siege: Siege, whole: bool) -> None:
    async with sockets(siege, 500 if whole else 100) as opened:
        for sock in opened:
            await send(sock, struct.pack(">i", ANNOUNCED), 5)
        deadline = time.monotonic() + (10 if whole else 2)
        while time.monotonic() < deadline:
            for sock in opened:
                await send(sock, b"\0", 1)
            await asyncio.sleep(0.1)


async def create_wide_topics(siege: Siege, count: int) -> None:
    """Create `count` topics of 10,000 partitions, whose logs stay closed."""
    async with siege.wire() as wire:
        for number in range(count):
            topic = CreatableTopic(f"t-{number}", 10_000, -1, [], [])
            response = await wire.call(CreateTopicsRequest([topic], 10_000), 7)
            assert [topic.error_code for topic in response.topics] == [0]


async def fill(siege: Siege, topic: str, megabytes: int) -> None:
    async with siege.wire() as wire:
        await wire.create_topic(topic)
        for _ in range(megabytes):
            assert (await wire.produce(topic, batch(bytes(1_000_000)))).error_code == 0


@attack("40 peers that fetch 55 MB each and never read", short=True)
async def unread_fetches(siege: Siege, whole: bool) -> None:
    await fill(siege, "t", 60 if whole else 20)
    partition = FetchPartition(0, -1, 0, partition_max_bytes=1 << 30)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 30, topics=[FetchTopic("t", partitions=[partition])]
    )
    frame = b"".join(encode_request(request, 12, 1, "attacker"))
    async with sockets(siege, 40, 4096) as opened:
        for sock in opened:
            await send(sock, frame * 10, 5)
        await asyncio.sleep(5 if whole else 1)


@attack("40 peers that ask for the metadata of 50,000 partitions and never read")
async def unread_metadata(siege: Siege, whole: bool) -> None:
    await create_wide_topics(siege, 5 if whole else 1)
    frame = b"".join(encode_request(MetadataRequest(None), 12, 1, "attacker"))
    async with sockets(siege, 40, 4096) as opened:
        await send_at_once(opened, frame * 63, 5)
        await asyncio.sleep(5 if whole else 1)


@attack("63 Metadata of 50,000 partitions behind a long poll")
async def metadata_behind_a_long_poll(siege: Siege, whole: bool) -> None:
    await create_wide_topics(siege, 5 if whole else 1)
    partition = FetchPartition(0, -1, 0, partition_max_bytes=1)
    fetch = FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=[FetchTopic("t-0", partitions=[partition])])
    frame = b"".join(encode_request(fetch, 12, 1, "attacker"))
    frame += b"".join(encode_request(MetadataRequest(None), 12, 1, "attacker")) * 63
    async with sockets(siege, 4, 4096) as opened:
        for sock in opened:
            await send(sock, frame, 5)
        await asyncio.sleep(5 if whole else 2)


@attack("eight producers without acks that send as fast as they can", short=True)
async def flooders(siege: Siege, whole: bool) -> None:
    async with siege.wire() as wire:
        await wire.create_topic("flood", 8)
    deadline = time.monotonic() + (10 if whole else 1)

    async def flood(sock: socket.socket, frame: bytes) -> None:
        while time.monotonic() < deadline:
            await send(sock, frame, deadline - time.monotonic())

    async with sockets(siege, 8) as opened, asyncio.TaskGroup() as tasks:
        for index, sock in enumerate(opened):
            parts = [PartitionProduceData(index, batch(bytes(500_000 if index % 2 else 1000)))]
            request = ProduceRequest(
                acks=0, timeout_ms=1000, topic_data=[TopicProduceData("flood", partition_data=parts)]
            )
            frame = b"".join(encode_request(request, 9, 1, "attacker"))
            tasks.create_task(flood(sock, frame * (1 if index % 2 else 200)))


@attack("eight peers that send 10,000 ApiVersions at once, again and again", short=True)
async def pipelined_requests(siege: Siege, whole: bool) -> None:
    frame = b"".join(encode_request(ApiVersionsRequest("a", "1"), 3, 1, "attacker")) * 10_000
    deadline = time.monotonic() + (10 if whole else 1)
    loop = asyncio.get_running_loop()

    async def drain(sock: socket.socket) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(max(0, deadline - time.monotonic())):
                while await loop.sock_recv(sock, 1 << 20):
                    pass

    async def flood(sock: socket.socket) -> None:
        while time.monotonic() < deadline:
            await send(sock, frame, deadline - time.monotonic())

    async with sockets(siege, 8) as opened, asyncio.TaskGroup() as tasks:
        for sock in opened:
            tasks.create_task(drain(sock))
            tasks.create_task(flood(sock))


@attack("5,000 connections that say nothing", short=True)
async def silent_connections(siege: Siege, whole: bool) -> None:
    async with sockets(siege, 5000 if whole else 500):
        await asyncio.sleep(1)


@attack("connections that come and go for 10 s")
async def short_connections(siege: Siege, whole: bool) -> None:
    deadline = time.monotonic() + (10 if whole else 2)
    while time.monotonic() < deadline:
        async with sockets(siege, 50) as opened:
            for sock in opened:
                await send(sock, b"\0\0\0\x50garbage", 1)
