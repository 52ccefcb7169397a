"""Logins by SASL, from the outside: stock clients, raw requests in any order, users that change, wrong passwords."""

from __future__ import annotations

import asyncio
import gc
import os
import struct
import threading
import weakref
from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from oncelog.auth.password_hash import PasswordHash
from oncelog.auth.scram import ScramClient
from oncelog.auth.scram_credentials import SCRAM_MECHANISMS
from oncelog.broker.node import BrokerNode, BrokerStartError
from oncelog.demo.processes import free_port
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from support.kafka_python import LEAVES_SOCKETS
from support.raw_connection import RawConnection
from support.sasl import (
    ALICE,
    alter_credentials,
    authenticate,
    broker_with_sasl,
    log_in,
    login_settings,
    sasl_address,
    upsertion,
)

pytestmark = [pytest.mark.oncelog_only(reason="is about the broker's own listeners"), *LEAVES_SOCKETS]

LOGINS = [
    ("PLAIN", "alice", "alice;secret"),
    ("SCRAM-SHA-256", "bob", "bob's secret"),
    ("SCRAM-SHA-512", "bob", "bob's secret"),
]


async def add_bob(broker: BrokerNode) -> None:
    async with RawConnection(broker.address) as wire:
        for mechanism in SCRAM_MECHANISMS:
            assert await alter_credentials(wire, upsertion("bob", mechanism, "bob's secret")) == {"bob": 0}


async def is_closed(wire: RawConnection) -> bool:
    """Whether the broker closes the connection without another response."""
    try:
        await wire.receive_bytes()
    except (asyncio.IncompleteReadError, ConnectionError):
        return True
    return False


# ---- stock clients


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
async def test_clients_of_librdkafka_log_in(mechanism: str, user: str, password: str) -> None:
    async with broker_with_sasl() as broker:
        await add_bob(broker)
        settings = {
            "bootstrap.servers": sasl_address(broker),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

        def produce_and_consume() -> bytes:
            producer = Producer({**settings, "transactional.id": "t"})
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce("topic", b"value")
            producer.commit_transaction(60)
            consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
            consumer.subscribe(["topic"])
            message = consumer.consume(1, 60)[0]
            consumer.close()
            return bytes(message.value() or b"")

        assert await asyncio.to_thread(produce_and_consume) == b"value"


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
async def test_aiokafka_logs_in(mechanism: str, user: str, password: str) -> None:
    async with broker_with_sasl() as broker:
        await add_bob(broker)
        settings = login_settings(broker, mechanism, sasl_plain_username=user, sasl_plain_password=password)
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("topic", b"value")
        async with AIOKafkaConsumer("topic", group_id="g", auto_offset_reset="earliest", **settings) as consumer:
            assert (await consumer.getone()).value == b"value"


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # kafka-python leaves a socket open
@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
async def test_kafka_python_logs_in(mechanism: str, user: str, password: str) -> None:
    async with broker_with_sasl() as broker:
        await add_bob(broker)
        settings = login_settings(broker, mechanism, sasl_plain_username=user, sasl_plain_password=password)

        def produce_and_consume() -> bytes:
            producer = KafkaProducer(**settings)
            producer.send("topic", b"value").get(60)
            producer.close()
            consumer = KafkaConsumer("topic", group_id="g", auto_offset_reset="earliest", **settings)
            message = next(consumer)
            consumer.close()
            return bytes(message.value)

        assert await asyncio.to_thread(produce_and_consume) == b"value"
    gc.collect()


async def test_an_admin_client_changes_credentials() -> None:
    async with broker_with_sasl() as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})

        def change() -> list[tuple[ScramMechanism, int]]:
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
            change = UserScramCredentialUpsertion("carol", info, b"secret")
            admin.alter_user_scram_credentials([change])["carol"].result()
            described = cast("dict[str, Any]", admin.describe_user_scram_credentials(["carol"]))["carol"].result()
            return [(each.mechanism, each.iterations) for each in described.scram_credential_infos]

        assert await asyncio.to_thread(change) == [(ScramMechanism.SCRAM_SHA_512, 8192)]
        async with RawConnection(sasl_address(broker)) as wire:
            assert (await log_in(wire, "SCRAM-SHA-512", "carol", "secret")).error_code == 0

        def remove() -> None:
            deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_512)
            admin.alter_user_scram_credentials([deletion])["carol"].result()

        await asyncio.to_thread(remove)
        async with RawConnection(sasl_address(broker)) as wire:
            assert (await log_in(wire, "SCRAM-SHA-512", "carol", "secret")).error_code == 58


