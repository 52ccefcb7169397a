"""The listener for metrics and health from outside: TLS, credentials, and the addresses that it binds."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from oncelog.broker.config import BrokerConfig
from oncelog.broker.log.results import storage_error
from oncelog.broker.network.metrics_listener import MAX_CONNECTIONS
from oncelog.broker.node import BrokerNode, BrokerStartError
from oncelog.settings import ConfigError
from support.hostile.handshakes import client_hello
from support.https import PASSWORD, TOKEN, basic, bearer, get, tokens_file, users_file
from support.tls import HOST, Authority, rounds_of_steps

pytestmark = pytest.mark.oncelog_only(reason="is about the broker's own listener")

OWN = "listener.name.metrics.ssl."
FILES = {"ssl.keystore.location": "x", "ssl.truststore.location": "x"}


@asynccontextmanager
async def broker(listener: str = f"http://{HOST}:0", **settings: Any) -> AsyncIterator[tuple[BrokerNode, int]]:
    """Run a broker; yield it with the port of its metrics."""
    config = {"metrics.listener": listener, "logging.level": "error", **settings}
    async with BrokerNode(config=config) as node:
        assert node.metrics_listener is not None
        yield node, node.metrics_listener.port


def tls(authority: Authority, **settings: Any) -> dict[str, Any]:
    return {f"{OWN}keystore.location": str(authority.certificate("broker", HOST)), **settings}


async def test_prometheus_reads_metrics_over_tls(authority: Authority) -> None:
    async with broker(f"https://{HOST}:0", **tls(authority)) as (_, port):
        answer = await get(port, "/metrics", authority.context())
        assert answer.status == 200
        assert "oncelog_transactional_ids" in answer.body
        assert (await get(port, "/health", authority.context())).body == "healthy\n"
        with pytest.raises(ssl.SSLCertVerificationError):
            await get(port, "/metrics", ssl.create_default_context())


async def test_plain_http_on_the_tls_port_gets_no_metrics_and_stops_nobody(authority: Authority) -> None:
    async with broker(f"https://{HOST}:0", **tls(authority)) as (_, port):
        for _ in range(2 * MAX_CONNECTIONS):
            with pytest.raises((http.client.HTTPException, OSError)):
                await get(port, "/metrics")
        assert (await get(port, "/metrics", authority.context())).status == 200


async def test_certificates_of_clients_are_demanded(authority: Authority) -> None:
    settings = tls(authority, **{f"{OWN}client.auth": "required", f"{OWN}truststore.location": str(authority.trusted)})
    async with broker(f"https://{HOST}:0", **settings) as (_, port):
        prometheus = authority.context(authority.certificate("prometheus"))
        assert (await get(port, "/metrics", prometheus)).status == 200
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            await get(port, "/metrics", authority.context())


async def test_the_settings_of_all_listeners_apply(authority: Authority) -> None:
    async with broker(f"https://{HOST}:0", **{"ssl.keystore.location": str(authority.certificate("broker", HOST))}) as (
        _,
        port,
    ):
        assert (await get(port, "/metrics", authority.context())).status == 200


async def test_a_replaced_certificate_is_used(authority: Authority, tmp_path: Path) -> None:
    settings = tls(authority, **{"ssl.reload.interval.ms": 20})
    async with broker(f"https://{HOST}:0", **settings) as (_, port):
        assert (await get(port, "/metrics", authority.context())).status == 200
        (tmp_path / "other").mkdir()
        other = Authority(tmp_path / "other")
        other.certificate("broker", HOST).rename(settings[f"{OWN}keystore.location"])
        async with asyncio.timeout(60):
            while True:
                try:
                    answer = await get(port, "/metrics", other.context())
                    break
                except ssl.SSLCertVerificationError:
                    continue
        assert answer.status == 200


@pytest.mark.parametrize("encrypted", [False, True])
async def test_only_clients_with_a_password_or_a_token_read_metrics(
    authority: Authority, tmp_path: Path, encrypted: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "metrics.users.location": str(users_file(tmp_path, "prometheus")),
        "metrics.bearer.token.location": str(tokens_file(tmp_path)),
        "logging.level": "debug",
        **(tls(authority) if encrypted else {}),
    }
    context = authority.context() if encrypted else None
    async with broker(f"{'https' if encrypted else 'http'}://{HOST}:0", **settings) as (_, port):
        for header in (basic("prometheus"), bearer(), basic("prometheus")):
            answer = await get(port, "/metrics", context, headers=header)
            assert answer.status == 200
            assert "oncelog_transactional_ids" in answer.body
        for header in ({}, basic("prometheus", "wrong"), basic("bob"), bearer("0" * 32), {"Authorization": "Basic"}):
            for path in ("/metrics", "/", "/other", "/metrics?x"):
                answer = await get(port, path, context, headers=header)
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"] == (
                    'Basic realm="oncelog", charset="UTF-8", Bearer realm="oncelog"'
                )
                assert "oncelog_" not in answer.body
        assert (await get(port, "/other", context, headers=bearer())).status == 404
    logged = capfd.readouterr()
    for secret in (PASSWORD, "secret", TOKEN, basic("prometheus")["Authorization"].split()[1]):
        assert secret not in logged.out + logged.err


async def test_two_headers_with_credentials_admit_nobody(tmp_path: Path) -> None:
    async with broker(**{"metrics.bearer.token.location": str(tokens_file(tmp_path))}) as (_, port):
        header = f"Authorization: Bearer {TOKEN}\r\n"
        for count, status in ((1, b"200"), (2, b"401")):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(f"GET /metrics HTTP/1.1\r\n{header * count}\r\n".encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 " + status)
            writer.close()


async def test_probes_without_credentials_get_the_status_of_health_only(tmp_path: Path) -> None:
    async with broker(**{"metrics.bearer.token.location": str(tokens_file(tmp_path))}) as (node, port):
        assert (await get(port, "/health")).status == 200
        node.log_manager.failed = storage_error("the disk is gone")
        probed = await get(port, "/health")
        assert (probed.status, probed.body) == (503, "unhealthy\n")
        assert "the disk is gone" in (await get(port, "/health", headers=bearer())).body
        node.log_manager.failed = None


async def test_health_demands_credentials_if_it_is_not_public(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"metrics.health.public": False}
    async with broker(**{"metrics.bearer.token.location": str(tokens_file(tmp_path))}, **settings) as (_, port):
        assert (await get(port, "/health")).status == 401
        assert (await get(port, "/health", headers=bearer())).status == 200


async def test_a_file_that_is_damaged_later_admits_nobody_until_it_is_corrected(tmp_path: Path) -> None:
    path = tokens_file(tmp_path)
    async with broker(**{"metrics.bearer.token.location": str(path)}) as (_, port):
        path.write_text("short\n")
        answer = await get(port, "/metrics", headers=bearer())
        assert answer.status == 503
        assert (await get(port, "/health")).status == 200
        path.write_text(f"{TOKEN}\n")
        assert (await get(port, "/metrics", headers=bearer())).status == 200


async def test_peers_that_do_not_shake_hands_do_not_keep_others_from_the_metrics(authority: Authority) -> None:
    async with broker(f"https://{HOST}:0", **tls(authority)) as (node, port):
        silent = [socket.create_connection((HOST, port)) for _ in range(3 * MAX_CONNECTIONS)]
        assert (await get(port, "/metrics", authority.context())).status == 200
        assert node.metrics_listener is not None
        assert len(node.metrics_listener._serving) <= MAX_CONNECTIONS
        for peer in silent:
            peer.close()


async def test_handshakes_of_the_metrics_take_turns(authority: Authority) -> None:
    async with broker(f"https://{HOST}:0", **tls(authority)) as (node, port):
        peers = [socket.create_connection((HOST, port)) for _ in range(MAX_CONNECTIONS)]
        metrics = node.metrics_listener
        assert metrics is not None
        async with asyncio.timeout(60):
            while len(metrics._serving) < MAX_CONNECTIONS:
                await asyncio.sleep(0)
        with rounds_of_steps() as steps:
            for peer in peers:
                peer.sendall(client_hello())
            async with asyncio.timeout(60):
                while sum(steps().values()) < MAX_CONNECTIONS:
                    await asyncio.sleep(0)
            assert max(steps().values()) == 1
        for peer in peers:
            peer.close()


@pytest.mark.parametrize(
    ("listener", "settings", "host"),
    [
        (":0", {}, "127.0.0.1"),
        ("http://:0", {}, "127.0.0.1"),
        ("0.0.0.0:0", {}, "0.0.0.0"),
        ("[::1]:0", {}, "::1"),
        ("https://:0", {"ssl.keystore.location": "x"}, "127.0.0.1"),
        ("http://:0", {"metrics.users.location": "x"}, ""),
        ("http://:0", {"metrics.bearer.token.location": "x"}, ""),
        ("https://:0", {**FILES, "ssl.client.auth": "required"}, ""),
        ("https://:0", {**FILES, f"{OWN}client.auth": "required"}, ""),
        ("http://:0", {**FILES, "ssl.client.auth": "required", "listeners": "SSL://:1"}, "127.0.0.1"),
    ],
)  # fmt: skip
def test_without_a_host_only_a_listener_that_authenticates_is_open_to_other_machines(
    listener: str, settings: dict[str, str], host: str
) -> None:
    row = BrokerConfig({"metrics.listener": listener, **settings}).read_metrics_listener()
    assert row is not None
    assert row.host == host


@pytest.mark.parametrize("with_token", [False, True])
async def test_an_open_listener_answers_this_machine_only(tmp_path: Path, with_token: bool) -> None:
    settings = {"metrics.bearer.token.location": str(tokens_file(tmp_path))} if with_token else {}
    async with broker("http://:0", **settings) as (_, port):
        assert (await get(port, "/health", host="127.0.0.1")).status == 200
        if with_token:
            assert (await get(port, "/health", host="127.0.0.2")).status == 200
        else:
            with pytest.raises(ConnectionRefusedError):
                await get(port, "/health", host="127.0.0.2")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"metrics.listener": "ftp://:1"}, "metrics.listener"),
        ({"metrics.listener": "SSL://:1"}, "metrics.listener"),
        ({"metrics.users.location": "x"}, "metrics.users.location"),
        ({"metrics.bearer.token.location": "x"}, "metrics.bearer.token.location"),
        ({"metrics.listener": "https://:1"}, "ssl.keystore.location"),
        ({"metrics.listener": "http://:1", f"{OWN}keystore.location": "x"}, f"{OWN}keystore.location"),
        ({"metrics.listener": ":1", "ssl.keystore.location": "x"}, "ssl.keystore.location"),
        ({"metrics.listener": "https://:1", "ssl.keystore.location": "x", "listeners": "METRICS://:2"}, "listeners"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(settings)
    assert refused.value.key == named


@pytest.mark.parametrize("setting", ["metrics.users.location", "metrics.bearer.token.location"])
@pytest.mark.parametrize("text", [None, "secret\n"])
async def test_a_file_that_cannot_be_used_at_the_start_is_named(tmp_path: Path, setting: str, text: str | None) -> None:
    path = tmp_path / "credentials"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BrokerStartError, match=setting) as refused:
        async with broker(**{setting: str(path)}):
            pass
    assert str(path) in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_a_failed_handshake_is_logged_with_its_reason(
    authority: Authority, capfd: pytest.CaptureFixture[str]
) -> None:
    async with broker(f"https://{HOST}:0", **tls(authority, **{"logging.level": "info"})) as (_, port):
        with pytest.raises((http.client.HTTPException, OSError)):
            await get(port, "/metrics")
        assert (await get(port, "/metrics", authority.context())).status == 200
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    [failed] = [line for line in lines if line.get("event") == "tls_handshake_failed"]
    assert failed["listener"] == "METRICS"
    assert failed["why"] == "http request"
