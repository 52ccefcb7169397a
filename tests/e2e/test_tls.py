"""TLS listeners, from the outside: real handshakes, stock clients, files that change, peers that do not shake hands."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from oncelog.broker.network import acceptor
from oncelog.broker.node import BrokerNode, BrokerStartError
from oncelog.demo.processes import free_port
from oncelog.protocol.framing import decode_response, encode_request
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.settings import ConfigError
from support.broker import BrokerProcess
from support.hostile.handshakes import asking_twice, client_hello
from support.kafka_python import LEAVES_SOCKETS
from support.raw_connection import RawConnection, batch
from support.tls import HOST, Authority, broker_with_tls, pkcs12_store, rounds_of_steps, tls_port
from support.tls13 import Tls13

pytestmark = [pytest.mark.oncelog_only(reason="is about the broker's own listeners"), *LEAVES_SOCKETS]


async def ask(port: int, context: ssl.SSLContext | None, request: Any, response: Any, version: int) -> Any:
    """One request on a connection of its own."""
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
        try:
            writer.writelines(encode_request(request, version, 1, "tls"))
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            return decode_response(response, version, await reader.readexactly(size))[1]
        finally:
            writer.close()


async def greet(port: int, context: ssl.SSLContext | None) -> Any:
    return await ask(port, context, ApiVersionsRequest("test", "1"), ApiVersionsResponse, 3)


async def test_each_listener_tells_its_own_address(authority: Authority) -> None:
    async with broker_with_tls(authority) as broker:
        for port, context in ((broker.port, None), (tls_port(broker), authority.context())):
            answer = await ask(port, context, MetadataRequest([]), MetadataResponse, 12)
            assert [node.port for node in answer.brokers] == [port]
        assert broker.port != tls_port(broker)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_versions_of_tls_are_spoken(authority: Authority, version: ssl.TLSVersion) -> None:
    context = authority.context()
    context.minimum_version = context.maximum_version = version
    async with broker_with_tls(authority) as broker:
        assert (await greet(tls_port(broker), context)).error_code == 0


async def test_a_version_that_is_not_enabled_is_refused(authority: Authority) -> None:
    context = authority.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with broker_with_tls(authority, **{"ssl.enabled.protocols": "TLSv1.3"}) as broker:
        with pytest.raises(ssl.SSLError, match="TLSV1_ALERT_PROTOCOL_VERSION"):
            await greet(tls_port(broker), context)
        assert (await greet(tls_port(broker), authority.context())).error_code == 0


async def test_suites_are_those_of_the_setting(authority: Authority) -> None:
    suites = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    async with broker_with_tls(authority, **{"ssl.cipher.suites": suites}) as broker:
        _, writer = await asyncio.open_connection(HOST, tls_port(broker), ssl=authority.context())
        cipher, version, _ = writer.get_extra_info("cipher")
        writer.close()
        assert cipher.endswith("AES256-GCM-SHA384")
        assert version == "TLSv1.2"


CLIENT_AUTH = [
    ("required", "own", True),
    ("required", "none", False),
    ("required", "stranger", False),
    ("requested", "own", True),
    ("requested", "none", True),
    ("requested", "stranger", False),
    ("none", "stranger", True),
]


@pytest.mark.parametrize(("demanded", "shown", "accepted"), CLIENT_AUTH)
async def test_certificates_of_clients(
    authority: Authority, tmp_path: Path, demanded: str, shown: str, accepted: bool
) -> None:
    (tmp_path / "stranger").mkdir()
    stranger = Authority(tmp_path / "stranger").certificate("mallory")
    file = {"own": authority.certificate("alice"), "none": None, "stranger": stranger}[shown]
    settings = {"listener.name.ssl.ssl.client.auth": demanded, "ssl.truststore.location": str(authority.trusted)}
    async with broker_with_tls(authority, **settings) as broker:
        if accepted:
            assert (await greet(tls_port(broker), authority.context(file))).error_code == 0
        else:
            alert = "CERTIFICATE_REQUIRED" if shown == "none" else "ALERT_UNKNOWN_CA"
            with pytest.raises(ssl.SSLError, match=alert):
                await greet(tls_port(broker), authority.context(file))


async def test_keys_in_pkcs12_and_in_the_settings_themselves(authority: Authority, tmp_path: Path) -> None:
    pkcs12_store(authority, tmp_path / "broker.p12", "hunter2")
    pem = (tmp_path / "broker.pem").read_text()
    key, _, chain = pem.partition("-----BEGIN CERTIFICATE-----")
    in_file = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(tmp_path / "broker.p12"),
        "ssl.keystore.password": "hunter2",
    }
    inline = {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----" + chain}
    for settings in (in_file, inline):
        async with broker_with_tls(authority, **settings) as broker:
            assert (await greet(tls_port(broker), authority.context())).error_code == 0


async def test_keys_that_cannot_be_used_are_named_and_their_passwords_are_not(
    authority: Authority, tmp_path: Path
) -> None:
    pkcs12_store(authority, tmp_path / "broker.p12", "hunter2")
    (tmp_path / "old.jceks").write_bytes(b"\xce\xce\xce\xce" + bytes(60))
    (tmp_path / "cut.jks").write_bytes(b"\xfe\xed\xfe\xed" + bytes(6))
    (tmp_path / "half.pem").write_text((tmp_path / "ca.pem").read_text())
    for location, kind, words in (
        ("absent.pem", "PEM", "cannot be read"),
        ("half.pem", "PEM", "private key"),
        ("broker.p12", "PEM", "not PEM"),
        ("broker.p12", "PKCS12", "password"),
        ("old.jceks", "JKS", "keytool -importkeystore"),
        ("cut.jks", "JKS", "cannot be read as JKS: it is cut off"),
    ):
        settings = {
            "ssl.keystore.location": str(tmp_path / location),
            "ssl.keystore.type": kind,
            "ssl.keystore.password": "secret7",
        }
        with pytest.raises(BrokerStartError, match=words) as caught:
            async with broker_with_tls(authority, **settings):
                pass
        assert location in str(caught.value)
        assert "secret7" not in str(caught.value)


async def served_certificate(port: int, authority: Authority) -> bytes:
    _, writer = await asyncio.open_connection(HOST, port, ssl=authority.context())
    served: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return served


async def until(condition: Callable[[], Any], state: Callable[[], Any] = str) -> None:
    try:
        async with asyncio.timeout(60):
            while not await condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within 60 s; now {state()}") from None


async def test_a_changed_certificate_is_used_and_connections_stay(authority: Authority, tmp_path: Path) -> None:
    file = authority.certificate("broker", HOST)
    settings = {"ssl.keystore.location": str(file), "ssl.reload.interval.ms": 20}
    async with broker_with_tls(authority, **settings) as broker:
        port = tls_port(broker)
        first = await served_certificate(port, authority)
        reader, writer = await asyncio.open_connection(HOST, port, ssl=authority.context())
        file.write_text("damaged")
        await asyncio.sleep(0.1)
        assert await served_certificate(port, authority) == first
        authority.certificate("broker", HOST)

        async def is_new() -> bool:
            return await served_certificate(port, authority) != first

        await until(is_new)
        writer.writelines(encode_request(ApiVersionsRequest("test", "1"), 3, 1, "tls"))
        assert len(await reader.readexactly(4)) == 4
        writer.close()


async def test_peers_that_do_not_shake_hands_are_counted_and_closed_in_time(authority: Authority) -> None:
    limits = {"connection.authentication.timeout.ms": 300, "max.connections": 3}
    async with broker_with_tls(authority, **limits) as broker:
        silent = [socket.create_connection((HOST, tls_port(broker))) for _ in range(3)]
        loop = asyncio.get_running_loop()
        refused = socket.create_connection((HOST, tls_port(broker)))
        for peer in (refused, *silent):
            peer.setblocking(False)
        async with asyncio.timeout(60):
            for peer in (refused, *silent):
                with contextlib.suppress(ConnectionResetError):
                    assert await loop.sock_recv(peer, 1) == b""
                peer.close()
        assert broker._listeners is not None
        await until_closed(broker)
        assert (await greet(tls_port(broker), authority.context())).error_code == 0


async def until_closed(broker: BrokerNode) -> None:
    async def none_left() -> bool:
        assert broker._listeners is not None
        return broker._listeners.named("SSL").connection_count == 0

    await until(none_left)


async def test_plaintext_and_noise_on_a_tls_port_are_refused(authority: Authority) -> None:
    async with broker_with_tls(authority) as broker:
        for noise in (b"\x00\x00\x00\x10" + bytes(16), b"GET / HTTP/1.1\r\n\r\n", bytes(100_000)):
            reader, writer = await asyncio.open_connection(HOST, tls_port(broker))
            writer.write(noise)
            async with asyncio.timeout(60):
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()
            writer.close()
        await until_closed(broker)
        assert (await greet(tls_port(broker), authority.context())).error_code == 0


async def received(peer: socket.socket) -> bytes:
    peer.settimeout(60)
    return await asyncio.to_thread(peer.recv, 65536)


@pytest.mark.parametrize("records", [1, 2])
async def test_handshakes_begin_one_after_another_when_their_first_message_is_complete(
    authority: Authority, records: int
) -> None:
    """A signature costs about a millisecond, and thousands of clients may connect at the same time."""
    hello = client_hello()
    if records == 2:
        hello = hello[:3] + b"\x00\x01" + hello[5:6] + hello[:3] + (len(hello) - 6).to_bytes(2, "big") + hello[6:]
    async with broker_with_tls(authority) as broker:
        peers = [socket.create_connection((HOST, tls_port(broker))) for _ in range(20)]
        with rounds_of_steps() as steps:
            for peer in peers:
                peer.sendall(hello[:-1])

            async def accepted() -> bool:
                return broker._listeners is not None and broker._listeners.named("SSL").limits._count == len(peers)

            await until(accepted)
            assert not steps()
            for peer in peers:
                peer.sendall(hello[-1:])
            for peer in peers:
                with peer:
                    assert (await received(peer))[:1] == b"\x16"
            assert max(steps().values()) == 1


async def test_every_step_of_a_handshake_takes_a_turn(authority: Authority) -> None:
    first, second = asking_twice()
    async with broker_with_tls(authority) as broker:
        peers = [socket.create_connection((HOST, tls_port(broker))) for _ in range(20)]
        with rounds_of_steps() as steps:
            for peer in peers:
                peer.sendall(first)

            async def begun() -> bool:
                return sum(steps().values()) == len(peers)

            await until(begun)
            for peer in peers:
                assert (await received(peer))[:1] == b"\x16"
            for peer in peers:
                peer.sendall(second)
            for peer in peers:
                with peer:
                    assert len(await received(peer)) > 500, "a certificate"
            assert sum(steps().values()) == 2 * len(peers)
            assert max(steps().values()) == 1


async def test_a_client_that_changes_its_keys_very_often_is_served(authority: Authority) -> None:
    loop, request = asyncio.get_running_loop(), ApiVersionsRequest("test", "1")
    async with broker_with_tls(authority) as broker, asyncio.timeout(60):
        with socket.create_connection((HOST, tls_port(broker))) as sock:
            sock.setblocking(False)
            client = await Tls13.connect(sock)
            for correlation_id in (1, 2):
                flood = client.key_updates(3000)
                data = client.data(b"".join(encode_request(request, 3, correlation_id, "tls")))
                await loop.sock_sendall(sock, flood + data)
                answer = b""
                while not answer:
                    answer = client.received(await loop.sock_recv(sock, 65_536))
                answered, response = decode_response(ApiVersionsResponse, 3, answer[4:])
                assert (answered, response.error_code) == (correlation_id, 0)


async def test_a_flood_of_connections_is_accepted_in_steps(authority: Authority) -> None:
    async with broker_with_tls(authority) as broker:
        assert broker._listeners is not None
        limits = broker._listeners.named("SSL").limits
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(socket.create_connection((HOST, tls_port(broker))))
            counts = [limits._count]
            async with asyncio.timeout(60):
                while counts[-1] < 200:
                    await asyncio.sleep(0)
                    counts.append(limits._count)
        assert max(after - before for before, after in itertools.pairwise(counts)) <= acceptor.ACCEPTED_AT_ONCE


async def test_a_broker_stops_at_once_beside_handshakes_that_do_not_end(authority: Authority) -> None:
    async with broker_with_tls(authority) as broker:
        silent = socket.create_connection((HOST, tls_port(broker)))
        _, writer = await asyncio.open_connection(HOST, tls_port(broker), ssl=authority.context())
        started = time.monotonic()
        await broker.stop()
        assert time.monotonic() - started < 5
        silent.close()
        writer.close()


LARGE = [bytes([index]) * 700_000 for index in range(20)]


def read_by_librdkafka(common: Mapping[str, str | int | float | bool], topic: str) -> list[bytes | None]:
    """The values of as many records as `LARGE` has."""
    consumer = Consumer({**common, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: list[bytes | None] = []
    deadline = time.monotonic() + 60
    while len(seen) < len(LARGE):
        assert time.monotonic() < deadline, f"only {len(seen)} records were read"
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.append(message.value())
    consumer.close()
    return seen


async def test_librdkafka_kafka_python_and_aiokafka_write_and_read(authority: Authority) -> None:
    alice = str(authority.certificate("alice"))
    settings = {"ssl.client.auth": "required", "ssl.truststore.location": str(authority.trusted)}
    async with broker_with_tls(authority, **settings) as broker:
        address = f"{HOST}:{tls_port(broker)}"
        trusted = str(authority.trusted)

        def librdkafka() -> list[bytes | None]:
            common: dict[str, str | int | float | bool] = {
                "bootstrap.servers": address,
                "security.protocol": "SSL",
                "ssl.ca.location": trusted,
                "ssl.certificate.location": alice,
                "ssl.key.location": alice,
            }
            admin = AdminClient(common)
            admin.create_topics([NewTopic("rd", 1, 1)])["rd"].result(20)
            producer = Producer({**common, "transactional.id": "t"})
            producer.init_transactions(20)
            producer.begin_transaction()
            for value in LARGE:
                producer.produce("rd", value)
            producer.commit_transaction(30)
            return read_by_librdkafka(common, "rd")

        def kafka_python() -> list[bytes]:
            common: dict[str, Any] = {
                "bootstrap_servers": address,
                "security_protocol": "SSL",
                "ssl_cafile": trusted,
                "ssl_certfile": alice,
                "ssl_keyfile": alice,
            }
            producer = KafkaProducer(**common)
            for value in LARGE:
                producer.send("py", value).get(20)
            producer.close()
            consumer = KafkaConsumer("py", **common, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
            seen = []
            for record in consumer:
                seen.append(record.value)
                if len(seen) == len(LARGE):
                    break
            consumer.close()
            return seen

        assert await asyncio.to_thread(librdkafka) == LARGE
        assert await asyncio.to_thread(kafka_python) == LARGE
        common: dict[str, Any] = {
            "bootstrap_servers": address,
            "security_protocol": "SSL",
            "ssl_context": authority.context(Path(alice)),
        }
        admin = AIOKafkaAdminClient(**common)
        await admin.start()
        await admin.create_topics([AioNewTopic("aio", 1, 1)])
        await admin.close()
        async with AIOKafkaProducer(**common, max_request_size=2_000_000) as producer:
            for value in LARGE:
                await producer.send_and_wait("aio", value)
        async with AIOKafkaConsumer("aio", **common, auto_offset_reset="earliest") as consumer:
            async with asyncio.timeout(60):
                assert [(await consumer.getone()).value for _ in LARGE] == LARGE


def test_a_broker_process_serves_tls_through_a_kill(authority: Authority, tmp_path: Path) -> None:
    port = free_port()
    certificate = authority.certificate("broker", HOST)
    arguments = ["--listen", f"SSL://{HOST}:{port}", "--set", f"ssl.keystore.location={certificate}"]
    common = {
        "bootstrap.servers": f"{HOST}:{port}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.trusted),
    }
    broker = BrokerProcess(tmp_path)
    broker.port = free_port()
    broker.extra_arguments = arguments
    with broker:
        producer = Producer({**common, "enable.idempotence": True})
        for number, value in enumerate(LARGE):
            producer.produce("kept", value)
            if number == 10:
                producer.flush(30)
                broker.kill9()
                broker.start()
        assert producer.flush(60) == 0
        assert read_by_librdkafka(common, "kept") == LARGE


async def test_a_client_that_does_not_read_is_seen(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a TLS peer has not taken counts: a large answer is unsent until it is read, and a stop sends it whole."""
    async with broker_with_tls(authority) as broker:
        async with RawConnection(broker.address) as wire:
            await wire.create_topic("large")
            for _ in range(8):
                assert (await wire.produce("large", batch(bytes(900_000)))).error_code == 0
        assert broker._listeners is not None
        request = FetchRequest(
            max_bytes=20_000_000,
            topics=[FetchTopic("large", partitions=[FetchPartition(0, partition_max_bytes=20_000_000)])],
        )
        context = authority.context()
        plain = socket.create_connection((HOST, tls_port(broker)))
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        reader, writer = await asyncio.open_connection(sock=plain, ssl=context, server_hostname=HOST, limit=2**16)
        cast(Any, writer.transport).pause_reading()
        writer.writelines(encode_request(request, 11, 1, "tls"))
        listener = broker._listeners.named("SSL")

        async def is_unsent() -> bool:
            return any(connection.unsent > 1_000_000 for connection in listener._connections)

        def state() -> object:
            return [
                _buffered(writer.transport),
                *((one.unsent, vars(one), _buffered(one._transport)) for one in listener._connections),
            ]

        try:
            await until(is_unsent, state)
        except AssertionError:
            cast(Any, writer.transport).resume_reading()
            print("the response begins with", (await reader.read(100)).hex())
            raise
        monkeypatch.setattr("oncelog.broker.network.listener.STALLED_S", 60.0)
        cast(Any, writer.transport).resume_reading()
        async with asyncio.timeout(60):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            assert size > 7_000_000
            part = 1_000_000  # when a part is sent, TLS passes all the rest to the transport below it
            assert len(await reader.readexactly(part)) == part
            assert await is_unsent()
            stopping = asyncio.create_task(broker.stop())
            assert len(await reader.readexactly(size - part)) == size - part
        writer.close()
        await stopping


