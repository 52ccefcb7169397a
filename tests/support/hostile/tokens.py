"""Attack a listener with OAUTHBEARER: tokens of a megabyte, and a server of keys that does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from support.hostile.attack import attack
from support.hostile.siege import Siege
from support.identity_provider import IdentityProvider
from support.raw_connection import RawConnection
from support.sasl import authenticate

AT_ONCE = 50
"""The number of attackers at the same time."""

SIZE = 1_000_000

ENDLESS = 10**9
"""More logins than can be tried before an attack is over."""


def message_of(token: str) -> bytes:
    """Return the message of OAUTHBEARER with a token."""
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


async def send_tokens(siege: Siege, tokens: list[str], count: int, *, answered: bool, at_once: int = AT_ONCE) -> None:
    """Log in `count` times with the tokens in turn. Each is refused: with an answer, or by a closed connection."""
    numbers = itertools.count()

    async def attacker() -> None:
        while (number := next(numbers)) < count:
            message = message_of(tokens[number % len(tokens)])
            async with RawConnection(siege.sasl_address) as wire:
                await wire.call(SaslHandshakeRequest("OAUTHBEARER"), 1)
                if answered:
                    assert (await authenticate(wire, message)).auth_bytes, "a refusal"
                    assert (await authenticate(wire, b"\x01")).error_code == 58
                else:
                    wire.send(SaslAuthenticateRequest(message), 2)
                    assert await wire.closed()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(attacker())


def large_tokens(siege: Siege) -> list[str]:
    """Return tokens of a megabyte: one with a valid signature that has expired, and three that are no tokens."""
    signed = siege.provider.token(lifetime_s=-3600, padding="x" * (SIZE * 3 // 4))
    head, body, _ = signed.split(".")
    return [signed, f"{head}.{body}.{'A' * 86}", f"{'A' * SIZE}.e30.AAAA", f"{head}.{'W1' * (SIZE // 2)}.AAAA"]


@attack("2,000 tokens of 1 MB", oauth=True)
async def large_tokens_by_default(siege: Siege, whole: bool) -> None:
    await send_tokens(siege, large_tokens(siege), 2000 if whole else 60, answered=False)


@attack("300 tokens of 1 MB that may be so large", "sasl.server.max.receive.size=2000000", oauth=True)
async def large_tokens_that_may_be(siege: Siege, whole: bool) -> None:
    await send_tokens(siege, large_tokens(siege), 300 if whole else 20, answered=True)


@attack("tokens of unknown keys while the server of keys hangs", oauth=True, short=True)
async def keys_that_hang(siege: Siege, whole: bool) -> None:
    """Each login with an unknown key waits for the server of keys. A login with a known key does not."""
    siege.keys.answers.clear()
    unknown = [IdentityProvider("unknown").token()]
    attackers = asyncio.create_task(send_tokens(siege, unknown, ENDLESS, answered=True, at_once=1000 if whole else 50))
    try:
        for _ in range(30 if whole else 3):
            async with asyncio.timeout(5), RawConnection(siege.sasl_address) as wire:
                await wire.call(SaslHandshakeRequest("OAUTHBEARER"), 1)
                answer = await authenticate(wire, message_of(siege.provider.token()))
                assert (answer.error_code, answer.auth_bytes) == (0, b"")
            assert not attackers.done()
            await asyncio.sleep(1)
    finally:
        attackers.cancel()
        siege.keys.answers.set()
    with contextlib.suppress(asyncio.CancelledError):
        await attackers
