"""Who may use the REST interface of a worker: TLS, passwords, tokens, and the requests of other workers."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

pytest.importorskip("h11", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.connect.errors import ConfigValueError, NotLeaderError
from oncelog.connect.herder.herder import Herder
from oncelog.connect.rest.access import RestAccess
from oncelog.connect.rest.client import RestClient
from oncelog.connect.rest.errors import answer, errors
from oncelog.connect.rest.forwarding import forwarding
from oncelog.connect.rest.messages import Request, Response
from oncelog.connect.rest.routing import Route, Router
from oncelog.connect.rest.server import RestServer
from oncelog.connect.rest.tls import RestTls
from oncelog.connect.settings.distributed import DistributedConfig
from oncelog.connect.settings.rest import BASIC_AUTH
from oncelog.connect.settings.worker import STANDALONE, WorkerConfig
from support.https import PASSWORD, TOKEN, basic, bearer, get, tokens_file, users_file
from support.tls import HOST, Authority

CONVERTERS = {"key.converter": "JsonConverter", "value.converter": "JsonConverter"}
GROUP = {"group.id": "g", **{f"{kind}.storage.topic": kind for kind in ("config", "offset", "status")}}
HTTPS = "listeners.https.ssl."
KEY = {f"{HTTPS}keystore.location": "x"}
ALL = {"ssl.keystore.location": "x", "ssl.truststore.location": "x", "ssl.client.auth": "required"}
ADMIN_AUTH = "admin.listeners.https.ssl.client.auth"
REALM = 'Basic realm="oncelog", charset="UTF-8"'


def config(settings: Mapping[str, str]) -> WorkerConfig:
    return WorkerConfig(STANDALONE, {**CONVERTERS, "listeners": f"http://{HOST}:0", **settings})


def tls(authority: Authority, **settings: str) -> dict[str, str]:
    keystore = {f"{HTTPS}keystore.location": str(authority.certificate("worker", HOST))}
    return {"listeners": f"https://{HOST}:0", **keystore, **settings}


async def echo(request: Request) -> Response:
    return answer({"path": request.path, "body": len(request.body)})


ROUTES = [
    Route("GET", "/", echo),
    Route("GET", "/health", echo),
    Route("GET", "/connectors/{name}/tasks", echo),
    Route("POST", "/connectors/{name}/tasks", echo),
    Route("PUT", "/connectors/{name}/fence", echo),
    Route("PUT", "/connectors/{name}/config", echo),
]


@asynccontextmanager
async def worker(
    settings: Mapping[str, str], *, internal: bool = True, leader: str | None = None
) -> AsyncIterator[tuple[int, RestTls | None]]:
    """Serve the REST interface of a worker, which forwards all requests if there is a `leader`."""
    made = config(settings)
    context = RestTls(made.rest.main) if made.rest.main.ssl is not None else None
    access = RestAccess(made, internal=internal) if made.rest.has_credentials else None
    tls = None if context is None else context.server
    server = RestServer(made.rest.main.addresses, tls, access, max_connections=made["rest.max.connections"])
    server.bind()

    async def forward(request: Request) -> Response:
        raise NotLeaderError(leader)

    client = RestClient() if context is None else RestClient(lambda: context.client)
    routes = ROUTES if leader is None else [Route(route.method, route.pattern, forward) for route in ROUTES]
    await server.serve(cast(Herder, None), 1000, Router(routes, [errors, forwarding(client)]))
    if context is not None:
        context.watch(0.02)
    try:
        yield server.port, context
    finally:
        await server.stop()
        if context is not None:
            await context.stop()


@pytest.mark.parametrize("encrypted", [False, True])
async def test_only_clients_with_a_password_or_a_token_are_answered(
    authority: Authority, tmp_path: Path, encrypted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = {
        "rest.users.location": str(users_file(tmp_path, "alice")),
        "rest.bearer.token.location": str(tokens_file(tmp_path)),
        **(tls(authority) if encrypted else {}),
    }
    context = authority.context() if encrypted else None
    async with worker(settings) as (port, _):
        for header in (basic("alice"), bearer()):
            assert (await get(port, "/", context, headers=header)).status == 200
        for header in ({}, basic("alice", "wrong"), basic("bob"), bearer("0" * 32)):
            for path in ("/", "/unknown", "/connectors/a/tasks", "//health", "/health/x", "/x?/health"):
                refused = await get(port, path, context, headers=header)
                assert refused.status == 401
                assert refused.headers["WWW-Authenticate"] == f'{REALM}, Bearer realm="oncelog"'
                assert refused.body == '{"error_code":401,"message":"User cannot access the resource."}'
        assert (await get(port, "/health", context)).status == 200
        assert (await get(port, "/health", context, method="PUT")).status == 401
    for secret in (PASSWORD, "wrong", TOKEN, "0" * 32, basic("alice")["Authorization"].split()[1]):
        assert secret not in caplog.text


async def test_a_connection_counts_before_its_tls_handshake(authority: Authority) -> None:
    async with worker(tls(authority, **{"rest.max.connections": "1"})) as (port, _):
        _, silent = await asyncio.open_connection(HOST, port)
        refused, writer = await asyncio.open_connection(HOST, port)
        with contextlib.suppress(ConnectionError):
            assert await refused.read() == b""
        writer.close()
        silent.close()


async def test_health_demands_credentials_if_it_is_not_public(tmp_path: Path) -> None:
    settings = {"rest.bearer.token.location": str(tokens_file(tmp_path)), "rest.health.public": "false"}
    async with worker(settings) as (port, _):
        assert (await get(port, "/health")).status == 401
        assert (await get(port, "/health", headers=bearer())).status == 200


async def test_only_the_requests_that_workers_sign_need_no_credentials(tmp_path: Path) -> None:
    settings = {"rest.users.location": str(users_file(tmp_path, "alice"))}
    async with worker(settings) as (port, _):
        for method, path in (
            ("POST", "/connectors/a%2Fb/tasks"),
            ("PUT", "/connectors/a/fence/?forward=true"),
            ("PUT", "http://x/connectors/a/fence"),
        ):
            assert (await get(port, path, method=method)).status == 200
        for method, path in (
            ("GET", "/connectors/a/tasks"),
            ("PUT", "/connectors/a/config"),
            ("POST", "/connectors/a/tasks/0/restart"),
            ("PUT", "/connectors//fence"),
            ("PUT", "/connectors/a/config;/fence"),
            ("PUT", "http://x/connectors/a/config"),
        ):
            assert (await get(port, path, method=method)).status == 401
    async with worker(settings, internal=False) as (port, _):
        assert (await get(port, "/connectors/a/tasks", method="POST")).status == 401


async def test_the_body_of_a_request_that_is_not_admitted_is_not_waited_for(tmp_path: Path) -> None:
    async with worker({"rest.users.location": str(users_file(tmp_path, "alice"))}) as (port, _):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"PUT /connectors/a/config HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_a_damaged_file_admits_nobody_until_it_is_corrected(tmp_path: Path) -> None:
    path = tokens_file(tmp_path)
    async with worker({"rest.bearer.token.location": str(path)}) as (port, _):
        path.write_text("short\n")
        assert (await get(port, "/", headers=bearer())).status == 503
        path.write_text(f"{TOKEN}\n")
        assert (await get(port, "/", headers=bearer())).status == 200


async def test_plain_http_on_the_tls_port_gets_no_response(authority: Authority) -> None:
    async with worker(tls(authority)) as (port, _):
        with pytest.raises((http.client.HTTPException, OSError)):
            await get(port, "/")
        assert (await get(port, "/", authority.context())).status == 200


async def test_certificates_of_clients_are_demanded(authority: Authority) -> None:
    trust = {f"{HTTPS}client.auth": "required", f"{HTTPS}truststore.location": str(authority.trusted)}
    async with worker(tls(authority, **trust)) as (port, _):
        assert (await get(port, "/", authority.context(authority.certificate("alice")))).status == 200
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            await get(port, "/", authority.context())


async def test_replaced_certificates_are_used_and_damaged_ones_are_not(authority: Authority, tmp_path: Path) -> None:
    settings = tls(
        authority, **{f"{HTTPS}truststore.location": str(authority.trusted), f"{HTTPS}client.auth": "required"}
    )
    file = Path(settings[f"{HTTPS}keystore.location"])
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    first, second = (each.context(each.certificate("alice")) for each in (authority, other))
    async with worker(settings) as (port, context):
        assert context is not None
        before = context.server.current
        file.write_text("damaged")
        async with asyncio.timeout(60):
            while not context._files._unusable:
                await asyncio.sleep(0)
        assert context.server.current is before
        assert (await get(port, "/", first)).status == 200
        authority.trusted.write_bytes(other.trusted.read_bytes())
        other.certificate("worker", HOST).rename(file)
        async with asyncio.timeout(60):
            while context.server.current is before:
                await asyncio.sleep(0)
        assert (await get(port, "/", second)).status == 200
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            await get(port, "/", first)


@pytest.mark.parametrize("certificates", [False, True])
async def test_a_worker_forwards_over_tls_with_the_credentials_of_the_user(
    authority: Authority, tmp_path: Path, certificates: bool
) -> None:
    trust = {f"{HTTPS}truststore.location": str(authority.trusted)}
    if certificates:
        trust[f"{HTTPS}client.auth"] = "required"
    settings = {**tls(authority, **trust), "rest.users.location": str(users_file(tmp_path, "alice"))}
    context = authority.context(authority.certificate("alice") if certificates else None)
    async with (
        worker(settings) as (port, _),
        worker(settings, leader=f"https://{HOST}:{port}/") as (follower, _),
    ):
        forwarded = await get(follower, "/connectors/a/tasks", context, headers=basic("alice"))
        assert (forwarded.status, forwarded.body) == (200, '{"path":"/connectors/a/tasks","body":0}')
        assert (await get(follower, "/connectors/a/tasks", context, headers=basic("bob"))).status == 401


async def test_a_worker_does_not_forward_to_a_worker_whose_certificate_it_does_not_trust(
    authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    mine = tls(authority, **{f"{HTTPS}truststore.location": str(authority.trusted)})
    async with (
        worker(tls(other)) as (port, _),
        worker(mine, leader=f"https://{HOST}:{port}/") as (follower, _),
    ):
        failed = await get(follower, "/connectors/a/tasks", authority.context())
        assert failed.status == 500
        assert "CERTIFICATE_VERIFY_FAILED" in failed.body


# ---- settings


def test_credentials_of_a_group_need_signed_requests() -> None:
    users = {"rest.users.location": "users"}
    assert DistributedConfig({**CONVERTERS, **GROUP, **users}).rest.has_credentials
    with pytest.raises(ConfigValueError, match=r"connect\.protocol"):
        DistributedConfig({**CONVERTERS, **GROUP, **users, "connect.protocol": "compatible"})


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        ({"listeners": "http://:1"}, "127.0.0.1"),
        ({"listeners": ":1"}, "127.0.0.1"),
        ({"listeners": "http://0.0.0.0:1"}, "0.0.0.0"),
        ({"listeners": "http://:1", "rest.users.location": "x"}, ""),
        ({"listeners": "http://:1", "rest.bearer.token.location": "x"}, ""),
        ({"listeners": "https://:1", f"{HTTPS}keystore.location": "x"}, "127.0.0.1"),
        ({"listeners": "https://:1", **ALL}, ""),
        ({"listeners": "https://:1,http://:2", **ALL}, "127.0.0.1"),
    ],
)  # fmt: skip
def test_without_a_host_only_a_worker_that_authenticates_is_open_to_other_machines(
    settings: dict[str, str], host: str
) -> None:
    assert {address.host for address in config(settings).rest.main.addresses} == {host}


def test_the_settings_of_tls_are_those_with_the_prefix_or_all_without_it() -> None:
    both = {"listeners": "https://h:1", "ssl.keystore.location": "all", "ssl.keystore.type": "PKCS12"}
    assert config(both).rest.main.ssl is not None
    shared = config(both).rest.main.ssl or {}
    own = config({**both, f"{HTTPS}keystore.location": "own"}).rest.main.ssl or {}
    assert (shared["ssl.keystore.location"], shared["ssl.keystore.type"]) == ("all", "PKCS12")
    assert (own["ssl.keystore.location"], own["ssl.keystore.type"]) == ("own", "PEM")


def test_the_addresses_for_administrators_have_tls_of_their_own() -> None:
    own = {"admin.listeners.https.ssl.keystore.location": "admin", "listeners.https.ssl.keystore.location": "main"}
    made = config({"listeners": "https://:1", "admin.listeners": "https://:2", "ssl.keystore.location": "all", **own})
    assert (made.rest.main.ssl or {})["ssl.keystore.location"] == "main"
    assert (made.rest.admin.ssl or {})["ssl.keystore.location"] == "admin"
    assert [address.host for address in made.rest.admin.addresses] == ["127.0.0.1"]
    assert made.unknown == []
    assert "listeners" not in made.client("admin")


@pytest.mark.parametrize(
    ("listeners", "advertised", "url"),
    [
        ("https://a:1,http://b:2", None, ("http", "b")),
        ("https://a:1", None, ("https", "a")),
        ("http://b:2,https://a:1", "HTTPS", ("https", "a")),
    ],
)
def test_workers_advertise_the_listener_that_kafka_connect_would(
    listeners: str, advertised: str | None, url: tuple[str, str]
) -> None:
    chosen = {} if advertised is None else {"rest.advertised.listener": advertised}
    address = config({"listeners": listeners, f"{HTTPS}keystore.location": "x", **chosen}).rest.advertised
    assert (address.scheme, address.host) == url


@pytest.mark.parametrize("name", [BASIC_AUTH, "BasicAuthSecurityRestExtension"])
def test_kafka_connects_extension_is_accepted_with_a_file_of_users(name: str) -> None:
    accepted = config({"rest.extension.classes": name, "rest.users.location": "x"})
    assert accepted.rest.has_credentials
    with pytest.raises(ConfigValueError, match=r"rest\.users\.location"):
        config({"rest.extension.classes": name})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"listeners": "https://h:1"}, "ssl.keystore.location"),
        ({"listeners": "https://h:1", **KEY, f"{HTTPS}client.auth": "required"}, f"{HTTPS}truststore.location"),
        ({"listeners": "https://h:1", **KEY, f"{HTTPS}provider": "secret"}, f"{HTTPS}provider"),
        ({"listeners": "https://h:1", **KEY, f"{HTTPS}client.auth": "always"}, f"{HTTPS}client.auth"),
        ({"rest.extension.classes": "com.example.Mine", "rest.users.location": "x"}, "rest.extension.classes"),
        ({"listeners": "ftp://h:1"}, "listeners"),
        ({"listeners": ""}, "listeners"),
        ({"admin.listeners": "ftp://h:1"}, "admin.listeners"),
        ({"admin.listeners": "https://h:1"}, "ssl.keystore.location"),
        ({"admin.listeners": "http://h:1", "admin.listeners.https.ssl.client.auth": "required"}, ADMIN_AUTH),
        ({"listeners": "https://h:1", **KEY, "admin.listeners.https.ssl.client.auth": "required"}, ADMIN_AUTH),
    ],
)  # fmt: skip
def test_settings_that_protect_nothing_are_refused(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigValueError) as refused:
        config(settings)
    assert refused.value.name == named
    assert "secret" not in str(refused.value)


async def test_files_that_cannot_be_used_are_named_and_their_secrets_are_not(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_text("secret\n")
    for setting in ("rest.users.location", "rest.bearer.token.location"):
        for path in (damaged, tmp_path / "missing"):
            with pytest.raises(ConfigValueError, match=setting) as refused:
                RestAccess(config({setting: str(path)}), internal=False)
            assert "secret" not in str(refused.value)
    made = config(
        {"listeners": "https://h:1", f"{HTTPS}keystore.location": str(damaged), f"{HTTPS}key.password": "hush"}
    )
    with pytest.raises(ConfigValueError, match=f"{HTTPS}keystore.location") as refused:
        RestTls(made.rest.main)
    assert "secret" not in str(refused.value)
    assert "hush" not in str(refused.value) + repr(made.rest.main.ssl)