async def test_what_a_client_does_not_read_counts_even_if_it_has_closed_its_side(authority: Authority) -> None:
    async with broker_with_tls(authority) as broker:
        async with RawConnection(broker.address) as wire:
            await wire.create_topic("large")
            for _ in range(8):
                assert (await wire.produce("large", batch(bytes(900_000)))).error_code == 0
        plain = socket.create_connection((HOST, tls_port(broker)))
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        _, writer = await asyncio.open_connection(sock=plain, ssl=authority.context(), server_hostname=HOST)
        cast(Any, writer.transport).pause_reading()
        topic = FetchTopic("large", partitions=[FetchPartition(0, partition_max_bytes=20_000_000)])
        writer.writelines(encode_request(FetchRequest(max_bytes=20_000_000, topics=[topic]), 11, 1, "tls"))
        assert broker._listeners is not None
        connections = broker._listeners.named("SSL")._connections

        async def is_unsent() -> bool:
            return any(connection.unsent > 1_000_000 for connection in connections)

        await until(is_unsent)
        (connection,) = connections
        below = connection.below_tls
        assert below is not None
        plain.shutdown(socket.SHUT_WR)  # without the end of TLS

        async def is_closing() -> bool:
            return below.is_closing()

        await until(is_closing)
        assert connection.unsent > 1_000_000
        writer.transport.abort()


