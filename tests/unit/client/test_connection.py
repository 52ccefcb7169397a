"""One connection against a server that misbehaves: every request ends, and in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvloop
from oncelog.client.connection import Connection, ConnectionOptions
from oncelog.client.errors import KafkaTimeoutError, NetworkError, UnsupportedVersionError
from oncelog.protocol.framing import decode_request_header, encode_response
from oncelog.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from oncelog.protocol.messages.fetch import FetchRequest
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)

Handler = Callable[[int, int, int, asyncio.StreamWriter], Awaitable[None]]
OPTIONS = ConnectionOptions(client_id="test", request_timeout_s=5, connect_timeout_s=5, max_response_bytes=1_000_000)


NewLoop = Callable[[], asyncio.AbstractEventLoop]
BOTH_LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
"""They differ in when timers run, in how much a poll reads, and in how a half-closed socket ends."""


@contextlib.asynccontextmanager
async def server(handle: Handler, newest_api_versions: int = 4) -> AsyncIterator[int]:
    """Answer ApiVersions, and leave what follows to `handle(api key, version, correlation id, writer)`."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header, _ = decode_request_header(frame)
                key, version, correlation_id = (
                    header.request_api_key,
                    header.request_api_version,
                    header.correlation_id,
                )
                if key != 18:
                    await handle(key, version, correlation_id, writer)
                    continue
                offered = [ApiVersion(3, 0, 12), ApiVersion(18, 0, newest_api_versions)]
                if version > newest_api_versions:
                    refusal = ApiVersionsResponse(35, offered[1:])
                    writer.writelines(encode_response(refusal, 0, correlation_id))
                else:
                    writer.writelines(encode_response(ApiVersionsResponse(0, offered), version, correlation_id))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            done.set()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with running:
        yield running.sockets[0].getsockname()[1]
        await asyncio.wait_for(done.wait(), 5)


async def opened(port: int, options: ConnectionOptions = OPTIONS) -> Connection:
    return await Connection.open("127.0.0.1", port, options)


async def nothing(key: int, version: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
    pass


async def closed(connection: Connection) -> None:
    connection.close()
    await connection.wait_closed()


@pytest.mark.parametrize("newest", [4, 3, 2, 0])
async def test_versions_are_negotiated_with_a_broker_of_any_age(newest: int) -> None:
    async with server(nothing, newest) as port:
        connection = await opened(port)
        assert connection.version_of(MetadataRequest) == 12
        assert connection.version_of(MetadataRequest, 7) == 7
        assert not connection.supports(MetadataRequest, 13)
        with pytest.raises(UnsupportedVersionError, match="does not offer Fetch"):
            connection.version_of(FetchRequest)
        await closed(connection)


async def test_requests_are_pipelined_and_answered_in_order_whatever_the_chunks() -> None:
    async def in_pieces(key: int, version: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        brokers = [MetadataResponseBroker(host="x" * 1000)] * (correlation_id * 30 % 200)
        answer = b"".join(encode_response(MetadataResponse(brokers=brokers), version, correlation_id))
        for at in range(0, len(answer), 50_001):
            writer.write(answer[at : at + 50_001])
            await writer.drain()
            await asyncio.sleep(0)

    async with server(in_pieces) as port:
        connection = await opened(port)
        answers = await asyncio.gather(*[connection.send(MetadataRequest()) for _ in range(20)])
        assert [len(answer.brokers) for answer in answers] == [number * 30 % 200 for number in range(2, 22)]
        await closed(connection)


async def test_what_is_unanswered_fails_when_the_connection_breaks() -> None:
    async def hang_up(key: int, version: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with server(hang_up) as port:
        connection = await opened(port)
        futures = [connection.send(MetadataRequest()) for _ in range(3)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(outcome, NetworkError) for outcome in outcomes)
        assert connection.is_closed
        with pytest.raises(NetworkError):
            connection.send(MetadataRequest())


async def test_an_answer_that_is_late_closes_the_connection() -> None:
    async with server(nothing) as port:
        connection = await opened(port)
        first = connection.send(MetadataRequest(), timeout_s=0.05)
        second = connection.send(MetadataRequest())
        with pytest.raises(KafkaTimeoutError, match="did not answer Metadata"):
            await first
        with pytest.raises(NetworkError):
            await second
        await connection.wait_closed()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00", "malformed|answered request 99"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x02", "malformed answer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", r"receive\.message\.max\.bytes"),
        (b"\xff\xff\xff\xff", "is it a Kafka listener"),
    ],
)
async def test_an_answer_that_makes_no_sense_closes_the_connection(answer: bytes, words: str) -> None:
    async def answer_badly(key: int, version: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with server(answer_badly) as port:
        connection = await opened(port)
        with pytest.raises(NetworkError, match=words):
            await connection.call(MetadataRequest())
        assert connection.is_closed
        await connection.wait_closed()


async def test_a_caller_that_was_cancelled_does_not_disturb_the_others() -> None:
    async def answer(key: int, version: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)
        writer.writelines(encode_response(MetadataResponse(cluster_id="c"), version, correlation_id))

    async with server(answer) as port:
        connection = await opened(port)
        first, second = connection.send(MetadataRequest()), connection.send(MetadataRequest())
        first.cancel()
        assert (await second).cluster_id == "c"
        await closed(connection)


@BOTH_LOOPS
def test_an_answer_that_arrived_while_the_program_blocked_the_loop_is_no_timeout(new_loop: NewLoop) -> None:
    """A plain function of the program may take longer than the request's timeout."""

    async def work() -> None:
        asked, answered = threading.Event(), threading.Event()

        def serve(listener: socket.socket) -> None:
            peer, _ = listener.accept()
            with peer:
                hello, _ = decode_request_header(_frame(peer))
                offered = ApiVersionsResponse(0, [ApiVersion(3, 0, 12), ApiVersion(18, 0, 4)])
                peer.sendall(b"".join(encode_response(offered, 4, hello.correlation_id)))
                header, _ = decode_request_header(_frame(peer))
                asked.set()
                answer = MetadataResponse(brokers=[MetadataResponseBroker(host="x" * 100)] * 2000)  # several reads
                peer.sendall(b"".join(encode_response(answer, 12, header.correlation_id)))
                answered.set()
                with contextlib.suppress(ConnectionError):
                    peer.recv(1)

        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=serve, args=(listener,))
            thread.start()
            connection = await opened(listener.getsockname()[1])
            loop = asyncio.get_running_loop()
            answer = connection.send(MetadataRequest(), timeout_s=0.5)
            deadline = loop.time() + 0.5
            while not asked.is_set():
                await asyncio.sleep(0)
            assert answered.wait(10)
            while loop.time() <= deadline:  # what a program does that takes long
                pass
            assert len((await answer).brokers) == 2000
            await closed(connection)
            thread.join()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work())


