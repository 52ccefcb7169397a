"""The bundled client on SASL listeners: each mechanism, new logins, refusals, and commands."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.client.admin import Admin, NewTopic
from oncelog.client.connection import Connection, ConnectionOptions
from oncelog.client.consumer import Consumer
from oncelog.client.errors import AuthenticationError, KafkaTimeoutError
from oncelog.client.login.mechanisms import Scram
from oncelog.client.producer import Producer
from oncelog.protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion
from oncelog.protocol.messages.metadata import MetadataRequest
from support.raw_connection import RawConnection, batch
from support.sasl import ALL_MECHANISMS, alter_credentials, broker_with_sasl, sasl_address, upsertion
from support.tls import HOST, Authority

pytestmark = pytest.mark.oncelog_only(reason="is about listeners with SASL")

MECHANISMS = ALL_MECHANISMS.split(",")
PASSWORD = "alice;secret"


@asynccontextmanager
async def broker_with_alice(**settings: Any) -> AsyncIterator[BrokerNode]:
    """A broker whose user alice can log in by each mechanism."""
    async with broker_with_sasl(**settings) as broker:
        async with RawConnection(broker.address) as wire:
            for mechanism in MECHANISMS[1:]:
                assert await alter_credentials(wire, upsertion("alice", mechanism, PASSWORD)) == {"alice": 0}
        yield broker


def settings_of(broker: BrokerNode, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": sasl_address(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "alice",
        "sasl_password": PASSWORD,
        **more,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_transactions_after_a_login(mechanism: str) -> None:
    async with broker_with_alice() as broker:
        settings = settings_of(broker, sasl_mechanism=mechanism)
        async with Admin(settings) as admin:
            await admin.create_topics([NewTopic("orders", 1)])
        async with Producer(settings, transactional_id="t") as producer, producer.transaction():
            await producer.send("orders", b"42 apples")
        async with Consumer(settings, topics=["orders"], group_id="g", auto_offset_reset="earliest") as consumer:
            seen: list[bytes | None] = []
            while not seen:
                seen = [record.value for record in await consumer.poll(1000)]
            assert seen == [b"42 apples"]


async def test_a_login_is_renewed_between_requests_of_the_same_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker_with_alice(**{"connections.max.reauth.ms": 3_600_000}) as broker:
        monkeypatch.setattr("oncelog.broker.security.login.REPEATED_LOGIN_S", 0.0)
        host, _, port = sasl_address(broker).rpartition(":")
        login = Scram("SCRAM-SHA-256", "alice", PASSWORD)
        connection = await Connection.open(host, int(port), ConnectionOptions(client_id="c", login=login))
        for _ in range(3):
            earlier = [connection.send(MetadataRequest()) for _ in range(5)]
            connection._login_due = 0.0
            later = [connection.send(MetadataRequest()) for _ in range(5)]
            await asyncio.gather(*earlier, *later)
            assert connection._login_due > asyncio.get_running_loop().time()
        assert not connection.is_closed
        connection.close()
        await connection.wait_closed()


async def test_tokens_of_an_identity_provider(tmp_path: Path) -> None:
    pytest.importorskip("jwt", reason="needs the extra: pip install 'oncelog[security]'")
    from support.identity_provider import ISSUER, IdentityProvider

    provider = IdentityProvider()
    listener = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "plain.sasl.jaas.config": "",
        "sasl.oauthbearer.jwks.endpoint.url": provider.write_keys(tmp_path / "keys"),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": "oncelog",
    }
    async with broker_with_sasl(**listener) as broker:
        settings: dict[str, Any] = {
            "bootstrap_servers": sasl_address(broker),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
        }
        async with Admin(settings, sasl_oauth_token_provider=lambda: (provider.token(lifetime_s=600), 600)) as admin:
            assert await admin.list_topics() == []
            assert admin._cluster is not None
            left = (await admin._cluster.any_connection(10))._login_due - asyncio.get_running_loop().time()
            assert 600 * 0.8 < left < 600 * 0.95  # the session ends with the token
        with pytest.raises(AuthenticationError, match="invalid_token"):
            async with Admin(settings, sasl_oauth_token_provider=lambda: (provider.token(lifetime_s=-600), 600)):
                pass


async def test_a_consumer_whose_user_is_deleted_is_told() -> None:
    async with (
        broker_with_alice() as broker,
        Consumer(settings_of(broker, auto_offset_reset="earliest")) as consumer,
    ):
        async with Admin(settings_of(broker)) as admin:
            await admin.create_topics([NewTopic("orders", 1)])
        consumer.assign([("orders", 0)])
        assert await consumer.poll(0) == []
        async with RawConnection(broker.address) as wire:
            assert (await wire.produce("orders", batch(b"x"))).error_code == 0
            assert await consumer.poll(60_000), "all connections are made, that of the fetches, too"
            await alter_credentials(wire, ScramCredentialDeletion("alice", 2))
        for state in consumer._cluster._connections._states.values():
            if state.connection is not None:
                state.connection.close()
        with pytest.raises(AuthenticationError, match="refused the login"):
            await consumer.poll(60_000)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("wrong", [{"sasl_username": "nobody"}, {"sasl_password": "guess"}])
async def test_wrong_credentials_are_told_at_once(mechanism: str, wrong: dict[str, str]) -> None:
    async with broker_with_alice() as broker:
        with pytest.raises(AuthenticationError, match=f"refused the login with {mechanism}"):
            async with Admin(settings_of(broker, sasl_mechanism=mechanism, **wrong)):
                pass


async def test_a_mechanism_that_is_not_enabled_names_those_that_are() -> None:
    async with broker_with_sasl(**{"sasl.enabled.mechanisms": "PLAIN"}) as broker:
        with pytest.raises(AuthenticationError, match="SCRAM-SHA-512; its mechanisms are: PLAIN"):
            async with Admin(settings_of(broker)):
                pass


async def test_listeners_and_protocols_that_do_not_fit_are_told() -> None:
    async with broker_with_alice() as broker:
        with pytest.raises(KafkaTimeoutError, match="does it require a login"):
            async with Admin(bootstrap_servers=sasl_address(broker), default_api_timeout_ms=1000):
                pass
        with pytest.raises(AuthenticationError, match="is that a listener with SASL"):
            async with Admin(settings_of(broker, bootstrap_servers=broker.address)):
                pass


async def test_a_login_over_tls(authority: Authority) -> None:
    listener = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_SSL://{HOST}:0",
        "ssl.keystore.location": str(authority.certificate("broker", HOST)),
    }
    async with broker_with_alice(**listener) as broker:
        assert broker._listeners is not None
        settings = {
            "bootstrap_servers": f"{HOST}:{broker._listeners.named('SASL_SSL').port}",
            "security_protocol": "SASL_SSL",
            "ssl_ca_location": str(authority.trusted),
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": PASSWORD,
        }
        async with Admin(settings) as admin:
            assert await admin.list_topics() == []


async def test_commands_take_the_settings_of_a_file(tmp_path: Path) -> None:
    async with broker_with_alice() as broker:
        file = tmp_path / "client.properties"

        def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-P", "-m", "oncelog.cli", *words, "--client-config", str(file)]
            return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)

        def write(password: str) -> None:
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            file.write_text(
                f"bootstrap.servers={sasl_address(broker)}\nsecurity.protocol=SASL_PLAINTEXT\n"
                "sasl.mechanism=SCRAM-SHA-256\n"
                f'sasl.jaas.config={module} required \\\n  username="alice" password="{password}";\n'
            )

        write(PASSWORD)
        await asyncio.to_thread(run, "topic", "create", "orders")
        await asyncio.to_thread(run, "produce", "orders", stdin="hello\n")
        read = await asyncio.to_thread(run, "consume", "orders", "--from-beginning", "--until-end")
        assert read.stdout == "hello\n"
        assert "healthy" in (await asyncio.to_thread(run, "health")).stdout
        write("guess")
        for words in (["topic", "list"], ["health"]):
            refused = await asyncio.to_thread(run, *words)
            assert refused.returncode == 1
            assert "refused the login with SCRAM-SHA-256" in refused.stderr
            assert "guess" not in refused.stderr
