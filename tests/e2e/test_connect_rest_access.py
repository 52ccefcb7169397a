"""Two workers whose REST interfaces demand TLS, certificates and passwords, and the commands that use them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

aiohttp = pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.broker.node import BrokerNode  # noqa: E402
from oncelog.connect.process import StandaloneWorker  # noqa: E402
from oncelog.demo.processes import free_port  # noqa: E402
from support.connect_workers import Rest, assert_exactly_once, beats, committed, each_has, group, owners, states  # noqa: E402
from support.https import PASSWORD, TOKEN, basic, bearer, get, tokens_file, users_file  # noqa: E402
from support.tls import HOST, Authority  # noqa: E402

Names = Callable[[str], str]
HTTPS = "listeners.https.ssl."


async def oncelog(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-P", "-m", "oncelog.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


async def test_workers_forward_and_sign_requests_over_tls_and_commands_reach_them(
    bootstrap: str, fresh_name: Names, tmp_path: Path, authority: Authority
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    settings = {
        "listeners": f"https://{HOST}:0",
        f"{HTTPS}keystore.location": str(authority.certificate("worker", HOST)),
        f"{HTTPS}truststore.location": str(authority.trusted),
        f"{HTTPS}client.auth": "required",
        "rest.users.location": str(users_file(tmp_path, "alice")),
    }
    client = authority.certificate("alice")
    context = authority.context(client)
    async with (
        group(bootstrap, name, tmp_path, settings) as workers,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), headers=basic("alice")) as session,
    ):
        leader, follower = await workers.add(), await workers.add()
        assert follower.url.startswith(f"https://{HOST}:")
        rest = Rest(session, follower.url, workers._changed)
        status, _ = await rest.settled("POST", "/connectors", {"name": "beats", "config": beats(topic)})
        assert status == 201
        known = await rest.until("/connectors/beats/status", states("RUNNING", "RUNNING", "RUNNING"))
        assert set(owners(known).values()) == {leader.worker_id, follower.worker_id}
        # Before they start, the follower's tasks have asked the leader to fence their predecessors.
        assert_exactly_once(await committed(bootstrap, topic, each_has(20, 2)))

        for worker in (leader, follower):
            port = int(worker.url.rpartition(":")[2])
            assert (await get(port, "/connectors", context)).status == 401
            assert (await get(port, "/connectors", context, headers=basic("bob"))).status == 401
            assert (await get(port, "/connectors/beats/fence", context, method="PUT")).status == 400
            assert (await get(port, "/health", context)).status == 200

        user = tmp_path / "user"
        user.write_text(f"alice:{PASSWORD}\n")
        files = "--ca-file", str(authority.trusted), "--cert-file", str(client)
        listed = await oncelog("connect", "list", "--url", follower.url, *files, "--user-file", str(user))
        assert (listed.returncode, "beats" in listed.stdout) == (0, True)
        by_environment = {
            "ONCELOG_CONNECT_URL": follower.url,
            "ONCELOG_HTTP_CA_FILE": str(authority.trusted),
            "ONCELOG_HTTP_CERT_FILE": str(client),
            "ONCELOG_HTTP_USER": f"alice:{PASSWORD}",
        }
        assert (await oncelog("connect", "status", "beats", **by_environment)).returncode == 0
        refused = await oncelog("connect", "list", **{**by_environment, "ONCELOG_HTTP_USER": "alice:hush"})
        assert refused.returncode == 1
        assert "--user-file" in refused.stderr
        assert "hush" not in refused.stdout + refused.stderr
        assert "certificate" in (await oncelog("connect", "list", "--url", follower.url)).stderr


@pytest.mark.parametrize("admin", ["default", "closed", "own"])
async def test_the_endpoints_for_administrators_are_where_the_setting_says(
    bootstrap: str, tmp_path: Path, authority: Authority, admin: str
) -> None:
    port = free_port()
    settings = {"closed": {"admin.listeners": ""}, "own": {"admin.listeners": f"https://{HOST}:{port}"}}.get(admin, {})
    worker = StandaloneWorker(
        {
            "bootstrap.servers": bootstrap,
            "listeners": f"http://{HOST}:0",
            "admin.listeners.https.ssl.keystore.location": str(authority.certificate("worker", HOST))
            if admin == "own"
            else "",
            "rest.bearer.token.location": str(tokens_file(tmp_path)),
            "key.converter": "JsonConverter",
            "value.converter": "JsonConverter",
            "offset.storage.file.filename": str(tmp_path / "offsets"),
            **settings,
        }
    )
    await worker.start()
    try:
        main, context = int(worker.url.rpartition(":")[2]), authority.context()
        at_main = await get(main, "/admin/loggers", headers=bearer())
        assert at_main.status == (200 if admin == "default" else 404)
        assert (await get(main, "/connectors", headers=bearer())).status == 200
        if admin == "own":
            assert (await get(port, "/admin/loggers", context, headers=bearer())).status == 200
            assert (await get(port, "/admin/loggers", context)).status == 401
            assert (await get(port, "/connectors", context, headers=bearer())).status == 404
    finally:
        await worker.stop()
    with pytest.raises(ConnectionRefusedError):
        await get(port, "/admin/loggers", context)


@pytest.mark.oncelog_only(reason="asks the broker's own listener")
async def test_the_health_command_asks_a_protected_listener(tmp_path: Path, authority: Authority) -> None:
    tokens = tokens_file(tmp_path)
    settings = {
        "metrics.listener": f"https://{HOST}:0",
        "listener.name.metrics.ssl.keystore.location": str(authority.certificate("broker", HOST)),
        "metrics.bearer.token.location": str(tokens),
        "metrics.health.public": False,
        "logging.level": "error",
    }
    async with BrokerNode(config=settings) as broker:
        assert broker.metrics_listener is not None
        url = f"https://{HOST}:{broker.metrics_listener.port}"
        health = "health", "--url", url, "--ca-file", str(authority.trusted)
        for done in (
            await oncelog(*health, "--token-file", str(tokens), "--json"),
            await oncelog(*health, "--json", ONCELOG_HTTP_TOKEN=TOKEN),
        ):
            assert json.loads(done.stdout) == {"broker": url, "healthy": True, "problem": None}
        refused = await oncelog(*health, ONCELOG_HTTP_TOKEN="0" * 32)
        assert (refused.returncode, "answers 401" in refused.stderr) == (1, True)
        assert "certificate" in (await oncelog("health", "--url", url)).stderr
    assert (await oncelog(*health)).returncode == 1