def _frame(peer: socket.socket) -> bytes:
    size = int.from_bytes(peer.recv(4, socket.MSG_WAITALL), "big")
    return peer.recv(size, socket.MSG_WAITALL)


@BOTH_LOOPS
def test_a_connection_is_over_when_the_broker_ends_its_side_though_bytes_wait_to_be_sent(new_loop: NewLoop) -> None:
    """Nothing can be answered any more, and a peer that reads nothing would hold the rest up for ever."""

    async def work() -> None:
        release = asyncio.Event()

        async def end_its_side(key: int, version: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
            writer.write_eof()
            await release.wait()

        async with server(end_its_side) as port:
            connection = await opened(port)
            large = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 30_000)] * 1000)
            try:
                async with asyncio.timeout(3):
                    with pytest.raises(NetworkError, match="the broker closed the connection"):
                        await asyncio.gather(connection.send(MetadataRequest()), connection.send(large))
                    await connection.wait_closed()
                assert connection.is_closed
            finally:
                connection.close()
                release.set()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work())


@pytest.mark.parametrize("steps", range(12))
async def test_an_opening_that_is_cancelled_leaves_no_socket(steps: int) -> None:
    async with server(nothing) as port:
        watcher = await opened(port)  # the server ends when a connection has
        listening = set(os.listdir("/proc/self/fd"))
        opening = asyncio.create_task(opened(port))
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait({opening})
        if not opening.cancelled():
            await closed(opening.result())
        async with asyncio.timeout(60):
            while len(os.listdir("/proc/self/fd")) > len(listening):
                await asyncio.sleep(0)
        await closed(watcher)


async def test_a_half_received_answer_is_not_kept_with_a_closed_connection() -> None:
    async def half(key: int, version: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write((900_000).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + bytes(200_000))
        await writer.drain()
        writer.close()

    async with server(half) as port:
        connection = await opened(port)
        with pytest.raises(NetworkError):
            await connection.call(MetadataRequest())
        await connection.wait_closed()
        assert sum(len(kept) for kept in vars(connection).values() if isinstance(kept, bytearray)) <= 65_536


async def test_a_client_that_has_used_its_quota_sends_nothing_for_the_stated_time() -> None:
    arrived: list[int] = []

    async def throttle(key: int, version: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        arrived.append(correlation_id)
        throttle_ms = 1_000_000 if len(arrived) == 1 else 0
        writer.writelines(encode_response(MetadataResponse(throttle_ms), version, correlation_id))

    async with server(throttle) as port:
        connection = await opened(port)
        assert (await connection.call(MetadataRequest())).throttle_time_ms == 1_000_000
        waiting = [connection.send(MetadataRequest()) for _ in range(3)]
        async with asyncio.timeout(5):
            other = await opened(port)  # what had been written would have arrived before this answer
        await closed(other)
        assert arrived == [2]
        assert connection.unanswered == 3
        connection._go_on()  # as the timer does
        await asyncio.gather(*waiting)
        assert arrived == [2, 3, 4, 5]
        await closed(connection)


async def test_a_request_that_is_held_back_has_its_whole_time_afterwards() -> None:
    async def throttle(key: int, version: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.writelines(encode_response(MetadataResponse(300 if correlation_id == 2 else 0), version, correlation_id))

    async with server(throttle) as port:
        connection = await opened(port)
        await connection.call(MetadataRequest())
        await connection.call(MetadataRequest(), timeout_s=0.25)
        await closed(connection)


async def test_requests_that_are_held_back_fail_with_their_connection() -> None:
    async def throttle(key: int, version: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.writelines(encode_response(MetadataResponse(1_000_000), version, correlation_id))

    async with server(throttle) as port:
        connection = await opened(port)
        await connection.call(MetadataRequest())
        waiting = connection.send(MetadataRequest())
        await closed(connection)
        with pytest.raises(NetworkError, match="closed by this client"):
            await waiting
