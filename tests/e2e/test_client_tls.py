"""The bundled client on TLS listeners: transactions, certificates, and what is said when they do not fit."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.client.admin import Admin, NewTopic
from oncelog.client.config import ClientConfig
from oncelog.client.connection import Connection, ConnectionOptions
from oncelog.client.consumer import Consumer
from oncelog.client.errors import ConfigError, KafkaTimeoutError, TlsError
from oncelog.client.producer import Producer
from oncelog.demo.processes import free_port
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.broker import BrokerProcess
from support.raw_connection import batch
from support.tls import HOST, Authority, broker_with_tls, pkcs12_store, tls_port

pytestmark = pytest.mark.oncelog_only(reason="is about listeners with TLS")


def settings_of(broker: BrokerNode, authority: Authority, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"{HOST}:{tls_port(broker)}",
        "security_protocol": "SSL",
        "ssl_ca_location": str(authority.trusted),
        **more,
    }


async def write_and_read(settings: dict[str, Any]) -> None:
    async with Admin(settings) as admin:
        await admin.create_topics([NewTopic("orders", 1)])
    values = [bytes([index]) * 300_000 for index in range(10)]
    async with Producer(settings, transactional_id="t") as producer, producer.transaction():
        for value in values:
            await producer.send("orders", value)
    async with Consumer(settings, topics=["orders"], group_id="g", auto_offset_reset="earliest") as consumer:
        seen: list[bytes | None] = []
        while len(seen) < len(values):
            seen += [record.value for record in await consumer.poll(5)]
    assert seen == values


async def test_transactions_over_tls(authority: Authority) -> None:
    async with broker_with_tls(authority) as broker:
        await write_and_read(settings_of(broker, authority))


async def test_a_certificate_of_the_client_in_each_form(authority: Authority, tmp_path: Path) -> None:
    alice = str(authority.certificate("alice"))
    (tmp_path / "p12").mkdir()
    pkcs12_store(authority, tmp_path / "alice.p12", "hunter2")
    pem = Path(alice).read_text()
    demanded = {"ssl.client.auth": "required", "ssl.truststore.location": str(authority.trusted)}
    forms: list[dict[str, Any]] = [
        {"ssl_certificate_location": alice, "ssl_key_location": alice},
        {"ssl_keystore_location": alice},
        {
            "ssl_keystore_location": str(tmp_path / "alice.p12"),
            "ssl_keystore_type": "PKCS12",
            "ssl_keystore_password": "hunter2",
        },
        {"ssl_key_pem": pem, "ssl_certificate_pem": pem},
        {"ssl_keystore_key": pem.replace("\n", " "), "ssl_keystore_certificate_chain": pem.replace("\n", " ")},
        {"ssl_key_pem": pem, "ssl_certificate_location": alice},
    ]
    async with broker_with_tls(authority, **demanded) as broker:
        for form in forms:
            async with Admin(settings_of(broker, authority, **form)) as admin:
                assert await admin.list_topics() == []
        for trusted in ("ssl_ca_pem", "ssl_truststore_certificates"):
            inline = settings_of(broker, authority, **forms[0]) | {trusted: authority.trusted.read_text()}
            with pytest.raises(ConfigError, match="means the same as"):
                await Admin(inline).start()
            del inline["ssl_ca_location"]
            async with Admin(inline) as admin:
                assert await admin.list_topics() == []
        address, context = f"{HOST}:{tls_port(broker)}", authority.context(Path(alice))
        async with Admin(bootstrap_servers=address, security_protocol="SSL", ssl_context=context) as admin:
            assert await admin.list_topics() == []


async def test_what_does_not_fit_is_told_at_once(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    async with broker_with_tls(authority) as broker:
        port = tls_port(broker)
        for settings, words in (
            (settings_of(broker, other), "certificate verify failed"),
            (settings_of(broker, authority, bootstrap_servers=f"127.0.0.1:{port}"), "certificate verify failed"),
        ):
            with pytest.raises(TlsError, match=words):
                async with Admin(settings):
                    pass
        plaintext = settings_of(broker, authority, bootstrap_servers=broker.address, default_api_timeout_ms=1000)
        with pytest.raises(KafkaTimeoutError, match="is that an SSL listener"):
            async with Admin(plaintext):
                pass
        unchecked = settings_of(broker, authority, ssl_endpoint_identification_algorithm="none")
        async with Admin({**unchecked, "bootstrap_servers": f"127.0.0.1:{port}"}) as admin:
            assert await admin.list_topics() == []


async def test_a_client_whose_certificate_is_refused_is_told_at_once(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    strange = str(Authority(tmp_path / "other").certificate("alice"))
    demanded = {"ssl.client.auth": "required", "ssl.truststore.location": str(authority.trusted)}
    for version in ("TLSv1.2", "TLSv1.3"):  # in TLS 1.3, the refusal arrives after the client's part of the handshake
        async with broker_with_tls(authority, **{**demanded, "ssl.enabled.protocols": version}) as broker:
            for own in ({}, {"ssl_certificate_location": strange, "ssl_key_location": strange}):
                with pytest.raises(TlsError, match="does it demand another certificate") as raised:
                    async with Admin(settings_of(broker, authority, **own)):
                        pass
                assert "_ssl.c" not in str(raised.value)


async def test_a_producer_says_why_records_wait(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    """The first address has a valid certificate, and the address that the broker advertises has not."""

    def waits() -> list[logging.LogRecord]:
        return [entry for entry in caplog.records if "records wait for a connection" in entry.getMessage()]

    port = free_port()
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SSL://{HOST}:{port}",
        "advertised.listeners": f"SSL://127.0.0.1:{port}",
    }
    async with broker_with_tls(authority, **listeners) as broker:
        with caplog.at_level(logging.DEBUG):
            async with Producer(settings_of(broker, authority)) as producer:
                producer.send("orders", b"x")  # creates the topic over the first address
                async with asyncio.timeout(60):
                    while len(waits()) < 3:
                        await asyncio.sleep(0.01)
                with pytest.raises(KafkaTimeoutError):
                    await producer.close(0)
    told = [entry.getMessage() for entry in waits() if entry.levelno == logging.WARNING]
    assert len(told) == 1
    assert "certificate is not valid for '127.0.0.1'" in told[0]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"ssl_ca_location": "absent.pem"}, "ssl.ca.location"),
        ({"ssl_certificate_location": "a.pem"}, "ssl.key.location"),
        ({"ssl_ca_location": "a.pem", "ssl_truststore_location": "b.pem"}, "ssl.truststore.location"),
        ({"ssl_key_pem": "hunter2"}, "ssl.certificate.pem"),
        ({"ssl_key_pem": "hunter2", "ssl_keystore_location": "a.pem"}, "ssl.keystore.location"),
        ({"ssl_keystore_key": "hunter2", "ssl_keystore_certificate_chain": "x"}, "ssl.keystore.certificate.chain"),
        ({"ssl_ca_pem": "no certificate"}, "ssl.ca.pem"),
        ({"ssl_keystore_location": "absent.p12", "ssl_keystore_type": "PKCS12"}, "ssl.keystore.location"),
        ({"ssl_cipher_suites": "NONSENSE"}, "ssl.cipher.suites"),
        ({"ssl_context": "yes"}, "ssl.context"),
        ({"ssl_context": ssl.create_default_context(), "ssl_ca_location": "a.pem"}, "ssl.ca.location"),
        ({"security_protocol": "PLAINTEXT", "ssl_ca_location": "a.pem"}, "ssl.ca.location"),
    ],
)
async def test_settings_that_cannot_be_are_named(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        async with Admin({"security_protocol": "SSL", **settings}):
            pass


async def test_commands_take_the_settings_of_a_file(authority: Authority, tmp_path: Path) -> None:
    async with broker_with_tls(authority) as broker:
        file = tmp_path / "client.properties"
        address = f"{HOST}:{tls_port(broker)}"
        file.write_text(f"security.protocol=SSL\nssl.ca.location={authority.trusted}\nbootstrap.servers={address}\n")

        def run(*words: str, stdin: str = "") -> str:
            command = [sys.executable, "-P", "-m", "oncelog.cli", *words, "--client-config", str(file)]
            return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, timeout=60).stdout

        await asyncio.to_thread(run, "topic", "create", "orders")
        await asyncio.to_thread(run, "produce", "orders", stdin="hello\n")
        read = await asyncio.to_thread(run, "consume", "orders", "--from-beginning", "--until-end")
        assert read == "hello\n"
        assert "healthy" in await asyncio.to_thread(run, "health")


def test_certificates_for_development(tmp_path: Path) -> None:
    directory = tmp_path / "certs"

    def run(*words: str) -> str:
        command = [sys.executable, "-P", "-m", "oncelog.cli", "certs", str(directory), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    printed = run()
    assert "ssl.ca.location" in printed
    assert sorted(path.name for path in directory.iterdir()) == ["broker.pem", "ca-key.pem", "ca.pem", "client.pem"]
    assert {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()} == {
        "ca.pem": 0o644,
        "ca-key.pem": 0o600,
        "broker.pem": 0o600,
        "client.pem": 0o600,
    }
    before = (directory / "broker.pem").read_bytes()
    run("--client", "alice")
    assert (directory / "broker.pem").read_bytes() == before
    arguments = ["--listen", f"SSL://{HOST}:{free_port()}", "--set", f"ssl.keystore.location={directory}/broker.pem"]
    arguments += ["--set", "ssl.client.auth=required", "--set", f"ssl.truststore.location={directory}/ca.pem"]
    with BrokerProcess(tmp_path, *arguments):
        port = arguments[1].rpartition(":")[2]
        context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        context.load_cert_chain(directory / "alice.pem")
        with (
            socket.create_connection((HOST, int(port))) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as secured,
        ):
            assert secured.version() == "TLSv1.3"


async def test_records_without_acknowledgement_arrive(authority: Authority) -> None:
    """With acks=0, flush and close wait until the bytes are sent, also between other requests of the connection."""
    async with broker_with_tls(authority) as broker:
        settings = settings_of(broker, authority)
        async with Admin(settings) as admin:
            await admin.create_topics([NewTopic("unacknowledged", 1)])
        values = [bytes([index]) * 900_000 for index in range(30)]
        async with Producer(settings, acks=0, enable_idempotence=False) as producer:
            for value in values:
                await producer.enqueue("unacknowledged", value)
                await producer.partitions_for("unacknowledged")
        async with Consumer(
            settings, topics=["unacknowledged"], group_id="g0", auto_offset_reset="earliest"
        ) as consumer:
            seen: list[bytes | None] = []
            async with asyncio.timeout(60):
                while len(seen) < len(values):
                    seen += [record.value for record in await consumer.poll(5)]
    assert seen == values


class SlowNetwork:
    """Forwards connections to a port, and takes few bytes of a client at a time; `taken` counts them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.taken = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, to_them = await asyncio.open_connection(HOST, self._port)
        answers = asyncio.create_task(self._forward(theirs, writer))
        while data := await reader.read(16 * 1024):
            self.taken += len(data)
            to_them.write(data)
            await to_them.drain()
            await asyncio.sleep(0.001)
        to_them.close()
        await answers

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(16 * 1024):
            writer.write(data)
        writer.close()