async def test_librdkafka_names_a_wrong_password() -> None:
    async with broker_with_sasl() as broker:
        errors: list[KafkaError] = []
        settings = {
            "bootstrap.servers": sasl_address(broker),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "wrong",
            "error_cb": errors.append,
        }

        def connect() -> None:
            producer = Producer(settings)
            for _ in range(600):
                producer.poll(0.1)
                if errors:
                    return

        await asyncio.to_thread(connect)
        assert errors[0].code() == KafkaError._AUTHENTICATION
        assert "Authentication failed: Invalid username or password" in errors[0].str()


# ---- which requests are admitted


@pytest.mark.parametrize("request_first", [MetadataRequest(), SaslAuthenticateRequest(b"\0alice\0alice;secret")])
async def test_another_request_before_the_login_closes_the_connection(request_first: Any) -> None:
    async with broker_with_sasl() as broker, RawConnection(sasl_address(broker)) as wire:
        wire.send(request_first, 2)
        assert await is_closed(wire)


async def test_versions_may_be_requested_once_before_the_login() -> None:
    async with broker_with_sasl() as broker, RawConnection(sasl_address(broker)) as wire:
        wire.send(ApiVersionsRequest("test", "1"), 3)
        assert len(await wire.receive_bytes()) > 100
        wire.send(ApiVersionsRequest("test", "1"), 3)
        assert await is_closed(wire)


async def test_a_request_for_versions_in_an_unknown_version_does_not_count() -> None:
    async with broker_with_sasl() as broker, RawConnection(sasl_address(broker)) as wire:
        header = struct.pack(">hhi", 18, 99, 7) + b"\xff\xff\0"
        wire.send_bytes(struct.pack(">i", len(header)) + header)
        assert (await wire.receive_bytes())[4:6] == (35).to_bytes(2, "big")
        wire.send(ApiVersionsRequest("test", "1"), 3)
        assert len(await wire.receive_bytes()) > 100
        assert (await log_in(wire, "PLAIN", "alice", "alice;secret")).error_code == 0


async def test_another_request_within_a_login_closes_the_connection() -> None:
    async with broker_with_sasl() as broker, RawConnection(sasl_address(broker)) as wire:
        await wire.call(SaslHandshakeRequest("PLAIN"), 1)
        wire.send(MetadataRequest(), 2)
        assert await is_closed(wire)


async def test_a_mechanism_that_is_not_enabled_is_answered_with_the_enabled_ones() -> None:
    settings = {"sasl.enabled.mechanisms": "SCRAM-SHA-512", "plain.sasl.jaas.config": ""}
    async with broker_with_sasl(**settings) as broker, RawConnection(sasl_address(broker)) as wire:
        answer = await wire.call(SaslHandshakeRequest("PLAIN"), 1)
        assert (answer.error_code, answer.mechanisms) == (33, ["SCRAM-SHA-512"])
        assert await is_closed(wire)


async def test_without_sasl_there_is_no_login() -> None:
    async with broker_with_sasl() as broker, RawConnection(broker.address) as wire:
        assert (await wire.call(SaslHandshakeRequest("PLAIN"), 1)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await authenticate(wire, b"\0alice\0alice;secret")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await wire.call(MetadataRequest(), 2)).brokers


