"""Access tokens of OAUTHBEARER: functions of the program, OAuth servers, renewal, refusals."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl

import pytest
from oncelog import Admin, AuthenticationError, ConfigError, NetworkError, Producer
from oncelog.client.config import ClientConfig
from oncelog.client.login.settings import login_of
from oncelog.client.login.tokens import ClientCredentials, Token, TokenSource, provided
from oncelog.protocol.errors import ErrorCode
from support.sasl_broker import SaslBroker

SECRET = "hunter2"


def settings_of(broker: SaslBroker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"127.0.0.1:{broker.port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        **more,
    }


class OAuthServer:
    """An OAuth server that answers each request with `status` and `answer`, and remembers what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.status = 200
        self.answer: Any = {"access_token": "first", "expires_in": 3600}
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []


@contextmanager
def oauth_server() -> Iterator[OAuthServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            credentials = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            known.asked.append((credentials, dict(parse_qsl(body))))
            content = known.answer if isinstance(known.answer, bytes) else json.dumps(known.answer).encode()
            self.send_response(known.status)
            for name, value in {"Content-Length": str(len(content)), **known.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        known = OAuthServer(f"http://127.0.0.1:{server.server_port}/token")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield known
        finally:
            server.shutdown()
            thread.join()


async def test_tokens_of_a_function_that_is_async_or_not() -> None:
    async def later() -> tuple[str, float]:
        return "later", 60.0

    threads: list[threading.Thread] = []

    def at_once() -> tuple[str, float]:
        threads.append(threading.current_thread())
        return "at-once", 60.0

    for provider, token in ((later, "later"), (at_once, "at-once"), (lambda: later(), "later")):
        async with (
            SaslBroker({}, mechanisms=["OAUTHBEARER"]) as broker,
            Admin(settings_of(broker, sasl_oauth_token_provider=provider)) as admin,
        ):
            assert await admin.list_topics() == []
            assert set(broker.tokens) == {token}
    assert len(threads) == 1  # one token for all connections
    assert threads[0] is not threading.main_thread()


async def test_tokens_of_an_oauth_server() -> None:
    with oauth_server() as server:
        librdkafka = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "orders",
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
        }
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        options = 'scope="kafka" extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2"'
        java = {"sasl.jaas.config": f'{module} required clientId="orders" clientSecret="{SECRET}" {options};'}
        for settings in (librdkafka, java):
            async with SaslBroker({}, mechanisms=["OAUTHBEARER"]) as broker:
                base = settings_of(broker, sasl_oauthbearer_token_endpoint_url=server.url)
                async with Admin({**base, **settings}) as admin:
                    assert await admin.list_topics() == []
                assert set(broker.tokens) == {"first"}
                assert broker.extensions[0] == ["logicalCluster=lkc-1", "identityPoolId=pool-2"]
        asked = (f"orders:{SECRET}", {"grant_type": "client_credentials", "scope": "kafka"})
        assert server.asked == [asked, asked]


async def test_a_broker_that_refuses_the_token_is_told_once() -> None:
    async with SaslBroker({}, mechanisms=["OAUTHBEARER"]) as broker:
        broker.bad_tokens.add("bad")
        with pytest.raises(AuthenticationError, match="OAUTHBEARER: the token is not valid") as caught:
            async with Admin(settings_of(broker, sasl_oauth_token_provider=lambda: ("bad", 60))):
                pass
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (broker.connections, broker.tokens) == (1, ["bad"])


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_the_next_token_is_fetched_before_the_current_one_ends() -> None:
    clock, fetched, tried, failure = Clock(), 0, [0], [False]

    async def fetch() -> Token:
        nonlocal fetched
        await asyncio.sleep(0)
        tried[0] += 1
        if failure[0]:
            raise NetworkError(ErrorCode.NETWORK_EXCEPTION, "away")
        fetched += 1
        return Token(f"t{fetched}", 100.0)

    source = TokenSource(fetch, clock)
    assert await asyncio.gather(*[source.token() for _ in range(3)]) == ["t1"] * 3
    clock.now = 79.9
    assert await source.token() == "t1"
    clock.now = 80.0
    assert await source.token() == "t2"
    failure[0] = True
    for clock.now, attempts in ((160.0, 3), (169.9, 3), (170.0, 4), (179.9, 5)):
        assert await source.token() == "t2"
        assert tried[0] == attempts
    clock.now = 180.0
    with pytest.raises(NetworkError):
        await source.token()


@pytest.mark.parametrize(
    ("status", "answer", "error", "words"),
    [
        (401, {"error": "invalid_client", "error_description": "no"}, AuthenticationError, "invalid_client, no"),
        (400, b"<html>", AuthenticationError, "answered 400"),
        (302, b"", AuthenticationError, "answered 302"),
        (503, b"", NetworkError, "answered 503"),
        (429, b"", NetworkError, "answered 429"),
        (200, b"<html>", AuthenticationError, "lacks an access_token"),
        (200, {"access_token": "t"}, AuthenticationError, "valid expires_in"),
        (200, {"access_token": "t", "expires_in": "soon"}, AuthenticationError, "valid expires_in"),
        (200, {"access_token": "t", "expires_in": 0}, AuthenticationError, "lifetime of 0"),
        (200, {"access_token": "a\1b", "expires_in": 60}, AuthenticationError, "characters"),
    ],
)
async def test_answers_without_a_token(status: int, answer: Any, error: type[Exception], words: str) -> None:
    with oauth_server() as server:
        server.status, server.answer, server.headers = status, answer, {"Location": "http://127.0.0.1:1/"}
        credentials = ClientCredentials(server.url, "orders", SECRET, "", 10)
        with pytest.raises(error, match=words) as caught:
            await credentials.fetch()
        assert SECRET not in f"{caught.value} {credentials!r}"
        assert len(server.asked) == 1


async def test_a_server_that_cannot_be_reached() -> None:
    with pytest.raises(NetworkError, match="returned no token"):
        await ClientCredentials("http://127.0.0.1:1/token", "orders", SECRET, "", 10).fetch()


async def test_functions_that_give_no_token() -> None:
    def raises() -> tuple[str, float]:
        raise ValueError(SECRET)

    def away() -> tuple[str, float]:
        raise NetworkError(ErrorCode.NETWORK_EXCEPTION, "away")

    for provider, words in (
        (raises, "raised ValueError"),
        (lambda: "token", "did not return a token and its lifetime"),
        (lambda: ("token", True), "did not return a token and its lifetime"),
        (lambda: ("token", -1), "lifetime of -1"),
        (lambda: ("token", float("nan")), "lifetime of nan"),
        (lambda: ("a token", 60), "characters"),
    ):
        given: Any = provider
        with pytest.raises(AuthenticationError, match=words) as caught:
            await provided(given)
        assert SECRET not in str(caught.value)
    with pytest.raises(NetworkError):
        await provided(away)


URL = {"sasl.oauthbearer.token.endpoint.url": "https://login/token"}
CREDENTIALS = {"sasl.oauthbearer.client.id": "orders", "sasl.oauthbearer.client.secret": SECRET}


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({}, "sasl.oauthbearer.token.endpoint.url", "or sasl.oauth.token.provider"),
        ({"sasl.oauthbearer.method": "oidc"}, "sasl.oauthbearer.token.endpoint.url", "is missing"),
        (
            {"sasl.oauthbearer.method": "oidc", "sasl.oauth.token.provider": lambda: ("t", 1)},
            "sasl.oauth.token.provider",
            "has no effect with",
        ),
        (URL, "sasl.oauthbearer.client.id", "is missing"),
        ({**URL, "sasl.oauthbearer.client.id": "orders"}, "sasl.oauthbearer.client.secret", "is missing"),
        (
            {**CREDENTIALS, "sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"},
            "sasl.oauthbearer.token.endpoint.url",
            "https://",
        ),
        (
            {**CREDENTIALS, **URL, "sasl.oauthbearer.extensions": "auth=x"},
            "sasl.oauthbearer.extensions",
            "not of the form",
        ),
        (
            {**CREDENTIALS, **URL, "sasl.oauthbearer.extensions": "a=x\1b=y"},
            "sasl.oauthbearer.extensions",
            "not of the form",
        ),
        (
            {**URL, "sasl.oauth.token.provider": lambda: ("t", 1)},
            "sasl.oauthbearer.token.endpoint.url",
            "has no effect together with",
        ),
        ({"sasl.oauth.token.provider": SECRET}, "sasl.oauth.token.provider", "is not a function"),
        ({"sasl.username": "alice"}, "sasl.username", "no effect with sasl.mechanism = OAUTHBEARER"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.oauthbearer.scope": "kafka"},
            "sasl.oauthbearer.scope",
            "no effect with sasl.mechanism = PLAIN",
        ),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        login_of(ClientConfig.of({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **settings}))
    assert caught.value.key == key
    assert SECRET not in str(caught.value)


def test_a_record_that_waits_for_its_topic_is_sent_although_a_function_for_tokens_exits() -> None:
    exits: list[SystemExit] = []

    async def provider() -> tuple[str, float]:
        if exits:
            raise exits.pop()
        return "token", 0.001

    async def send() -> None:
        async with SaslBroker({}, mechanisms=["OAUTHBEARER"]) as broker:
            settings = settings_of(broker, enable_idempotence=False, acks=0, linger_ms=0)
            async with Producer(settings, sasl_oauth_token_provider=provider) as producer:
                broker.disconnect()
                exits.append(SystemExit())
                delivery = producer.send("orders", b"1")
                async with asyncio.timeout(10):
                    await delivery

    loop = asyncio.new_event_loop()
    with closing(loop):
        sending = loop.create_task(send())
        while not sending.done():  # each task that waits for the connection raises SystemExit
            with suppress(SystemExit):
                loop.run_until_complete(sending)
    sending.result()
    assert not exits
