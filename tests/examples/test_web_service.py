"""examples/web_service.py under uvicorn: requests of many threads, a broker that does not answer, and SIGTERM."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
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


@contextlib.contextmanager
def serve(broker: BrokerProcess, directory: Path, max_wait_s: int) -> Iterator[Service]:
    """Run the service with another wait for producers: on a busy machine the first of them takes a while."""
    for topic in ("orders", "invoices"):
        make_topic(broker.address, topic, partitions=3)
    text = (EXAMPLES / "web_service.py").read_text(encoding="utf-8")
    assert "max_wait_s=2.0" in text
    (directory / "web_service.py").write_text(text.replace("max_wait_s=2.0", f"max_wait_s={max_wait_s}"))
    command = ("-m", "uvicorn", "--port", "0", "--no-access-log", "web_service:app")
    with Program(broker.address, directory, *command) as program:
        yield Service(program)


def keys(broker: BrokerProcess, topic: str, *, committed: bool = True) -> list[str]:
    partitions = read_topic(broker.address, topic, committed).values()
    return sorted((message.key() or b"").decode() for messages in partitions for message in messages)


def test_every_order_is_written_once_with_its_invoice(broker: BrokerProcess, tmp_path: Path) -> None:
    with serve(broker, tmp_path, max_wait_s=60) as service:
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


def test_what_finds_no_free_producer_is_refused_and_not_written(broker: BrokerProcess, tmp_path: Path) -> None:
    with serve(broker, tmp_path, max_wait_s=1) as service:
        while service.health()["held"] < POOL_SIZE:
            pass
        os.kill(broker.pid, signal.SIGSTOP)  # transactions begin, and do not end
        try:
            with ThreadPoolExecutor(POOL_SIZE + 2) as threads:
                requests = [threads.submit(service.order, number) for number in range(POOL_SIZE + 2)]
                ended = as_completed(requests, WAIT_S)
                assert [next(ended).result() for _ in range(2)] == [503, 503]
                os.kill(broker.pid, signal.SIGCONT)
                statuses = [request.result(WAIT_S) for request in requests]
        finally:
            os.kill(broker.pid, signal.SIGCONT)
    assert sorted(statuses) == [201] * POOL_SIZE + [503] * 2
    await_decided(broker.address, "orders")
    written = sorted(f"o-{number}" for number, status in enumerate(statuses) if status == 201)
    assert keys(broker, "orders") == keys(broker, "invoices") == keys(broker, "orders", committed=False) == written
