"""The broker's numbers: one table, counted cheaply, read as Prometheus reads them."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading

import pytest
from oncelog.broker.log.results import storage_error
from oncelog.broker.network.metrics_listener import MAX_CONNECTIONS
from oncelog.broker.node import BrokerNode, BrokerStartError
from oncelog.broker.observability.metrics import (
    ENDED,
    FENCES,
    KNOWN_IDS,
    METRICS,
    OLDEST_FLUSH,
    PARKED,
    WAITS,
    Kind,
    Metrics,
)
from oncelog.broker.system.ports import RealFile
from prometheus_client.parser import text_string_to_metric_families
from support.raw_connection import RawConnection, batch


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = metrics.exposition().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_table_follows_prometheus_naming() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("oncelog_")
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert metric.name.endswith("_seconds") or metric.kind is not Kind.HISTOGRAM, metric.name
        assert metric.help.endswith("."), metric.name


def test_counters_are_kept_per_labels() -> None:
    metrics = Metrics()
    metrics.count(ENDED, "commit", "EndTxn")
    metrics.count(ENDED, "commit", "EndTxn", amount=2)
    metrics.count(ENDED, "abort", "transaction timeout")
    assert metrics.value(ENDED, "commit", "EndTxn") == 3
    seen = samples(metrics)
    assert seen[ENDED, (("reason", "EndTxn"), ("result", "commit"))] == 3
    assert seen[ENDED, (("reason", "transaction timeout"), ("result", "abort"))] == 1


def test_histograms_are_cumulative() -> None:
    metrics = Metrics()
    for seconds in (0.0005, 0.001, 0.3, 99):
        metrics.observe(WAITS, seconds, "EndTxn", "done")
    seen = samples(metrics)
    labels = (("outcome", "done"), ("request", "EndTxn"))

    def bucket(bound: str) -> float:
        return seen[f"{WAITS}_bucket", tuple(sorted((*labels, ("le", bound))))]

    assert [bucket(bound) for bound in ("0.001", "0.25", "0.5", "5.0", "+Inf")] == [2, 2, 3, 3, 4]
    assert seen[f"{WAITS}_count", labels] == 4
    assert seen[f"{WAITS}_sum", labels] == pytest.approx(99.3015)


def test_gauges_are_read_when_somebody_looks() -> None:
    metrics = Metrics()
    parked = 3
    metrics.watch(PARKED, lambda: parked)
    assert samples(metrics)[PARKED, ()] == 3
    parked = 5
    assert samples(metrics)[PARKED, ()] == 5
    assert samples(metrics)[KNOWN_IDS, ()] == 0, "nobody watches it"


def test_two_brokers_in_one_process_do_not_mix() -> None:
    one, other = Metrics(), Metrics()
    one.count(FENCES, "InitProducerId")
    assert (FENCES, (("reason", "InitProducerId"),)) in samples(one)
    assert (FENCES, (("reason", "InitProducerId"),)) not in samples(other)


def test_prometheus_client_is_loaded_only_when_somebody_looks() -> None:
    code = (
        "import sys, oncelog.broker.node, oncelog.broker.coordinator.transaction.coordinator as c;"
        "from oncelog.broker.observability.metrics import Metrics; m = Metrics(); m.count('x');"
        "assert 'prometheus_client' not in sys.modules; m.exposition(); assert 'prometheus_client' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_the_listener_serves_the_broker_s_metrics_and_nothing_else() -> None:
    async with BrokerNode(metrics_listener="127.0.0.1:0", logging_level="error") as broker:
        assert broker.metrics_listener is not None
        port = broker.metrics_listener.port
        await broker.transaction_coordinator.init_producer_id("id", 60_000)
        head, _, body = (await ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"oncelog_transactional_ids 1.0\n" in body
        assert b'oncelog_producer_initialisations_total{kind="new"} 1.0\n' in body
        assert (await ask(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")).endswith(b"Connection: close\r\n\r\n")
        assert (await ask(port, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
        assert (await ask(port, b"POST /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
        assert (await ask(port, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
        assert await ask(port, b"x" * 20_000) == b"", "closed, and the broker goes on"
        assert (await ask(port, b"GET /metrics?name=x HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    with pytest.raises(ConnectionRefusedError):
        await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")


async def test_without_the_setting_nothing_listens() -> None:
    async with BrokerNode(logging_level="error") as broker:
        assert broker.metrics_listener is None


async def test_an_address_that_is_taken_is_said_with_the_remedy() -> None:
    async with BrokerNode(metrics_listener="127.0.0.1:0", logging_level="error") as broker:
        assert broker.metrics_listener is not None
        taken = f"127.0.0.1:{broker.metrics_listener.port}"
        with pytest.raises(BrokerStartError, match=r"metrics\.listener"):
            async with BrokerNode(metrics_listener=taken, logging_level="error"):
                pass


async def test_health_is_what_the_data_directory_is() -> None:
    async with BrokerNode(metrics_listener="127.0.0.1:0", logging_level="error") as broker:
        assert broker.metrics_listener is not None
        port = broker.metrics_listener.port
        assert (await ask(port, b"GET /health HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        broker.log_manager.failed = storage_error("the disk is gone")
        answer = await ask(port, b"GET /health HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"the disk is gone" in answer


async def test_health_tells_of_a_disk_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    answers.set()
    fdatasync = RealFile.fdatasync

    def slow(file: RealFile) -> None:
        answers.wait()
        fdatasync(file)

    monkeypatch.setattr(RealFile, "fdatasync", slow)
    settings = {"metrics_listener": "127.0.0.1:0", "health_flush_max_ms": 1, "logging_level": "error"}
    async with BrokerNode(config=settings) as broker, RawConnection(broker.address) as wire:
        assert broker.metrics_listener is not None
        port = broker.metrics_listener.port

        async def until(status: bytes) -> bytes:
            async with asyncio.timeout(60):
                while True:
                    answer = await ask(port, b"GET /health HTTP/1.1\r\n\r\n")
                    if answer.startswith(b"HTTP/1.1 " + status):
                        return answer

        await wire.create_topic("t")
        await until(b"200")
        answers.clear()
        try:
            producing = asyncio.ensure_future(wire.produce("t", batch(b"a")))
            assert b"health.flush.max.ms = 1" in await until(b"503")
            assert broker.metrics.value(OLDEST_FLUSH) > 0
            assert not producing.done()
        finally:
            answers.set()
        assert (await producing).error_code == 0
        await until(b"200")


async def test_health_tells_of_a_disk_that_does_not_answer_although_nobody_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()
    answers.set()
    fdatasync = RealFile.fdatasync

    def slow(file: RealFile) -> None:
        answers.wait()
        fdatasync(file)

    monkeypatch.setattr(RealFile, "fdatasync", slow)
    settings = {
        "metrics_listener": "127.0.0.1:0",
        "health_probe_interval_ms": 1,
        "health_probe_timeout_ms": 50,
        "logging_level": "error",
    }
    async with BrokerNode(config=settings) as broker:
        assert broker.metrics_listener is not None
        port = broker.metrics_listener.port
        assert (await ask(port, b"GET /health HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        answers.clear()
        try:
            async with asyncio.timeout(60):
                while not (answer := await ask(port, b"GET /health HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 503 "):
                    pass
            assert broker.data_dir.encode() in answer
            assert b"health.probe.timeout.ms = 50" in answer
            assert (await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert broker.failure is None
        finally:
            answers.set()
        async with asyncio.timeout(60):
            while not (await ask(port, b"GET /health HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 "):
                pass
        async with RawConnection(broker.address) as wire:
            await wire.create_topic("t")
            assert (await wire.produce("t", batch(b"a"))).error_code == 0


async def test_peers_that_ask_nothing_do_not_keep_others_from_the_metrics() -> None:
    async with BrokerNode(metrics_listener="127.0.0.1:0", logging_level="error") as broker:
        assert broker.metrics_listener is not None
        port = broker.metrics_listener.port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * MAX_CONNECTIONS)]
        assert (await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert len(broker.metrics_listener._serving) <= MAX_CONNECTIONS
        for _, writer in silent:
            writer.close()


async def test_connections_that_come_together_make_room_for_one_another() -> None:
    async with BrokerNode(durability="os", logging_level="error", metrics_listener="127.0.0.1:0") as broker:
        assert broker.metrics_listener is not None
        port = broker.metrics_listener.port
        # None of them is accepted before the loop runs again.
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * MAX_CONNECTIONS)]
        assert (await ask(port, b"GET /health HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert len(broker.metrics_listener._serving) <= MAX_CONNECTIONS
        for sock in silent:
            sock.close()
