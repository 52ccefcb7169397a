"""`oncelog health`: what a container asks to know whether its broker serves."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from oncelog.broker.log.results import storage_error
from oncelog.broker.node import BrokerNode
from oncelog.broker.system.ports import RealFile
from support.access import limited_broker


async def health(address: str, *options: str) -> subprocess.CompletedProcess[str]:
    return await health_of("--bootstrap", address, *options)


async def health_of(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "oncelog.cli", "health", *options]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)


async def test_a_broker_that_serves_is_healthy(bootstrap: str) -> None:
    done = await health(bootstrap)
    assert (done.returncode, done.stderr) == (0, "")
    known = json.loads((await health(bootstrap, "--json")).stdout)
    assert known == {"broker": bootstrap, "healthy": True, "problem": None}


async def test_nobody_at_the_address_is_not_healthy() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        done = await health(f"127.0.0.1:{bound.getsockname()[1]}")
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr


async def test_the_first_of_several_addresses_is_asked_and_shown(bootstrap: str) -> None:
    known = json.loads((await health(f"{bootstrap}, 127.0.0.1:1", "--json")).stdout)
    assert known == {"broker": bootstrap, "healthy": True, "problem": None}


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1:74628", "the port must be from 1 to 65535, not 74628"),  # 9092 if its upper bits are lost
        ("127.0.0.1", "the port is missing: give 127.0.0.1:9092, for example"),
    ],
)
async def test_what_is_no_address_is_wrong_usage(address: str, told: str) -> None:
    done = await health(address)
    assert done.returncode == 2
    assert f"Invalid value for --bootstrap: '{address}' is not host:port: {told}" in done.stderr


async def test_a_broker_that_does_not_answer_is_not_healthy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = await health(f"127.0.0.1:{silent.getsockname()[1]}")
    assert done.returncode == 1
    assert "no answer" in done.stderr


@pytest.mark.oncelog_only(reason="breaks the data directory of a broker in this process")
async def test_a_broker_whose_data_directory_failed_is_not_healthy() -> None:
    async with BrokerNode(logging_level="error") as broker:
        broker.log_manager.failed = storage_error("the disk is gone")
        done = await health(broker.address)
        broker.log_manager.failed = None
    assert done.returncode == 1
    assert "KAFKA_STORAGE_ERROR" in done.stderr


@pytest.mark.oncelog_only(reason="hangs the disk of a broker in this process")
async def test_an_idle_broker_whose_disk_does_not_answer_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    fdatasync = RealFile.fdatasync
    async with BrokerNode(logging_level="error", health_probe_interval_ms=1) as broker:

        def hang(file: RealFile) -> None:
            answers.wait()
            fdatasync(file)

        monkeypatch.setattr(RealFile, "fdatasync", hang)
        try:
            done = await health(broker.address)
        finally:
            answers.set()
        assert done.returncode == 1
        assert "KAFKA_STORAGE_ERROR" in done.stderr
        assert broker.data_dir in done.stderr
        assert (await health(broker.address)).returncode == 0
        assert broker.failure is None


async def test_a_client_without_the_right_is_told_so() -> None:
    async with limited_broker() as world:
        assert (await health(world.broker.address)).returncode == 0
        await world.only()
        done = await health(world.broker.address)
        assert done.returncode == 1
        assert "CLUSTER_AUTHORIZATION_FAILED. The command needs Describe on the cluster" in done.stderr


async def test_the_address_of_a_file_is_shown(bootstrap: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={bootstrap}\n")
    known = json.loads((await health_of("--client-config", str(file), "--json")).stdout)
    assert known == {"broker": bootstrap, "healthy": True, "problem": None}
