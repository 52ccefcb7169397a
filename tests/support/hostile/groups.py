"""Attack with useless groups and members."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from typing import Any

from oncelog.protocol.codec import encode_versioned
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from support.hostile.attack import attack
from support.hostile.connections import send, sockets
from support.hostile.siege import Siege
from support.raw_connection import RawConnection


def join(group: str, member: str = "", metadata: bytes = b"", **fields: Any) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", metadata)]
    return JoinGroupRequest(
        group,
        30_000,
        60_000,
        member,
        protocol_type="consumer",
        protocols=protocols,
        **fields,
    )


@attack("JoinGroups that are refused, each for another group, for 20 s")
async def refused_joins(siege: Siege, whole: bool) -> None:
    deadline = time.monotonic() + (20 if whole else 2)
    numbers = itertools.count()
    async with siege.wire() as wire:
        while time.monotonic() < deadline:
            for _ in range(100):
                wire.send(join(f"refused-{next(numbers)}", "nobody-i-know"), 5)
            for _ in range(100):
                await wire.receive_bytes()


@attack("JoinGroups under client ids of 32 KB that never come back with their member ids, for 20 s", short=True)
async def long_client_ids(siege: Siege, whole: bool) -> None:
    deadline = time.monotonic() + (20 if whole else 4)
    async with RawConnection(siege.address, "c" * 32_000) as wire:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while time.monotonic() < deadline:
                for _ in range(20):
                    wire.send(join("group"), 5)
                for _ in range(20):
                    await wire.receive_bytes()


@attack("40 members with 50 MB of metadata each")
async def heavy_members(siege: Siege, whole: bool) -> None:
    request = join("group", metadata=bytes(50_000_000 if whole else 2_000_000))
    frame = b"".join(encode_request(request, 3, 1, "attacker"))
    async with sockets(siege, 40) as opened, asyncio.TaskGroup() as tasks:
        for sock in opened:
            tasks.create_task(send(sock, frame, 10 if whole else 3))


@attack("a group of 60 members that subscribe to 180,000 topics each", short=True)
async def large_subscriptions(siege: Siege, whole: bool) -> None:
    count = 180_000 if whole else 20_000
    members = 60 if whole else 10
    async with sockets(siege, members) as opened:
        async with asyncio.TaskGroup() as tasks:
            for number, sock in enumerate(opened):
                topics = ["", str(number)] * (count // 2)
                metadata = encode_versioned(ConsumerProtocolSubscription(topics), 0)
                frame = b"".join(encode_request(join("group", metadata=metadata), 3, 1, "attacker"))
                tasks.create_task(send(sock, frame, 10 if whole else 3))
        await asyncio.sleep(5 if whole else 1)  # the group's first generation begins


@attack("40 groups of a member with 6 MB of metadata, which reads no answer", short=True)
async def heavy_groups(siege: Siege, whole: bool) -> None:
    metadata = bytes(6_000_000 if whole else 3_000_000)
    async with sockets(siege, 40, 4096) as opened:
        async with asyncio.TaskGroup() as tasks:
            for number, sock in enumerate(opened):
                frame = b"".join(encode_request(join(f"group-{number}", metadata=metadata), 3, 1, "attacker"))
                tasks.create_task(send(sock, frame, 20))
        await asyncio.sleep(8 if whole else 1)


@attack("a group of 40 members with 6 MB of metadata each, which read no answer")
async def heavy_silent_members(siege: Siege, whole: bool) -> None:
    frame = b"".join(encode_request(join("group", metadata=bytes(6_000_000)), 3, 1, "attacker"))
    async with sockets(siege, 40, 4096) as opened:
        async with asyncio.TaskGroup() as tasks:
            for sock in opened:
                tasks.create_task(send(sock, frame, 20))
        await asyncio.sleep(8)
