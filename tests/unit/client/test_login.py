"""Logins with SASL at a broker that checks them: mechanisms, refusals, new logins, settings and secrets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

import pytest
from oncelog import (
    Admin,
    AuthenticationError,
    ConfigError,
    Consumer,
    KafkaTimeoutError,
    Producer,
    UnsupportedVersionError,
)
from oncelog.client.config import ClientConfig
from oncelog.client.connection import Connection, ConnectionOptions
from oncelog.client.errors import NetworkError
from oncelog.client.login.mechanisms import Ask, Mechanism, Plain, Scram
from oncelog.client.login.settings import login_of
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.messages.produce import ProduceRequest
from support.sasl_broker import SaslBroker

SECRET = "hunter2, and = more"
USERS = {"alice": SECRET}
JAAS = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN = ["ApiVersions", "SaslHandshake", "SaslAuthenticate"]


def settings_of(broker: SaslBroker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"127.0.0.1:{broker.port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": SECRET,
        **more,
    }


async def opened(broker: SaslBroker, login: Mechanism | None = None) -> Connection:
    options = ConnectionOptions(client_id="c", request_timeout_s=5, login=login or Plain("alice", SECRET))
    return await Connection.open("127.0.0.1", broker.port, options)


async def closed(connection: Connection) -> None:
    connection.close()
    await connection.wait_closed()


async def expired(broker: SaslBroker) -> Connection:
    """A connection whose next request renews the login."""
    connection = await opened(broker)
    connection._login_due = 0.0
    return connection


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_each_mechanism_logs_in_before_the_first_request(mechanism: str) -> None:
    async with SaslBroker(USERS) as broker, Admin(settings_of(broker, sasl_mechanism=mechanism)) as admin:
        assert await admin.list_topics() == []
        assert broker.logins[0] == "alice"
        assert broker.requests[: broker.requests.index("Metadata")] == LOGIN + LOGIN[2:] * (mechanism != "PLAIN")


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl_mechanisms": "scram-sha-256", "sasl_username": "alice", "sasl_password": SECRET},
        {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "alice", "sasl_plain_password": SECRET},
        {
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{JAAS}.scram.ScramLoginModule required username="alice" password="{SECRET}";',
        },
    ],
)
async def test_settings_by_the_names_of_each_client(settings: dict[str, str]) -> None:
    assert login_of(ClientConfig.of({"security.protocol": "sasl_ssl", **settings})) == Scram(
        "SCRAM-SHA-256", "alice", SECRET
    )


def test_a_login_module_can_name_a_delegation_token() -> None:
    jaas = f'{JAAS}.scram.ScramLoginModule required username="id" password="hmac" tokenauth="true";'
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
    assert login_of(ClientConfig.of(settings)) == Scram("SCRAM-SHA-512", "id", "hmac", {"tokenauth": "true"})


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({"security.protocol": "PLAINTEXT", "sasl.username": "a"}, "sasl.username", "has no effect"),
        ({}, "sasl.mechanism", "is missing"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "'GSSAPI' is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.username", "needs a user name"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a"}, "sasl.password", "needs a password"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a\0b", "sasl.password": "p"}, "sasl.username", "NUL"),
        ({"sasl.mechanism": "PLAIN", "sasl.mechanisms": "PLAIN"}, "sasl.mechanisms", "means the same"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.plain.username": "a"},
            "sasl.plain.username",
            "means the same",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.jaas.config": "x required;"},
            "sasl.username",
            "means the same",
        ),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "hunter2"}, "sasl.jaas.config", "not a login module"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x.PlainLoginModule required hunter2;"},
            "sasl.jaas.config",
            "not a login module",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x.ScramLoginModule required;"},
            "sasl.jaas.config",
            "PLAIN needs PlainLoginModule",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x.PlainLoginModule required;"},
            "sasl.jaas.config",
            "needs a user name",
        ),
        ({"sasl.kerberos.service.name": "kafka"}, "sasl.kerberos.service.name", "is not offered"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, str], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        login_of(ClientConfig.of({"security.protocol": "SASL_PLAINTEXT", **settings}))
    assert caught.value.key == key
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "nobody"])
async def test_wrong_credentials_are_refused_at_once(mechanism: str, user: str) -> None:
    async with SaslBroker({"alice": "other"}) as broker:
        settings = settings_of(broker, sasl_mechanism=mechanism, sasl_username=user)
        for client in (Admin, Producer, Consumer):
            with pytest.raises(AuthenticationError, match=f"refused the login with {mechanism}: .*Invalid") as caught:
                async with client(settings):
                    pass
            assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
            assert not caught.value.retriable
            assert SECRET not in f"{caught.value!r} {caught.value}"
        assert broker.connections == 3


@pytest.mark.parametrize(
    ("user", "told"),
    [("yPQJ7tXrT1mRk_iX0-d2cA", True), ("0123456789abcdef" * 2, True), ("alice", False), ("a_user_with_a_name", False)],
)
async def test_a_token_that_is_not_marked_as_one_is_refused_with_the_remedy(user: str, told: bool) -> None:
    async with SaslBroker({}) as broker:
        with pytest.raises(AuthenticationError) as caught:
            async with Admin(settings_of(broker, sasl_mechanism="SCRAM-SHA-512", sasl_username=user)):
                pass
    assert ('set sasl.jaas.config with tokenauth="true"' in str(caught.value)) is told


async def test_a_mechanism_that_the_broker_lacks_names_those_that_it_has() -> None:
    async with SaslBroker(USERS, mechanisms=["SCRAM-SHA-512", "OAUTHBEARER"]) as broker:
        with pytest.raises(AuthenticationError, match="PLAIN; its mechanisms are: SCRAM-SHA-512, OAUTHBEARER"):
            async with Admin(settings_of(broker)):
                pass


async def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    class Impostor(SaslBroker):
        async def _answer(self, session: Any, request: Any) -> Any:
            answer = await super()._answer(session, request)
            if bytes(getattr(answer, "auth_bytes", b"")).startswith(b"v="):
                answer.auth_bytes = b"v=AAAA"
            return answer

    async with Impostor(USERS) as broker:
        with pytest.raises(AuthenticationError, match="signature is wrong"):
            async with Admin(settings_of(broker, sasl_mechanism="SCRAM-SHA-256")):
                pass


async def test_a_broker_without_sasl_is_named() -> None:
    async with SaslBroker(USERS, apis=()) as broker:
        with pytest.raises(UnsupportedVersionError, match="does not support SASL: the broker does not offer Sasl"):
            async with Admin(settings_of(broker)):
                pass


async def test_a_client_without_login_is_told_that_the_listener_may_require_one() -> None:
    async with SaslBroker(USERS) as broker:
        address = f"127.0.0.1:{broker.port}"
        with pytest.raises(KafkaTimeoutError, match="does it require a login"):
            async with Admin(bootstrap_servers=address, default_api_timeout_ms=300):
                pass


async def test_the_login_is_renewed_on_the_same_connection() -> None:
    async with SaslBroker(USERS, lifetimes_ms=[60_000, 0]) as broker:
        connection = await opened(broker, Scram("SCRAM-SHA-256", "alice", SECRET))
        await connection.call(MetadataRequest())
        now = asyncio.get_running_loop().time()
        assert 50 < connection._login_due - now < 57
        connection._login_due = now
        await connection.call(MetadataRequest())
        await connection.call(MetadataRequest())
        login = ["SaslHandshake", "SaslAuthenticate", "SaslAuthenticate"]
        assert broker.requests == ["ApiVersions", *login, "Metadata", *login, "Metadata", "Metadata"]
        assert (broker.connections, broker.logins) == (1, ["alice", "alice"])
        await closed(connection)


async def test_requests_before_and_during_a_new_login_are_answered_in_order() -> None:
    async with SaslBroker(USERS) as broker:
        connection = await opened(broker)
        early = [connection.send(MetadataRequest()) for _ in range(3)]
        connection._login_due = 0.0
        broker.let.clear()
        held = [connection.send(MetadataRequest()) for _ in range(3)]
        posted = connection.post(ProduceRequest(acks=0))
        late = connection.send(MetadataRequest())
        await asyncio.gather(*early)
        assert not posted.done()
        assert connection.unanswered >= 5
        broker.let.set()
        await asyncio.gather(*held, late)
        await posted
        login = ["SaslHandshake", "SaslAuthenticate"]
        sent = ["Metadata"] * 3 + login + ["Metadata"] * 3 + ["Produce", "Metadata"]
        assert broker.requests == ["ApiVersions", *login, *sent]
        assert connection.unanswered == 0
        await closed(connection)


async def test_a_new_login_that_fails_closes_the_connection() -> None:
    async with SaslBroker(USERS) as broker:
        connection = await expired(broker)
        broker.users["alice"] = "changed"
        waiting = [connection.send(MetadataRequest()) for _ in range(2)]
        posted = connection.post(ProduceRequest(acks=0))
        for future in waiting:
            with pytest.raises(NetworkError, match=r"could not be renewed.*Invalid username or password"):
                await future
        await posted
        assert connection.is_closed
        with pytest.raises(NetworkError):
            connection.send(MetadataRequest())


async def test_a_new_login_that_is_cancelled_before_it_begins_closes_the_connection() -> None:
    async with SaslBroker(USERS) as broker:
        connection = await expired(broker)
        waiting = connection.send(MetadataRequest())
        for task in asyncio.all_tasks():
            if task.get_name().startswith("new login"):
                task.cancel()
        with pytest.raises(NetworkError, match=r"could not be renewed: CancelledError"):
            await waiting
        assert connection.is_closed


async def test_a_request_while_a_new_login_ends_is_answered_although_the_session_is_about_to_expire_again() -> None:
    async with SaslBroker(USERS, lifetimes_ms=[60_000, 1, 0]) as broker:
        connection = await expired(broker)
        first = connection.send(MetadataRequest())
        later: list[asyncio.Future[MetadataResponse]] = []

        def send_late(_: asyncio.Task[None]) -> None:
            time.sleep(0.002)  # the session of 1 ms expires
            later.append(connection.send(MetadataRequest()))

        assert connection._login is not None
        connection._login.add_done_callback(send_late)
        await first
        await asyncio.gather(*later)
        assert len(later) == 1
        await closed(connection)


class ExitsAtTheSecondLogin:
    """PLAIN, but the second login raises SystemExit, as a function of the program that provides a token may do."""

    name, remedy = "PLAIN", ""

    def __init__(self) -> None:
        self._has_logged_in = False

    async def authenticate(self, ask: Ask) -> None:
        if self._has_logged_in:
            raise SystemExit
        self._has_logged_in = True
        await Plain("alice", SECRET).authenticate(ask)


def test_a_new_login_that_exits_closes_the_connection() -> None:
    async def renew() -> None:
        async with SaslBroker(USERS) as broker:
            connection = await opened(broker, ExitsAtTheSecondLogin())
            connection._login_due = 0.0
            with pytest.raises(NetworkError, match=r"could not be renewed: SystemExit"):
                await connection.send(MetadataRequest())
            assert connection.is_closed

    loop = asyncio.new_event_loop()
    with contextlib.closing(loop):
        renewing = loop.create_task(renew())
        with pytest.raises(SystemExit):
            loop.run_until_complete(renewing)
        loop.run_until_complete(renewing)


async def test_records_fail_at_once_when_the_password_has_changed() -> None:
    async with SaslBroker(USERS) as broker:
        settings = settings_of(broker, enable_idempotence=False, acks=1, linger_ms=0)
        async with Producer(settings) as producer:
            assert await producer.partitions_for("orders") == 1
            broker.users["alice"] = "changed"
            broker.disconnect()
            sent = [producer.send("orders", value) for value in (b"1", b"2", b"3")]
            async with asyncio.timeout(10):
                for delivery in sent:
                    with pytest.raises(AuthenticationError, match="Invalid username or password"):
                        await delivery


async def test_requests_that_are_held_time_out() -> None:
    async with SaslBroker(USERS) as broker:
        connection = await expired(broker)
        broker.let.clear()
        with pytest.raises(KafkaTimeoutError, match="did not answer Metadata"):
            await connection.send(MetadataRequest(), None, 0.01)
        assert connection.is_closed
        broker.let.set()


async def test_closing_during_a_new_login_ends_it() -> None:
    async with SaslBroker(USERS) as broker:
        connection = await expired(broker)
        broker.let.clear()
        held = connection.send(MetadataRequest())
        await closed(connection)
        with pytest.raises(NetworkError, match="closed by this client"):
            await held
        broker.let.set()


async def test_secrets_are_in_no_log_and_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    jaas = f'{JAAS}.plain.PlainLoginModule required username="alice" password="{SECRET}";'
    for settings in (
        {"sasl.username": "alice", "sasl.password": SECRET},
        {"sasl.plain.username": "alice", "sasl.plain.password": SECRET},
        {"sasl.jaas.config": jaas},
    ):
        config = ClientConfig.of({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **settings})
        login = login_of(config)
        assert "alice" in repr(login)
        assert SECRET not in f"{config!r} {login!r} {Scram('SCRAM-SHA-256', 'alice', SECRET)!r}"
        options = ConnectionOptions(client_id="c", login=login)
        assert SECRET not in repr(options)
    async with SaslBroker({"alice": "other"}) as broker:
        with pytest.raises(AuthenticationError):
            async with Admin(settings_of(broker)):
                pass
    assert SECRET not in caplog.text
