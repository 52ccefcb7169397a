"""A broker or a worker whose log goes nowhere: stderr closed, its reader gone or asleep. It works as ever."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from oncelog.demo.processes import free_port
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from support.broker import BrokerProcess
from support.hostile.groups import join
from support.raw_connection import RawConnection

MALFORMED = b"\0\0\0\x50\x7f\x7f" + bytes(0x4E)
"""A frame of an API that does not exist."""

PIPE = 4096
"""The least size of a pipe in bytes."""

START_S = 30


@contextlib.contextmanager
def broker(directory: Path, sink: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A broker process with its stderr as `sink` says, and its address."""
    address = f"127.0.0.1:{free_port()}"
    serve = [sys.executable, "-P", "-m", "oncelog.cli", "serve", "--data-dir", str(directory), "--listen", address]
    closed = {"closed": 'exec "$@" 2>&-', "all closed": 'exec "$@" <&- >&- 2>&-'}.get(sink, 'exec "$@"')
    reader, writer = os.pipe()
    if sink == "reader asleep":
        fill(writer)
    process = subprocess.Popen(
        ["sh", "-c", closed, "sh", *serve], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=writer
    )
    os.close(writer)
    if sink == "reader gone":
        os.close(reader)
    try:
        assert process.stdout is not None
        if sink == "all closed":
            while process.poll() is None:
                with contextlib.suppress(OSError):
                    socket_to(address)
                    break
        else:
            assert select.select([process.stdout], [], [], START_S)[0], "the broker waits for the reader of its log"
            assert process.stdout.readline() == f"ready {address}\n".encode()
        yield process, address
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        if sink != "reader gone":
            os.close(reader)


def fill(writer: int) -> None:
    """Make the pipe small and full, so that the next byte waits for a reader."""
    os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE)))


@contextlib.contextmanager
def unread(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """An `oncelog` process whose stderr is a full pipe that nobody reads."""
    reader, writer = os.pipe()
    fill(writer)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "oncelog.cli", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=writer,
    )
    os.close(writer)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        os.close(reader)


def socket_to(address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), 5).close()


async def send_malformed(address: str, count: int) -> None:
    """Each on a connection of its own, which the broker closes."""

    async def send() -> None:
        async with RawConnection(address) as wire:
            wire.send_bytes(MALFORMED)
            assert await wire.closed()

    for _ in range(count // 50):
        await asyncio.gather(*(send() for _ in range(50)))


@pytest.mark.oncelog_only(reason="starts a broker of its own")
@pytest.mark.parametrize("sink", ["closed", "all closed", "reader gone", "reader asleep"])
async def test_a_broker_without_a_log_serves_and_stops(tmp_path: Path, sink: str) -> None:
    with broker(tmp_path, sink) as (process, address):
        async with RawConnection(address) as wire:
            assert (await wire.call(InitProducerIdRequest("id", 60_000), 4)).error_code == 0
            assert (await wire.call(join("group"), 3)).error_code == 0
        await send_malformed(address, 1000)
        async with RawConnection(address) as wire:
            assert (await wire.call(MetadataRequest([]), 12)).brokers
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 15) == 0


@pytest.mark.oncelog_only(reason="starts a broker of its own")
async def test_malformed_frames_cost_one_line_each_and_few_in_all(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as process:
        await send_malformed(process.address, 1000)
        process.terminate()
        lines = process.log.read_text().splitlines()
    refused = [line for line in lines if '"request_refused"' in line]
    assert refused
    assert len(lines) < 500, "a thousand malformed frames are one event that repeats"
    assert any("suppressed" in line for line in lines), "what was not written is counted"
    assert "connection_closed" not in "".join(lines), "one line for each malformed frame"


@pytest.mark.oncelog_only(reason="starts a broker of its own")
@pytest.mark.parametrize(("setting", "code"), [("num.partitions=1", 1), ("num.partitions=x", 2)])
async def test_a_start_that_fails_ends_although_nobody_reads_the_reason(
    tmp_path: Path, setting: str, code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"  # in use
        with unread("serve", "--data-dir", str(tmp_path), "--listen", address, "--set", setting) as process:
            assert await asyncio.to_thread(process.wait, START_S) == code


def worker_settings(directory: Path, bootstrap: str, **settings: str) -> str:
    """The path of a file with the settings of a distributed worker."""
    converter = "org.apache.kafka.connect.json.JsonConverter"
    given = {
        "bootstrap.servers": bootstrap,
        "group.id": "workers",
        "listeners": f"http://127.0.0.1:{free_port()}",
        "key.converter": converter,
        "value.converter": converter,
        **{f"{kind}.storage.topic": kind for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
        **settings,
    }
    file = directory / "worker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return str(file)


@pytest.mark.oncelog_only(reason="starts a broker of its own")
async def test_a_worker_whose_log_nobody_reads_starts_and_stops(tmp_path: Path) -> None:
    pytest.importorskip("h11")
    with BrokerProcess(tmp_path) as broker_process:
        file = worker_settings(tmp_path, broker_process.address)
        with unread("connect", "distributed", file) as process:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], START_S)[0], "the worker waits for the reader of its log"
            assert process.stdout.readline().startswith(b"ready http://")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, START_S) == 0


async def test_a_worker_that_cannot_start_ends_although_nobody_reads_the_reason(tmp_path: Path) -> None:
    pytest.importorskip("h11")
    file = worker_settings(tmp_path, "127.0.0.1:1", **{"rest.extension.classes": "Secure"})
    with unread("connect", "distributed", file) as process:
        assert await asyncio.to_thread(process.wait, START_S) == 2