async def test_a_large_request_before_the_login_closes_the_connection_and_is_taken_after_it() -> None:
    async with broker_with_sasl(**{"sasl.server.max.receive.size": "1024"}) as broker:
        async with RawConnection(sasl_address(broker)) as wire:
            await wire.call(SaslHandshakeRequest("PLAIN"), 1)
            wire.send(SaslAuthenticateRequest(b"x" * 1024), 1)
            assert await is_closed(wire)
        async with RawConnection(sasl_address(broker)) as wire:
            assert (await log_in(wire, "PLAIN", "alice", "alice;secret")).error_code == 0
            assert (await wire.call(DescribeUserScramCredentialsRequest([UserName("x" * 2000)]), 0)).results


async def test_a_client_that_does_not_log_in_is_disconnected() -> None:
    async with broker_with_sasl(**{"connection.authentication.timeout.ms": "50"}) as broker:
        async with RawConnection(sasl_address(broker)) as wire:
            await wire.call(SaslHandshakeRequest("PLAIN"), 1)
            assert await is_closed(wire)
        async with RawConnection(sasl_address(broker)) as wire:
            assert (await log_in(wire, "PLAIN", "alice", "alice;secret")).error_code == 0
            await asyncio.sleep(0.2)
            assert (await wire.call(MetadataRequest(), 2)).brokers


@pytest.mark.parametrize("password", ["alice;secret", "wrong"])
async def test_a_closed_connection_is_freed_without_garbage_collection(password: str) -> None:
    async with broker_with_sasl() as broker:
        assert broker._listeners is not None
        listener = broker._listeners.named("SASL_PLAINTEXT")
        gc.collect()
        gc.disable()
        try:
            async with RawConnection(sasl_address(broker)) as wire:
                await wire.call(ApiVersionsRequest("test", "1"), 3)
                (connection,) = (weakref.ref(each) for each in listener._connections)
                answer = await log_in(wire, "PLAIN", "alice", password)
                assert (answer.error_code == 0) == (password == "alice;secret")
            while listener.connection_count:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert connection() is None
        finally:
            gc.enable()


# ---- refused logins


@pytest.mark.parametrize(
    "message", [b"", b"alice", b"\0alice", b"\0alice\0x\0y", b"\xff\0a\0b", b"\0\0secret", b"\0alice\0"]
)
async def test_malformed_messages_of_plain_are_refused(message: bytes) -> None:
    async with broker_with_sasl() as broker, RawConnection(sasl_address(broker)) as wire:
        await wire.call(SaslHandshakeRequest("PLAIN"), 1)
        answer = await authenticate(wire, message)
        assert answer.error_code == 58
        assert (answer.error_message or "").startswith("Authentication failed: ")
        assert await is_closed(wire)


