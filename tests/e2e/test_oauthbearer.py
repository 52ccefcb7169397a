"""Logins with tokens (OAUTHBEARER), from the outside: stock clients, all kinds of defects, keys that change."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider
from oncelog.broker.node import BrokerNode, BrokerStartError
from oncelog.broker.security import token_keys
from oncelog.broker.system.ports import Lane
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from support.identity_provider import ISSUER, IdentityProvider, KeyServer
from support.inline_threads import InlineThreads
from support.kafka_python import LEAVES_SOCKETS
from support.raw_connection import RawConnection
from support.sasl import authenticate, broker_with_sasl, login_settings, sasl_address

pytestmark = [pytest.mark.oncelog_only(reason="is about the broker's own listeners"), *LEAVES_SOCKETS]

T = TypeVar("T")

REFUSAL = b'{"status":"invalid_token"}'


@pytest.fixture
def provider() -> IdentityProvider:
    return IdentityProvider()


@asynccontextmanager
async def broker_with_tokens(url: str, **settings: str) -> AsyncIterator[BrokerNode]:
    tokens = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "plain.sasl.jaas.config": "",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": "other,oncelog",
    }
    async with broker_with_sasl(**{**tokens, **settings}) as broker:
        yield broker


async def log_in(wire: RawConnection, token: str, identity: str = "") -> SaslAuthenticateResponse:
    assert (await wire.call(SaslHandshakeRequest("OAUTHBEARER"), 1)).error_code == 0
    return await authenticate(wire, f"n,{identity and 'a=' + identity},\x01auth=Bearer {token}\x01\x01".encode())


async def is_accepted(broker: BrokerNode, token: str, identity: str = "") -> bool:
    async with RawConnection(sasl_address(broker)) as wire:
        answer = await log_in(wire, token, identity)
        if answer.auth_bytes:
            assert (answer.error_code, answer.auth_bytes) == (0, REFUSAL)
            last = await authenticate(wire, b"\x01")
            assert (last.error_code, last.error_message) == (58, REFUSAL.decode())
            return False
        assert (await wire.call(MetadataRequest(), 2)).brokers
        return True


# ---- stock clients


async def test_librdkafka_logs_in_with_a_token(provider: IdentityProvider, tmp_path: Path) -> None:
    async with broker_with_tokens(provider.write_keys(tmp_path / "keys")) as broker:
        settings = {
            "bootstrap.servers": sasl_address(broker),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (provider.token(), time.time() + 3600),
        }

        def produce() -> int:
            producer = Producer(settings)
            producer.produce("topic", b"value")
            return int(producer.flush(60))

        assert await asyncio.to_thread(produce) == 0


async def test_aiokafka_logs_in_with_a_token(provider: IdentityProvider, tmp_path: Path) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
            return provider.token()

    async with broker_with_tokens(provider.write_keys(tmp_path / "keys")) as broker:
        settings = login_settings(broker, "OAUTHBEARER", sasl_oauth_token_provider=Provider())
        async with AIOKafkaProducer(**settings) as producer:
            assert (await producer.send_and_wait("topic", b"value")).offset == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # kafka-python leaves a socket open
async def test_kafka_python_logs_in_with_a_token(provider: IdentityProvider, tmp_path: Path) -> None:
    class Provider(KafkaPythonTokenProvider):  # type: ignore[misc]
        def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
            return provider.token()

    async with broker_with_tokens(provider.write_keys(tmp_path / "keys")) as broker:
        settings = login_settings(broker, "OAUTHBEARER", sasl_oauth_token_provider=Provider())

        def produce() -> int:
            producer = KafkaProducer(**settings)
            offset = producer.send("topic", b"value").get(60).offset
            producer.close()
            return int(offset)

        assert await asyncio.to_thread(produce) == 0
    gc.collect()


# ---- tokens


def unsigned(token: str) -> str:
    """The token with the algorithm `none` and without signature."""
    header = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "k1"}).encode()).rstrip(b"=").decode()
    return f"{header}.{token.split('.')[1]}."


def signed_by_a_secret(token: str) -> str:
    import jwt

    return jwt.encode(
        {"sub": "alice", "iss": ISSUER, "aud": "oncelog", "exp": int(time.time()) + 60},
        b"secret" * 8,
        "HS256",
        {"kid": "symmetric"},
    )


DEFECTS: dict[str, Callable[[IdentityProvider], str]] = {
    "expired": lambda provider: provider.token(lifetime_s=-60),
    "not valid yet": lambda provider: provider.token(nbf=int(time.time()) + 600),
    "without end": lambda provider: provider.token(exp=None),
    "of another issuer": lambda provider: provider.token(iss="https://other.example"),
    "without issuer": lambda provider: provider.token(iss=None),
    "for another audience": lambda provider: provider.token(aud="billing"),
    "without audience": lambda provider: provider.token(aud=None),
    "without user": lambda provider: provider.token(sub=None),
    "with an empty user": lambda provider: provider.token(""),
    "unsigned": lambda provider: unsigned(provider.token()),
    "signed by a published secret": lambda provider: signed_by_a_secret(provider.token()),
    "changed": lambda provider: provider.token()[:-9] + "AAAAAAAAA",
    "of an unknown key": lambda provider: IdentityProvider("other").token(),
    "signed by another key of that name": lambda provider: IdentityProvider().token(),
    "no token": lambda provider: "abc",
    "deep": lambda provider: f"{base64.urlsafe_b64encode(b'[' * 40_000).decode().rstrip('=')}.e30.AAAA",
}


@pytest.mark.parametrize("defect", DEFECTS)
async def test_a_token_with_a_defect_is_refused(provider: IdentityProvider, tmp_path: Path, defect: str) -> None:
    async with broker_with_tokens(provider.write_keys(tmp_path / "keys")) as broker:
        assert not await is_accepted(broker, DEFECTS[defect](provider))
        assert await is_accepted(broker, provider.token())


async def test_clocks_may_differ_a_little(provider: IdentityProvider, tmp_path: Path) -> None:
    settings = {"sasl.oauthbearer.clock.skew.seconds": "3000"}
    async with broker_with_tokens(provider.write_keys(tmp_path / "keys"), **settings) as broker:
        assert await is_accepted(broker, provider.token(lifetime_s=-2000))
        assert not await is_accepted(broker, provider.token(lifetime_s=-4000))
        async with RawConnection(sasl_address(broker)) as wire:
            assert (await log_in(wire, provider.token(lifetime_s=-2000))).session_lifetime_ms > 100_000
        async with RawConnection(sasl_address(broker)) as wire:
            assert 0 < (await log_in(wire, provider.token(lifetime_s=600))).session_lifetime_ms <= 600_000


async def test_the_user_is_in_the_claim_of_the_setting(provider: IdentityProvider, tmp_path: Path) -> None:
    settings = {"sasl.oauthbearer.sub.claim.name": "email"}
    async with broker_with_tokens(provider.write_keys(tmp_path / "keys"), **settings) as broker:
        assert await is_accepted(broker, provider.token("1234", email="alice@example.org"), "alice@example.org")
        assert not await is_accepted(broker, provider.token("1234", email="alice@example.org"), "1234")
        assert not await is_accepted(broker, provider.token("1234"))


@pytest.mark.parametrize(
    "message", [b"", b"n,,", b"n,,\x01auth=Basic abc\x01\x01", b"p=x,,\x01auth=Bearer a.b.c\x01\x01"]
)
async def test_malformed_messages_are_refused(provider: IdentityProvider, tmp_path: Path, message: bytes) -> None:
    keys = provider.write_keys(tmp_path / "keys")
    async with broker_with_tokens(keys) as broker, RawConnection(sasl_address(broker)) as wire:
        await wire.call(SaslHandshakeRequest("OAUTHBEARER"), 1)
        assert (await authenticate(wire, message)).auth_bytes == REFUSAL
        assert (await authenticate(wire, b"\x01")).error_code == 58


async def test_a_session_ends_with_its_token(provider: IdentityProvider, tmp_path: Path) -> None:
    keys = provider.write_keys(tmp_path / "keys")
    async with broker_with_tokens(keys) as broker, RawConnection(sasl_address(broker)) as wire:
        answer = await log_in(wire, provider.token(lifetime_s=600))
        assert 500_000 < answer.session_lifetime_ms <= 600_000


# ---- keys


async def test_a_new_key_is_fetched_when_a_token_names_it(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_keys, "RETRY_S", 0.0)
    with KeyServer(provider) as server:
        async with broker_with_tokens(server.url) as broker:
            assert await is_accepted(broker, provider.token())
            assert server.requests == 1
            provider.add_key()
            assert await is_accepted(broker, provider.token())
            assert await is_accepted(broker, provider.token(key_id="k1"))
            assert server.requests == 2


async def test_keys_that_do_not_exist_are_not_fetched_again_and_again(provider: IdentityProvider) -> None:
    with KeyServer(provider) as server:
        async with broker_with_tokens(server.url) as broker:
            for _ in range(3):
                assert not await is_accepted(broker, IdentityProvider("other").token())
            assert server.requests == 1


async def test_the_former_keys_are_used_while_the_server_fails(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_keys, "RETRY_S", 0.0)
    with KeyServer(provider) as server:
        async with broker_with_tokens(server.url) as broker:
            server.status = 500
            assert not await is_accepted(broker, IdentityProvider("other").token())
            assert server.requests == 2
            assert await is_accepted(broker, provider.token())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"[]", "no JSON Web Key Set"),
        (b'{"keys": []}', "no public key"),
        (b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "no public key"),
        (b"x" * 1_000_001, "more than 1,000,000 bytes"),
    ],
)
async def test_keys_that_cannot_be_read_are_refused_at_the_start(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BrokerStartError, match=message):
        async with broker_with_tokens(path.as_uri()):
            pass


@pytest.mark.parametrize("url", ["", "ftp://x/y", "keys.json"])
def test_an_address_that_cannot_have_keys_is_refused(url: str) -> None:
    settings = {"listeners": "SASL_PLAINTEXT://:0", "sasl.enabled.mechanisms": "OAUTHBEARER"}
    with pytest.raises(ValueError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url: "):
        BrokerNode(config={**settings, "sasl.oauthbearer.jwks.endpoint.url": url})


async def test_a_start_does_not_wait_for_keys_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may send its headers so slowly that no read times out."""

    class NoEnd(InlineThreads):
        def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
            return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(token_keys, "FETCH_S", 0.01)
    with pytest.raises(token_keys.KeysError, match=r"http://keys\.example cannot be read: no response within 0\.02 s"):
        await token_keys.TokenKeys("http://keys.example", 60, NoEnd(), structlog.get_logger()).start()