async def test_a_request_without_a_response_is_sent_when_the_socket_has_taken_it(authority: Authority) -> None:
    """TLS passes all that it holds to the transport of the socket at once, and then says that it holds nothing."""
    async with broker_with_tls(authority) as broker:
        async with Admin(settings_of(broker, authority)) as admin:
            await admin.create_topics([NewTopic("slow", 1)])
        network = SlowNetwork(tls_port(broker))
        listening = socket.create_server((HOST, 0))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        async with await asyncio.start_server(network.serve, sock=listening, limit=16 * 1024) as server:
            options = ConnectionOptions(client_id="slow", tls=authority.context(), send_buffer_bytes=16 * 1024)
            connection = await Connection.open(HOST, listening.getsockname()[1], options)
            data = TopicProduceData("slow", partition_data=[PartitionProduceData(0, batch(bytes(900_000)))])
            posted = [connection.post(ProduceRequest(acks=0, timeout_ms=0, topic_data=[data]), 9) for _ in range(4)]
            async with asyncio.timeout(60):
                await asyncio.gather(*posted)
                assert network.taken > 3_300_000  # the sockets hold the rest
                connection.close()
                await connection.wait_closed()
                while broker.replica_manager.partition("slow", 0).log.log_end_offset < 4:
                    await asyncio.sleep(0.01)
            server.close()