@pytest.mark.parametrize("user", ["alice", "nobody"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password_and_an_unknown_user_are_refused_alike(mechanism: str, user: str) -> None:
    async with broker_with_sasl() as broker, RawConnection(sasl_address(broker)) as wire:
        answer = await log_in(wire, mechanism, user, "wrong")
        texts = {
            "PLAIN": "Authentication failed: Invalid username or password",
            "SCRAM-SHA-256": "Authentication failed during authentication due to invalid credentials with SASL"
            " mechanism SCRAM-SHA-256",
        }
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (58, texts[mechanism], b"")
        assert await is_closed(wire)


async def test_the_iterations_of_an_unknown_user_are_those_of_users_that_exist() -> None:
    async def iterations(user: str) -> str:
        async with RawConnection(sasl_address(broker)) as wire:
            await wire.call(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
            answer = await authenticate(wire, ScramClient(SCRAM_MECHANISMS["SCRAM-SHA-256"], user, "?").first())
            return answer.auth_bytes.decode().rpartition(",i=")[2]

    async with broker_with_sasl() as broker, RawConnection(broker.address) as wire:
        for number in (5000, 8192):  # the second number replaces the first one
            change = upsertion("dan", "SCRAM-SHA-256", "secret", iterations=number)
            assert await alter_credentials(wire, change) == {"dan": 0}
            assert await iterations("dan") == await iterations("nobody") == str(number)
        assert await alter_credentials(wire, ScramCredentialDeletion("dan", 1)) == {"dan": 0}
        assert await iterations("dan") == await iterations("nobody") == "4096"


async def test_plain_refuses_to_act_for_another_user() -> None:
    async with broker_with_sasl() as broker, RawConnection(sasl_address(broker)) as wire:
        await wire.call(SaslHandshakeRequest("PLAIN"), 1)
        answer = await authenticate(wire, b"bob\0alice\0alice;secret")
        assert answer.error_code == 58
        assert "authorization id that is different from username" in (answer.error_message or "")


async def test_a_password_is_of_one_mechanism_only() -> None:
    async with broker_with_sasl() as broker:
        async with RawConnection(broker.address) as wire:
            assert await alter_credentials(wire, upsertion("dan", "SCRAM-SHA-256", "secret")) == {"dan": 0}
        for mechanism, code in (("SCRAM-SHA-256", 0), ("SCRAM-SHA-512", 58), ("PLAIN", 58)):
            async with RawConnection(sasl_address(broker)) as wire:
                assert (await log_in(wire, mechanism, "dan", "secret")).error_code == code


# ---- handshake of version 0


async def test_messages_without_headers_follow_a_handshake_of_version_0() -> None:
    async with broker_with_sasl() as broker:
        await add_bob(broker)
        async with RawConnection(sasl_address(broker)) as wire:
            await wire.call(SaslHandshakeRequest("SCRAM-SHA-512"), 0)
            client, challenge = ScramClient(SCRAM_MECHANISMS["SCRAM-SHA-512"], "bob", "bob's secret"), b""
            for answer in (lambda _: client.first(), client.respond):
                message = answer(challenge)
                wire.send_bytes(struct.pack(">i", len(message)) + message)
                challenge = await wire.receive_bytes()
            client.finish(challenge)
            assert (await wire.call(MetadataRequest(), 2)).brokers
        async with RawConnection(sasl_address(broker)) as wire:
            await wire.call(SaslHandshakeRequest("PLAIN"), 0)
            wire.send_bytes(struct.pack(">i", 19) + b"\0alice\0alice;secret")
            assert await wire.receive_bytes() == b""
            assert (await wire.call(MetadataRequest(), 2)).brokers
        async with RawConnection(sasl_address(broker)) as wire:
            await wire.call(SaslHandshakeRequest("PLAIN"), 0)
            wire.send_bytes(struct.pack(">i", 12) + b"\0alice\0wrong")
            assert await is_closed(wire)


# ---- sessions (KIP-368)


async def test_a_session_without_end_permits_no_second_login() -> None:
    async with broker_with_sasl() as broker, RawConnection(sasl_address(broker)) as wire:
        assert (await log_in(wire, "PLAIN", "alice", "alice;secret")).session_lifetime_ms == 0
        assert (await wire.call(SaslHandshakeRequest("PLAIN"), 1)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await authenticate(wire, b"\0alice\0alice;secret")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await wire.call(MetadataRequest(), 2)).brokers


async def test_a_large_message_of_a_repeated_login_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.broker.security.login.REPEATED_LOGIN_S", 0.0)
    settings = {"sasl.server.max.receive.size": "1024", "connections.max.reauth.ms": "3600000"}
    async with broker_with_sasl(**settings) as broker, RawConnection(sasl_address(broker)) as wire:
        for _ in range(2):
            assert (await log_in(wire, "PLAIN", "alice", "alice;secret")).error_code == 0
            assert (await wire.call(DescribeUserScramCredentialsRequest([UserName("x" * 2000)]), 0)).results
        await wire.call(SaslHandshakeRequest("PLAIN"), 1)
        wire.send(SaslAuthenticateRequest(b"x" * 1024), 1)
        assert await is_closed(wire)


# ---- credentials


async def test_credentials_live_through_a_restart(tmp_path: Path) -> None:
    async with broker_with_sasl(**{"log.dirs": str(tmp_path)}) as broker:
        await add_bob(broker)
        async with RawConnection(broker.address) as wire:
            assert await alter_credentials(wire, ScramCredentialDeletion("bob", 1)) == {"bob": 0}
    async with broker_with_sasl(**{"log.dirs": str(tmp_path)}) as broker:
        for mechanism, code in (("SCRAM-SHA-512", 0), ("SCRAM-SHA-256", 58)):
            async with RawConnection(sasl_address(broker)) as wire:
                assert (await log_in(wire, mechanism, "bob", "bob's secret")).error_code == code


async def test_changes_of_credentials_that_are_not_possible_are_refused() -> None:
    async with broker_with_sasl(**{"scram.max.users": "2"}) as broker, RawConnection(broker.address) as wire:
        good = upsertion("bob", "SCRAM-SHA-256", "secret")
        unknown = upsertion("carol", "SCRAM-SHA-256", "secret")
        unknown.mechanism = 3
        few, many = (
            upsertion(name, "SCRAM-SHA-256", "secret", iterations=count)
            for name, count in (("few", 4095), ("many", 16385))
        )
        nameless = upsertion("", "SCRAM-SHA-256", "secret")
        unsalted = upsertion("unsalted", "SCRAM-SHA-256", "secret")
        unsalted.salt = b""
        long = upsertion("long", "SCRAM-SHA-256", "secret")
        long.salted_password = bytes(1001)
        assert await alter_credentials(
            wire, good, unknown, few, many, nameless, unsalted, long, ScramCredentialDeletion("dan", 1)
        ) == {
            "dan": ErrorCode.RESOURCE_NOT_FOUND,
            "bob": 0,
            "carol": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "unsalted": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "long": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        }
        assert await alter_credentials(wire, good, ScramCredentialDeletion("bob", 1)) == {
            "bob": ErrorCode.DUPLICATE_RESOURCE
        }
        more = [upsertion(name, "SCRAM-SHA-256", "secret") for name in ("erin", "frank")]
        assert await alter_credentials(wire, more[0]) == {"erin": 0}
        assert await alter_credentials(wire, more[1], good) == {"frank": ErrorCode.POLICY_VIOLATION, "bob": 0}


async def test_credentials_are_described_without_keys() -> None:
    async with broker_with_sasl() as broker:
        await add_bob(broker)
        async with RawConnection(broker.address) as wire:
            everything = await wire.call(DescribeUserScramCredentialsRequest(None), 0)
            (bob,) = everything.results
            assert [(info.mechanism, info.iterations) for info in bob.credential_infos] == [(1, 4096), (2, 4096)]
            names = [UserName("bob"), UserName("nobody"), UserName("twice"), UserName("twice")]
            some = await wire.call(DescribeUserScramCredentialsRequest(names), 0)
            assert {result.user: result.error_code for result in some.results} == {
                "bob": 0,
                "nobody": ErrorCode.RESOURCE_NOT_FOUND,
                "twice": ErrorCode.DUPLICATE_RESOURCE,
            }


# ---- users of PLAIN in a file


async def test_a_changed_file_of_users_counts_at_once(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(
        f"# the team\n\nalice:{PasswordHash.of_password('first')}\nb:o:b:{PasswordHash.of_password('x')}\n"
    )
    settings = {"plain.users.location": str(users), "plain.sasl.jaas.config": ""}
    async with broker_with_sasl(**settings) as broker:

        async def code(user: str, password: str) -> int:
            async with RawConnection(sasl_address(broker)) as wire:
                return (await log_in(wire, "PLAIN", user, password)).error_code

        assert [await code("alice", "first"), await code("b:o:b", "x"), await code("alice", "second")] == [0, 0, 58]
        users.write_text(f"alice:{PasswordHash.of_password('second', 'SCRAM-SHA-256')}\n")
        assert [await code("alice", "second"), await code("alice", "first"), await code("b:o:b", "x")] == [0, 58, 58]
        users.unlink()
        assert await code("alice", "second") == 58


async def test_too_many_passwords_of_one_address_are_not_checked_and_others_log_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a hash is computed, wrong passwords wait; beyond the limit, their connections are closed."""
    users = tmp_path / "users"
    users.write_text("".join(f"{name}:{PasswordHash.of_password('right')}\n" for name in ("alice", "bob")))
    settings = {"plain.sasl.jaas.config": "", "plain.users.location": str(users)}
    async with broker_with_sasl(**settings, **{"sasl.server.max.waiting.logins.per.ip": "3"}) as broker:
        address = sasl_address(broker)

        async def code(name: str, password: str, source: str) -> int:
            """Return the error code of a login, -1 if the connection is closed without an answer."""
            async with RawConnection(address, source=source) as wire:
                try:
                    return (await log_in(wire, "PLAIN", name, password)).error_code
                except (asyncio.IncompleteReadError, ConnectionError):
                    return -1

        assert await code("alice", "right", "127.0.0.1") == 0
        hashed: list[str] = []
        begun, may_end = threading.Event(), threading.Event()
        matches = PasswordHash.matches

        def held(self: PasswordHash, password: str) -> bool:
            hashed.append(password)
            begun.set()
            assert may_end.wait(60)
            return matches(self, password)

        monkeypatch.setattr(PasswordHash, "matches", held)
        guesses = [asyncio.create_task(code("alice", f"guess {number}", "127.0.0.2")) for number in range(7)]
        await asyncio.to_thread(begun.wait, 60)
        await asyncio.wait(guesses, return_when=asyncio.FIRST_COMPLETED)
        other = asyncio.create_task(code("bob", "right", "127.0.0.3"))
        same = asyncio.create_task(code("alice", "right", "127.0.0.2"))
        while len([task for task in guesses if task.done()]) < 3:
            await asyncio.wait([task for task in guesses if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        may_end.set()
        assert [await other, await same] == [0, 0]
        assert sorted([await guess for guess in guesses]) == [-1] * 3 + [58] * 4
    assert len(hashed) == 5, "four guesses and bob, but not alice, whose password is remembered"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("alice:secret\n", "line 1: is not a user. Write NAME:HASH"),
        ("alice:SCRAM-SHA-256$4096:abc$def\n", "line 1: is not a password hash"),
        ("a:{hash}\na:{hash}\n", "line 2: names a user twice"),
    ],
)
async def test_a_file_of_users_that_cannot_be_read_is_refused_at_the_start(
    tmp_path: Path, content: str | None, message: str
) -> None:
    users = tmp_path / "users"
    if content is not None:
        users.write_text(content.replace("{hash}", str(PasswordHash.of_password("secret"))))
    with pytest.raises(BrokerStartError, match=message) as refused:
        async with broker_with_sasl(**{"plain.users.location": str(users), "plain.sasl.jaas.config": ""}):
            pass
    assert "secret" not in str(refused.value).replace(str(users), "")


async def test_nobody_can_connect_before_every_listener_is_ready(tmp_path: Path) -> None:
    """A request that arrived earlier could not be answered, as the address of its listener was not known."""
    users = tmp_path / "users"
    os.mkfifo(users)
    plaintext, sasl = free_port(), free_port()
    addresses = f"PLAINTEXT://127.0.0.1:{plaintext},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    starting = asyncio.create_task(
        BrokerNode(
            config={
                "listeners": addresses,
                "sasl.enabled.mechanisms": "PLAIN",
                "plain.users.location": str(users),
                "logging.level": "error",
            }
        ).__aenter__()
    )
    async with asyncio.timeout(60):
        with await asyncio.to_thread(users.open, "w") as writing:  # opened when the broker reads the file
            for port in (plaintext, sasl):
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection("127.0.0.1", port)
            writing.write(f"alice:{PasswordHash.of_password('secret')}\n")
        broker = await starting
        try:
            for port in (plaintext, sasl):
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
        finally:
            await broker.stop()


@pytest.mark.parametrize(
    "text", [ALICE[:-1], 'PlainLoginModule user_a="b";', ALICE.replace("Plain", "Scram"), "x" * 2_000_000]
)
async def test_a_jaas_line_that_cannot_be_read_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"plain\.sasl\.jaas\.config: ") as refused:
        BrokerNode(
            config={
                "listeners": "SASL_PLAINTEXT://:0",
                "sasl.enabled.mechanisms": "PLAIN",
                "plain.sasl.jaas.config": text,
            }
        )
    assert "secret" not in str(refused.value)
