"""examples/web_service.py under uvicorn: requests of many threads, a broker that does not answer, and SIGTERM."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.broker import BrokerProcess
from support.example_programs import EXAMPLES, WAIT_S, Program
from support.reading import await_decided, make_topic, read_topic

pytest.importorskip("starlette", reason="starlette and uvicorn are not installed: make setup")

POOL_SIZE = 10


class Service:
    """The service and its address."""

    def __init__(self, program: Program) -> None:
        self.program = program
        while not (ready := re.search(r"running on (http://\S+)", program.line())):
            pass
        self.url = ready[1]

    def post(self, body: object) -> int:
        """Post to /orders; return the status."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/orders", data, timeout=WAIT_S) as response:
                return int(response.status)
        except urllib.error.HTTPError as refusal:
            refusal.close()
            return refusal.code

    def order(self, number: int) -> int:
        return self.post({"id": f"o-{number}", "customer": "alice", "cents": number})

    def health(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.url}/health", timeout=WAIT_S) as response:
            return dict(json.load(response))


@pytest.fixture
def service(broker: BrokerProcess, tmp_path: Path) -> Iterator[Service]:
    for topic in ("orders", "invoices"):
        make_topic(broker.address, topic, partitions=3)
    serve = ("-m", "uvicorn", "--app-dir", str(EXAMPLES), "--port", "0", "web_service:app")
    with Program(broker.address, tmp_path, *serve) as program:
        yield Service(program)


def keys(broker: BrokerProcess, topic: str, *, committed: bool = True) -> list[str]:
    partitions = read_topic(broker.address, topic, committed).values()
    return sorted((message.key() or b"").decode() for messages in partitions for message in messages)


def test_every_order_is_written_once_with_its_invoice(service: Service, broker: BrokerProcess) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(service.order, range(60))) == [201] * 60
    for wrong in (b"{", b'"an order"', {"id": "o-60"}, {"id": "o-60", "customer": "alice", "cents": "many"}):
        assert service.post(wrong) == 400
    assert service.health()["in_use"] == 0
    service.program.terminate()
    assert "Finished server process" in "\n".join(service.program.output)
    await_decided(broker.address, "orders")  # no transaction stays open
    await_decided(broker.address, "invoices")
    expected = sorted(f"o-{number}" for number in range(60))
    assert keys(broker, "orders") == keys(broker, "invoices") == expected


def test_what_finds_no_free_producer_is_refused_and_not_written(service: Service, broker: BrokerProcess) -> None:
    assert service.order(0) == 201
    os.kill(broker.pid, signal.SIGSTOP)  # transactions begin, and do not end
    try:
        with ThreadPoolExecutor(POOL_SIZE + 2) as threads:
            requests = [threads.submit(service.order, number) for number in range(1, POOL_SIZE + 3)]
            while sum(request.done() for request in requests) < 2:
                assert service.health()["waiting"] <= 2
            os.kill(broker.pid, signal.SIGCONT)
            statuses = [request.result(WAIT_S) for request in requests]
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert sorted(statuses) == [201] * POOL_SIZE + [503] * 2
    await_decided(broker.address, "orders")
    written = sorted(f"o-{number}" for number, status in enumerate([201, *statuses]) if status == 201)
    assert keys(broker, "orders") == keys(broker, "invoices") == keys(broker, "orders", committed=False) == written
