"""Clients that are broken, slow, gone or malicious: the broker stays up, keeps nothing of them, serves the others."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import os
import resource
import signal
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest
from oncelog.broker.network.connection import Connection
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.broker import BrokerProcess
from support.raw_connection import RawConnection, batch
from support.sasl import broker_with_sasl

IN_PROCESS = "looks inside a broker in this process"
OWN_PROCESS = "stops the broker"


def fetch(topic: str, max_wait_ms: int = 60_000, times: int = 1, max_bytes: int = 1 << 30) -> FetchRequest:
    asked = [FetchPartition(0, -1, 0, partition_max_bytes=1 << 26) for _ in range(times)]
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, topics=[FetchTopic(topic, partitions=asked)]
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    async with BrokerNode(durability="os", logging_level="error") as running:
        yield running


def connections(broker: BrokerNode) -> int:
    assert broker._listeners is not None
    return broker._listeners.first.connection_count


def live_connections() -> int:
    gc.collect()
    return sum(isinstance(found, Connection) for found in gc.get_objects())


async def serves(address: str) -> None:
    async with RawConnection(address) as wire:
        assert (await wire.call(MetadataRequest([]), 12)).brokers


# ---- bytes that are no requests


GARBAGE = {
    "tls hello": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "text": b"hello, is anybody there?\n" * 100,
    "size past the limit": struct.pack(">i", 104857601) + bytes(10),
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_bytes_that_are_no_request_close_the_connection(bootstrap: str, name: str) -> None:
    async with RawConnection(bootstrap) as wire:
        wire.send_bytes(GARBAGE[name])
        assert await wire.closed()
    await serves(bootstrap)


@pytest.mark.oncelog_only(reason=IN_PROCESS)
async def test_announced_bytes_cost_nothing_before_they_come(broker: BrokerNode) -> None:
    before = psutil.Process().memory_info().rss
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(50):
            wire = await stack.enter_async_context(RawConnection(broker.address))
            wire.send_bytes(struct.pack(">i", 100_000_000) + b"\x00\x00")
        await serves(broker.address)
        assert connections(broker) >= 50
        assert psutil.Process().memory_info().rss - before < 50 << 20
    await until(lambda: connections(broker) == 0)


# ---- coming and going


@pytest.mark.oncelog_only(reason=IN_PROCESS)
async def test_nothing_is_left_of_two_thousand_connections(broker: BrokerNode) -> None:
    async with RawConnection(broker.address) as wire:
        await wire.create_topic("t")
    await until(lambda: connections(broker) == 0)
    tasks = len(asyncio.all_tasks())
    # What brokers of other tests may have left behind in this process doesn't count.
    living = live_connections()
    address = broker.address.rpartition(":")
    for turn in range(40):
        wires = []
        for number in range(50):
            reader, writer = await asyncio.open_connection(address[0], int(address[2]))
            wires.append(writer)
            if number % 3 == 0:
                writer.write(b"\x00\x00\x00\x50garbage")
            elif number % 3 == 1:
                raw = RawConnection(broker.address)
                raw._reader, raw._writer = reader, writer
                raw.send(ApiVersionsRequest(), 2)
                raw.send(fetch("t"), 12)
        if turn % 2:
            await asyncio.sleep(0.01)
        for writer in wires:
            writer.transport.abort()
    await until(lambda: connections(broker) == 0)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    await until(lambda: not broker.fetch_purgatory.waiting)  # of many waits, the rest end in later turns
    wires.clear()
    del writer, reader, raw
    assert live_connections() <= living
    log: Any = broker.replica_manager.partition("t", 0).log
    assert not log.offsets.listeners
    await serves(broker.address)


@pytest.mark.oncelog_only(reason=IN_PROCESS)
async def test_a_client_that_goes_while_its_request_is_parked_leaves_nothing(broker: BrokerNode) -> None:
    async with RawConnection(broker.address) as wire:
        await wire.create_topic("t")
        one = await wire.call(InitProducerIdRequest("id", 60_000), 4)
        registration = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_producer_id=one.producer_id,
            v3_and_below_producer_epoch=one.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0])],
        )
        await wire.call(registration, 3)

        async def never(markers: object) -> list[object]:
            await asyncio.Event().wait()
            raise AssertionError

        broker.replica_manager.append_markers = never  # type: ignore[method-assign, assignment]
        async with RawConnection(broker.address) as other:
            other.send(InitProducerIdRequest("id", 60_000), 4)
            waits = broker.transaction_coordinator.waits
            await until(lambda: waits.parked == 1)
            other.send(MetadataRequest([MetadataRequestTopic(name="made-behind")], True), 12)
            await asyncio.sleep(0.02)
        await until(lambda: waits.parked == 0)
        assert broker.metadata.topic("made-behind") is None, "what is behind a parked request is not executed"


async def test_a_half_closed_connection_is_closed(bootstrap: str) -> None:
    async with RawConnection(bootstrap) as wire:
        wire.send(ApiVersionsRequest(), 2)
        await wire.receive(ApiVersionsRequest, 2)
        wire._writer.write_eof()
        assert await wire.closed()


# ---- order and limits


async def test_requests_behind_a_waiting_fetch_are_answered_after_it(
    bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("t")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        sent = [wire.send(fetch(topic, 200), 12), wire.send(MetadataRequest([]), 12)]
        first, _ = await wire.receive(FetchRequest, 12)
        second, _ = await wire.receive(MetadataRequest, 12)
        assert [first, second] == sent


@pytest.mark.oncelog_only(reason="sets the broker's request memory")
async def test_waiting_fetches_keep_no_request_memory_from_producers() -> None:
    settings: dict[str, object] = {"queued.max.request.bytes": 4_000_000}
    async with (
        BrokerNode(durability="os", logging_level="error", config=settings) as broker,
        contextlib.AsyncExitStack() as all_open,
    ):
        producer = await all_open.enter_async_context(RawConnection(broker.address))
        await producer.create_topic("quiet")
        await producer.create_topic("t", max_message_bytes="4000000")
        for _ in range(3):
            reader = await all_open.enter_async_context(RawConnection(broker.address))
            reader.send(MetadataRequest([MetadataRequestTopic(name="x" * 30_000) for _ in range(40)]), 12)
            await reader.receive(MetadataRequest, 12)
            reader.send(fetch("quiet"), 12)
        await until(lambda: len(broker.fetch_purgatory.waiting) == 3)
        async with asyncio.timeout(60):
            assert (await producer.produce("t", batch(bytes(3_000_000)))).error_code == 0


@pytest.mark.oncelog_only(reason=IN_PROCESS)
async def test_a_partition_asked_for_twice_in_one_waiting_fetch(broker: BrokerNode) -> None:
    async with RawConnection(broker.address) as wire:
        await wire.create_topic("t")
        wire.send(fetch("t", times=3), 12)
        await until(lambda: len(broker.fetch_purgatory.waiting) == 1)
        async with RawConnection(broker.address) as producer:
            assert (await producer.produce("t", batch(b"x"))).error_code == 0
        _, answer = await wire.receive(FetchRequest, 12)
        assert any(part.records for part in answer.responses[0].partitions)
        log: Any = broker.replica_manager.partition("t", 0).log
    assert not log.offsets.listeners


async def test_a_topic_asked_for_a_thousand_times_is_told_once(
    bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("t")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        answer = await wire.call(MetadataRequest([MetadataRequestTopic(name=topic) for _ in range(1000)], False), 12)
        assert [found.name for found in answer.topics] == [topic]


@pytest.mark.oncelog_only(reason=IN_PROCESS)
async def test_a_client_that_does_not_read_is_not_answered_without_end(broker: BrokerNode) -> None:
    async with RawConnection(broker.address) as wire:
        await wire.create_topic("t")
        for _ in range(4):
            await wire.produce("t", batch(bytes(900_000)))
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", broker.port))
    request = b"".join(encode_request(fetch("t", 0), 12, 1, "slow"))
    with sock:
        await loop.sock_sendall(sock, request * 200)
        assert broker._listeners is not None
        await until(lambda: any(c.unsent for c in broker._listeners.first._connections))  # type: ignore[union-attr]
        await asyncio.sleep(0.2)
        (slow,) = broker._listeners.first._connections
        assert 0 < slow.unsent < 10 << 20, "200 answers of 3.6 MB were asked for"
        await serves(broker.address)


async def test_a_failed_produce_without_acks_closes_the_connection(
    bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    async with RawConnection(bootstrap) as wire:
        data = TopicProduceData(fresh_name("no-such-topic"), partition_data=[PartitionProduceData(7, batch(b"x"))])
        wire.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data]), 9)
        assert await wire.closed()


@pytest.mark.oncelog_only(reason=IN_PROCESS)
@pytest.mark.parametrize("error", [KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), RuntimeError("a bug")])
async def test_no_answer_comes_where_none_is_expected(error: Exception) -> None:
    async with BrokerNode(durability="os", logging_level="error") as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t")

        def refuse(*_: object) -> NoReturn:
            raise error

        produce = broker.dispatcher._load(0)
        assert produce is not None
        broker.dispatcher._apis[0] = dataclasses.replace(produce, handle=refuse)
        data = TopicProduceData("t", partition_data=[PartitionProduceData(0, batch(b"x"))])
        wire.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data]), 9)
        assert await wire.closed(), "an answer would be taken for that of the next request"


@pytest.mark.oncelog_only(reason=OWN_PROCESS)
async def test_a_flood_of_connections_leaves_descriptors_for_the_data(tmp_path: Path) -> None:
    reserve = 60
    settings = ["--set", f"max.open.files={reserve}", "--set", "log.segment.bytes=1048576"]
    with BrokerProcess(tmp_path, "--durability", "os", *settings) as process:
        async with RawConnection(process.address) as wire, contextlib.AsyncExitStack() as stack:
            await wire.create_topic("t")
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (200, 200))
            flood = [await stack.enter_async_context(RawConnection(process.address)) for _ in range(250)]
            assert await flood[-1].closed()
            assert psutil.Process(process.pid).num_fds() <= 200 - reserve
            # New partitions and rolled segments need files; nothing of it may look like a disk that fails.
            for index in range(10):
                await wire.create_topic(f"more-{index}")
            data = TopicProduceData("t", partition_data=[PartitionProduceData(0, batch(b"x" * 600_000))])
            for offset in range(6):
                answer = await wire.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
                produced = answer.responses[0].partition_responses[0]
                assert (produced.error_code, produced.base_offset) == (0, offset)
        async with RawConnection(process.address) as again:
            assert (await again.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)).topics
        assert '"level": "error"' not in process.log.read_text()


@pytest.mark.oncelog_only(reason=IN_PROCESS)
@pytest.mark.parametrize("name", ["PLAINTEXT", "SASL_PLAINTEXT"])
async def test_frames_that_drip_make_room_for_others_also_before_a_login(name: str) -> None:
    """Each byte of a client without a login waits for a turn; that time alone does not count for its frame."""
    settings = {"queued.max.request.bytes": "100000", "connection.authentication.timeout.ms": "3600000"}
    async with broker_with_sasl(**settings) as broker, contextlib.AsyncExitStack() as stack:
        assert broker._listeners is not None
        port = broker._listeners.named(name).port
        writers = []
        for _ in range(4):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write((60_000).to_bytes(4, "big"))
            writers.append(writer)
        listener = broker._listeners.named(name)
        async with asyncio.timeout(60):
            while listener.connection_count > 2:
                for writer in writers:
                    writer.write(b"\0")
                await asyncio.sleep(0.05)


@pytest.mark.oncelog_only(reason=OWN_PROCESS)
async def test_requests_of_a_peer_without_an_address_are_not_executed(tmp_path: Path) -> None:
    """A peer that resets its connection before the broker accepts it leaves requests, but no address for rules."""
    with BrokerProcess(tmp_path, "--durability", "os") as process:
        async with RawConnection(process.address) as wire:
            await wire.create_topic("t")
        request = ProduceRequest(
            acks=0,
            timeout_ms=1000,
            topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, batch(b"x"))])],
        )
        host, port = process.address.split(":")
        os.kill(process.pid, signal.SIGSTOP)
        try:
            for _ in range(5):
                with socket.create_connection((host, int(port))) as peer:
                    peer.sendall(b"".join(encode_request(request, 9, 1, "gone")))
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        finally:
            os.kill(process.pid, signal.SIGCONT)
        async with RawConnection(process.address) as wire:  # is accepted after them
            for _ in range(3):
                assert (await wire.produce("t", batch(b"y"))).error_code == 0
            assert (await wire.produce("t", batch(b"y"))).base_offset == 3


# ---- the end


@pytest.mark.oncelog_only(reason=OWN_PROCESS)
async def test_waiting_requests_are_answered_and_a_stop_is_quick(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--durability", "os") as process:
        async with contextlib.AsyncExitStack() as stack:
            waiting = await stack.enter_async_context(RawConnection(process.address))
            await waiting.create_topic("t")
            first = await stack.enter_async_context(RawConnection(process.address))
            assert (await first.call(join("group"), 3)).error_code == 0
            second = await stack.enter_async_context(RawConnection(process.address))
            second.send(join("group"), 3)  # waits for the first, which doesn't join again
            correlation_id = waiting.send(fetch("t"), 12)
            silent = await stack.enter_async_context(RawConnection(process.address))
            silent.send_bytes(b"\x00\x00")
            await asyncio.sleep(0.2)
            started = time.monotonic()
            ended = asyncio.get_running_loop().run_in_executor(None, process.terminate)
            got, answer = await waiting.receive(FetchRequest, 12)
            assert (got, answer.error_code) == (correlation_id, 0)
            _, joined = await second.receive(JoinGroupRequest, 3)
            assert ErrorCode(joined.error_code).retriable
            assert await ended == 0
            assert time.monotonic() - started < 1
            assert await silent.closed()
        log = process.log.read_text()
        assert "Traceback" not in log
        assert '"level": "error"' not in log


def join(group: str, member: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group, 30_000, 60_000, member, protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", b"")]
    )


@pytest.mark.oncelog_only(reason=IN_PROCESS)
async def test_a_join_that_waits_is_answered_at_a_stop() -> None:
    broker = BrokerNode(durability="os", logging_level="error", group_initial_rebalance_delay_ms=60_000)
    async with broker, RawConnection(broker.address) as wire:
        correlation_id = wire.send(join("group"), 3)
        await asyncio.sleep(0.1)
        started = time.monotonic()
        await broker.stop()
        got, answer = await wire.receive(JoinGroupRequest, 3)
        assert got == correlation_id
        assert ErrorCode(answer.error_code).retriable
        assert time.monotonic() - started < 1


@pytest.mark.oncelog_only(reason=IN_PROCESS)
async def test_a_request_that_waits_for_a_transaction_is_answered_at_a_stop() -> None:
    broker = BrokerNode(durability="os", logging_level="error", transaction_pending_wait_max_ms=60_000)
    async with broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t")
        one = await wire.call(InitProducerIdRequest("id", 60_000), 4)
        await broker.transaction_coordinator.registration.add_partitions(
            "id", one.producer_id, one.producer_epoch, [("t", 0)]
        )

        async def never(markers: object) -> list[object]:
            await asyncio.Event().wait()
            raise AssertionError

        broker.replica_manager.append_markers = never  # type: ignore[method-assign, assignment]
        wire.send(InitProducerIdRequest("id", 60_000), 4)
        await until(lambda: broker.transaction_coordinator.waits.parked == 1)
        started = time.monotonic()
        await broker.stop()
        _, answer = await wire.receive(InitProducerIdRequest, 4)
        assert ErrorCode(answer.error_code) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert time.monotonic() - started < 1


@pytest.mark.oncelog_only(reason=IN_PROCESS)
async def test_a_client_that_does_not_read_does_not_hold_up_a_stop() -> None:
    broker = BrokerNode(durability="os", logging_level="error", socket_send_buffer_bytes=4096)
    async with broker:
        async with RawConnection(broker.address) as wire:
            await wire.create_topic("t")
            for _ in range(8):
                await wire.produce("t", batch(bytes(900_000)))
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", broker.port))
        with sock:
            await loop.sock_sendall(sock, b"".join(encode_request(fetch("t", 0), 12, 1, "slow")))
            await until(lambda: any(c.unsent for c in broker._listeners.first._connections))  # type: ignore[union-attr]
            started = time.monotonic()
            await broker.stop()
            assert time.monotonic() - started < 1.5
