"""Attack a listener with TLS: handshakes that begin together, that never end, and that come a byte at a time."""

from __future__ import annotations

import asyncio
import ssl

from support.hostile.attack import attack
from support.hostile.connections import send, send_at_once, sockets
from support.hostile.siege import Siege
from support.tls13 import Tls13


def client_hello() -> bytes:
    """Return the first message of a TLS client. The broker's answer to it costs the broker a signature."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("the handshake ended without the peer")


def asking_twice() -> tuple[bytes, bytes]:
    """Return two first messages of a TLS client. The broker answers the first one by asking for another."""
    hello = client_hello()
    share = b"\x00\x33\x00\x26\x00\x24\x00\x1d\x00\x20"  # the extension key_share, with a key of x25519
    groups, unknown = b"\x00\x1d\x00\x17\x00\x1e", b"\x0a\x0a"
    assert hello.count(share) == hello.count(groups) == 1
    first = hello.replace(groups, groups[:4] + unknown)
    return first.replace(share, share.replace(groups[:2], unknown)), hello


@attack("5 times 1,500 TLS handshakes that begin at the same time", tls=True, short=True)
async def handshakes_at_once(siege: Siege, whole: bool) -> None:
    hello = client_hello()
    for _ in range(5 if whole else 1):
        async with sockets(siege, 1500 if whole else 200, address=siege.tls_address) as opened:
            await asyncio.sleep(0.5)  # all of them are accepted, and silent
            await send_at_once(opened, hello, 5)
            await asyncio.sleep(2 if whole else 0.5)


@attack("1,500 TLS handshakes of which half a message comes, then the rest at the same time", tls=True)
async def second_halves_at_once(siege: Siege, whole: bool) -> None:
    hello = client_hello()
    async with sockets(siege, 1500 if whole else 200, address=siege.tls_address) as opened:
        for half in (hello[:100], hello[100:]):
            await send_at_once(opened, half, 5)
            await asyncio.sleep(3 if whole else 1)


@attack("1,500 TLS handshakes that let the broker ask again, and answer at the same time", tls=True, short=True)
async def second_hellos_at_once(siege: Siege, whole: bool) -> None:
    first, second = asking_twice()
    async with sockets(siege, 1500 if whole else 200, address=siege.tls_address) as opened:
        for hello in (first, second):
            await send_at_once(opened, hello, 5)
            await asyncio.sleep(3 if whole else 1)


@attack("300 TLS handshakes, a byte at a time", tls=True)
async def dripping_handshakes(siege: Siege, whole: bool) -> None:
    hello = client_hello()
    async with sockets(siege, 300 if whole else 50, address=siege.tls_address) as opened:
        for place in range(100 if whole else 20):
            for sock in opened:
                await send(sock, hello[place : place + 1], 1)


@attack("1,500 TLS handshakes that never end", tls=True)
async def half_open_handshakes(siege: Siege, whole: bool) -> None:
    hello = client_hello()
    async with sockets(siege, 1500 if whole else 200, address=siege.tls_address) as opened:
        for sock in opened:
            await send(sock, hello, 5)
        await asyncio.sleep(10 if whole else 2)


@attack("noise instead of TLS, 5,000 times", tls=True)
async def noise(siege: Siege, whole: bool) -> None:
    for _ in range(5 if whole else 1):
        async with sockets(siege, 1000 if whole else 200, address=siege.tls_address) as opened:
            await send_at_once(opened, b"\x16\x03\x01" + bytes(5000), 5)


@attack("30 times 256 KB of changes of TLS keys, at the same time", tls=True, short=True)
async def key_updates_at_once(siege: Siege, whole: bool) -> None:
    async with sockets(siege, 30 if whole else 5, address=siege.tls_address) as opened:
        floods = [(sock, (await Tls13.connect(sock)).key_updates(9_700 if whole else 2_000)) for sock in opened]
        async with asyncio.TaskGroup() as tasks:
            for sock, flood in floods:
                tasks.create_task(send(sock, flood, 10 if whole else 2))
        await asyncio.sleep(10 if whole else 1)
