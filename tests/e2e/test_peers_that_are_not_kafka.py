"""Addresses where something else than a Kafka broker listens: every client says so at once, and what it met."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from oncelog import Admin, Broker, Consumer, KafkaTimeoutError, NotKafkaError, Producer

WAIT_S = 20.0

PEERS = [
    (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "answered 'HTTP/1.1 400 Bad Request'"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", "answered 'SSH-2.0-OpenSSH_9.6'"),
    (b"-ERR unknown command\r\n", "answered '-ERR unknown command'"),
    (bytes.fromhex("15030100020246"), "TLS"),
    (bytes.fromhex("16030300310200002d"), "TLS"),
    (b"\xff\xff\xff\xff", "ff ff ff ff"),
    (b"\x00\x00\x00\x02\x00\x00", "no frame begins with"),
    (b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00", "malformed|answered request"),
]


@contextlib.asynccontextmanager
async def peer(answer: bytes) -> AsyncIterator[str]:
    """Something that answers whatever it is sent with these bytes; in two pieces, as a network may."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(100)
            writer.write(answer[:3])
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(answer[3:])
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(("answer", "words"), PEERS)
async def test_a_peer_that_does_not_speak_kafka_is_told_at_once(answer: bytes, words: str) -> None:
    async with asyncio.timeout(WAIT_S), peer(answer) as address:
        for client in (Producer, Consumer, Admin):
            with pytest.raises(NotKafkaError, match=words) as failed:
                await client(bootstrap_servers=address).start()
            assert f"the peer at {address} does not speak Kafka's protocol" in str(failed.value)


async def test_an_echo_is_no_broker() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(await reader.read(1000))
            await writer.drain()
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.timeout(WAIT_S):
        with pytest.raises(NotKafkaError, match=r"answered request|malformed"):
            await Admin(bootstrap_servers=f"127.0.0.1:{server.sockets[0].getsockname()[1]}").start()


async def test_a_peer_that_hangs_up_is_asked_about() -> None:
    async with asyncio.timeout(WAIT_S), peer(b"") as address:
        with pytest.raises(KafkaTimeoutError, match="is that a PLAINTEXT listener"):
            await Admin(bootstrap_servers=address, default_api_timeout_ms=200).start()


@pytest.mark.parametrize(("request_timeout_ms", "limit_ms"), [(600, 1000), (60_000, 300)])
@pytest.mark.parametrize("client", [Admin, Consumer, Producer])
async def test_a_peer_that_stays_silent_is_asked_about(client: Any, request_timeout_ms: int, limit_ms: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    limit: dict[str, Any] = {"max_block_ms" if client is Producer else "default_api_timeout_ms": limit_ms}
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.timeout(WAIT_S):
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(KafkaTimeoutError, match=r"answer(ed)? ApiVersions .*TLS\?") as failed:
            await client(bootstrap_servers=address, request_timeout_ms=request_timeout_ms, **limit).start()
        assert address in str(failed.value).split(f"within {limit_ms} ms")[1]


async def test_other_addresses_are_tried_before_it_is_given_up() -> None:
    async with (
        asyncio.timeout(WAIT_S),
        Broker() as broker,
        peer(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        Admin(bootstrap_servers=[address, broker.address]) as admin,
    ):
        assert await admin.list_topics() == []