@pytest.mark.parametrize(("requests", "size"), [(5, 10_000), (50, 1000), (5, 900_000)])
async def test_requests_without_responses_are_executed_before_the_end(
    authority: Authority, tmp_path: Path, requests: int, size: int
) -> None:
    """The producer ends the connection right after its last request, and does not end TLS (no close_notify)."""
    port, certificate = free_port(), authority.certificate("broker", HOST)
    arguments = ["--listen", f"SSL://{HOST}:{port}", "--set", f"ssl.keystore.location={certificate}"]
    data = TopicProduceData("t", partition_data=[PartitionProduceData(0, batch(bytes(size)))])
    produce = b"".join(encode_request(ProduceRequest(acks=0, timeout_ms=0, topic_data=[data]), 9, 1, "tls"))
    with BrokerProcess(tmp_path / "data", *arguments) as broker:
        async with RawConnection(broker.address) as wire:
            await wire.create_topic("t")
            asked = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)])])

            async def are_all_there(expected: int) -> bool:
                return (await wire.call(asked, 7)).topics[0].partitions[0].offset == expected

            for times in range(1, 6):
                plain = socket.create_connection((HOST, port))
                with authority.context().wrap_socket(plain, server_hostname=HOST) as secured:
                    await asyncio.to_thread(secured.sendall, produce * requests)
                    socket.socket.shutdown(secured, socket.SHUT_WR)
                    await until(partial(are_all_there, times * requests))


def _buffered(transport: Any) -> object:
    """Return what the parts of a TLS transport hold, for the message of a failure."""
    if transport is None:
        return None
    tls, below = transport._ssl_protocol, transport._ssl_protocol._transport
    return {
        "state": tls._state,
        "incoming": tls._incoming.pending,
        "outgoing": (tls._outgoing.pending, tls._write_buffer_size, tls._ssl_writing_paused),
        "below": below and (repr(below), below.get_write_buffer_size(), below._protocol_paused, below.get_protocol()),
    }


async def test_a_file_that_may_not_be_read_yet_is_tried_again(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = authority.certificate("broker", HOST)
    async with broker_with_tls(authority, **{"ssl.keystore.location": str(file)}) as broker:
        assert broker._listeners is not None
        (watched,) = broker._listeners._contexts
        first, renewed = watched.get(), authority.ca.issue("broker", [HOST])
        file.write_bytes(renewed)
        with monkeypatch.context() as patch:
            patch.setattr(watched._tls, "context", _unreadable)
            watched._load_if_changed()
        assert watched.get() is first
        watched._load_if_changed()
        assert watched.get() is not first


def _unreadable() -> ssl.SSLContext:
    raise ConfigError("ssl.keystore.location", "permission denied")