async def test_authorities_with_comments_in_other_scripts_and_a_pinned_certificate(
    authority: Authority, tmp_path: Path
) -> None:
    async with broker_with_tls(authority) as broker:
        commented = tmp_path / "commented.pem"
        commented.write_text("# Főtanúsítvány\n" + authority.trusted.read_text(), encoding="utf-8")
        leaf = tmp_path / "leaf.pem"
        pem = (tmp_path / "broker.pem").read_text()
        leaf.write_text(pem[pem.index("-----BEGIN CERTIFICATE") : pem.index("-----END CERTIFICATE") + 26])
        for file in (commented, leaf):
            async with Admin(settings_of(broker, authority, ssl_ca_location=str(file))) as admin:
                assert await admin.list_topics() == []


def test_passwords_are_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.key\.password") as caught:
        ClientConfig.of({"ssl_key_password": b"hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(ClientConfig.of({"ssl_key_password": "hunter2"}))


def test_a_name_that_cannot_be_used_leaves_nothing_behind(tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    command = [sys.executable, "-P", "-m", "oncelog.cli", "certs", str(directory), "--client", "ca-key"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "ca-key" in done.stderr
    assert not directory.exists()


@pytest.mark.parametrize(
    "host", ["", "localhost:9093", "SSL://localhost:9093", "two words", "zoë.example", "-x", "a..b"]
)
def test_a_host_that_cannot_be_used_leaves_nothing_behind(host: str, tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    command = [sys.executable, "-P", "-m", "oncelog.cli", "certs", str(directory), "--host", host]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "is neither a host name" in done.stderr
    assert not directory.exists()


def test_the_printed_settings_have_a_host_of_the_certificate(tmp_path: Path) -> None:
    def printed(*words: str) -> str:
        command = [sys.executable, "-P", "-m", "oncelog.cli", "certs", str(tmp_path), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    assert 'listeners = "SSL://localhost:9093"' in printed()
    for hosts, shown in ((["*.example.org", "kafka.example.org"], "kafka.example.org"), (["::1"], "[::1]")):
        first = printed(*(word for host in hosts for word in ("--host", host)))
        later = printed("--client", "alice")  # keeps the broker's certificate
        for text in (first, later):
            assert f'listeners = "SSL://{shown}:9093"' in text
            assert text.count(f"bootstrap.servers={shown}:9093") == 2


def test_an_authority_without_its_key_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    command = [sys.executable, "-P", "-m", "oncelog.cli", "certs", str(directory)]
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    (directory / "ca-key.pem").unlink()
    done = subprocess.run([*command, "--client", "bob"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "ca-key.pem" in done.stderr
    assert "Traceback" not in done.stderr
