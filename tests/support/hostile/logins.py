"""Attack a listener with SASL: wrong passwords, logins that never end, and large requests before the login."""

from __future__ import annotations

import asyncio
import contextlib
import struct

from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from support.hostile.attack import attack
from support.hostile.connections import send, sockets
from support.hostile.siege import Siege
from support.raw_connection import RawConnection
from support.sasl import log_in

AT_ONCE = 200
"""The number of attackers that try passwords at the same time."""


async def try_passwords(siege: Siege, mechanism: str, count: int) -> None:
    """Try `count` wrong passwords; each must be refused."""

    async def guess(first: int) -> None:
        for number in range(first, count, AT_ONCE):
            async with RawConnection(siege.sasl_address) as wire:
                answer = await log_in(wire, mechanism, f"user-{number % 10}", f"guess {number}")
                assert answer.error_code == 58

    async with asyncio.TaskGroup() as tasks:
        for first in range(AT_ONCE):
            tasks.create_task(guess(first))


@attack("10,000 wrong passwords by SCRAM", sasl=True)
async def wrong_passwords_by_scram(siege: Siege, whole: bool) -> None:
    await try_passwords(siege, "SCRAM-SHA-512", 10_000 if whole else 400)


@attack("10,000 wrong passwords by PLAIN", sasl=True, short=True)
async def wrong_passwords_by_plain(siege: Siege, whole: bool) -> None:
    await try_passwords(siege, "PLAIN", 10_000 if whole else 400)


@attack("2,000 clients that never log in", sasl=True)
async def unfinished_logins(siege: Siege, whole: bool) -> None:
    handshake = b"".join(encode_request(SaslHandshakeRequest("SCRAM-SHA-512"), 1, 1, "attacker"))
    async with sockets(siege, 2000 if whole else 200, address=siege.sasl_address) as opened:
        for number, sock in enumerate(opened):
            await send(sock, handshake[: 10 + number % 50], 5)
        await asyncio.sleep(10 if whole else 2)


@attack("5 times 2,000 requests of 64 KB and more before the login", sasl=True)
async def large_requests_before_the_login(siege: Siege, whole: bool) -> None:
    handshake = b"".join(encode_request(SaslHandshakeRequest("PLAIN"), 1, 1, "attacker"))
    message = b"".join(encode_request(SaslAuthenticateRequest(b"x" * 65_000), 1, 2, "attacker"))
    beyond = struct.pack(">i", 600_000) + bytes(600_000)
    kinds = [handshake + message[:-1], handshake + message, handshake + beyond]
    for _ in range(5 if whole else 1):
        count = 2000 if whole else 100
        async with sockets(siege, count, address=siege.sasl_address) as opened, asyncio.TaskGroup() as tasks:
            for number, sock in enumerate(opened):
                tasks.create_task(send(sock, kinds[number % len(kinds)], 10 if whole else 2))


@attack("malformed messages of all mechanisms", sasl=True)
async def malformed_messages(siege: Siege, whole: bool) -> None:
    messages = [b"", b"\0" * 1000, b"n,,n=", b"n,,n=a,r=" + b"," * 8000, b"=" * 8000, b"\0a\0" + b"x" * 100_000]
    for number in range(600 if whole else 100):
        async with RawConnection(siege.sasl_address) as wire:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await wire.call(SaslHandshakeRequest(("PLAIN", "SCRAM-SHA-256")[number % 2]), 1)
                await wire.call(SaslAuthenticateRequest(messages[number % len(messages)]), 2)
