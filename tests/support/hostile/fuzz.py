"""Attack with frames that are almost requests: random ones of every API, with bytes changed, cut off or repeated."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from random import Random
from typing import Any

from oncelog.protocol.framing import encode_request
from oncelog.protocol.schema import FieldSpec, Request, WireType
from support.definitions import message_classes
from support.hostile.attack import attack
from support.hostile.siege import Siege

CONNECTIONS = 16
BATCH = 8
_BITS = {WireType.INT8: 8, WireType.INT16: 16, WireType.UINT16: 16, WireType.INT32: 32, WireType.INT64: 64}
_EDGES = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x80\x80\x80\x08",
    b"\xff\xff",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff\x0f",
)
_NAMES = ("", "t", "group", "other", "__consumer_offsets", "é" * 40, "x" * 300)
"""Names in random requests. The neighbour's topic is not among them: without authorization, any client may delete it.
"""


def _primitive(kind: WireType, rng: Random) -> Any:
    if kind in _BITS:
        bits = _BITS[kind]
        low = 0 if kind is WireType.UINT16 else -(1 << (bits - 1))
        return rng.choice((0, 1, max(low, -1), low + (1 << bits) - 1, rng.randrange(low, low + (1 << bits))))
    if kind is WireType.BOOL:
        return rng.random() < 0.5
    if kind is WireType.FLOAT64:
        return rng.random()
    if kind is WireType.UUID:
        return rng.randbytes(16)
    if kind is WireType.STRING:
        return rng.choice(_NAMES)
    return rng.randbytes(rng.choice((0, 1, 60, 200)))


def _value(spec: FieldSpec, version: int, rng: Random) -> Any:
    if version in spec.nullable and rng.random() < 0.2:
        return None
    if spec.is_array:
        return [_one(spec, version, rng) for _ in range(rng.choice((0, 1, 1, 2, 5)))]
    return _one(spec, version, rng)


def _one(spec: FieldSpec, version: int, rng: Random) -> Any:
    return _primitive(spec.wire_type, rng) if spec.struct is None else random_message(spec.struct, version, rng)


def random_message(cls: type[Any], version: int, rng: Random) -> Any:
    """Return a message or struct with random values in the fields that `version` has."""
    fields = {spec.name: _value(spec, version, rng) for spec in cls.fields if version in spec.versions}
    return cls(**fields)


def mutated(frame: bytes, rng: Random) -> bytes:
    """Return the frame with changes to its body. The size in front usually fits again."""
    body = bytearray(frame[4:])
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randrange(len(body))
        change = rng.random()
        if change < 0.4:
            body[at] = rng.randrange(256)
        elif change < 0.6:
            edge = rng.choice(_EDGES)
            body[at : at + len(edge)] = edge
        elif change < 0.8:
            del body[at : at + rng.randrange(1, 9)]
        else:
            body[at:at] = body[at : at + rng.randrange(1, 40)]
        if not body:
            break
    size = len(body) if rng.random() < 0.98 else rng.randrange(-2, 1 << 27)
    return struct.pack(">i", size) + body


def frames(rng: Random) -> list[bytes]:
    """Return valid frames, one for each request and version."""
    made = []
    for cls in message_classes():
        if issubclass(cls, Request) and cls.spec.key >= 0:
            for version in cls.spec.versions:
                request = random_message(cls, version, rng)
                made.append(b"".join(encode_request(request, version, 1, rng.choice(_NAMES))))
    return made


@attack("mutated frames of every API and version", short=True)
async def mutated_frames(siege: Siege, whole: bool) -> None:
    total = 1_000_000 if whole else 20_000
    async with asyncio.TaskGroup() as tasks:
        for seed in range(CONNECTIONS):
            tasks.create_task(_send(siege, Random(seed), total // CONNECTIONS))


async def _send(siege: Siege, rng: Random, count: int) -> None:
    """Send `count` frames. A connection that the broker closes because of a malformed frame is replaced."""
    host, _, port = siege.address.rpartition(":")
    valid: list[bytes] = []
    while count > 0:
        if rng.random() < 0.01 or not valid:
            valid = frames(rng)
        reader, writer = await asyncio.open_connection(host, int(port))
        closed = asyncio.ensure_future(_discard(reader))
        try:
            while count > 0 and not closed.done():
                writer.writelines([mutated(rng.choice(valid), rng) for _ in range(BATCH)])
                count -= BATCH
                await asyncio.wait([closed], timeout=0.005)
        finally:
            closed.cancel()
            writer.transport.abort()  # `close` would wait until the broker has read the rest
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _discard(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass
