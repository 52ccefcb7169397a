"""Start the brokers that are compared: oncelog with both durabilities, and Apache Kafka 4.1 with its defaults."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from oncelog.demo.processes import BrokerProcess
from support.apache_kafka import ApacheKafka


@dataclass(slots=True)
class Peer:
    """A running broker. `name` is the heading of its column. `start_s` is the time from start to ready, in seconds."""

    name: str
    address: str
    pid: int
    start_s: float

    def idle_memory_mb(self) -> float:
        """Return the broker's resident memory in MB. Call this before the broker gets any load."""
        return float(psutil.Process(self.pid).memory_info().rss) / 1e6


@contextlib.contextmanager
def oncelog(directory: Path, durability: str) -> Iterator[Peer]:
    """Run an oncelog broker with this durability."""
    begun = time.monotonic()
    with BrokerProcess(directory, "--durability", durability) as broker:
        yield Peer(f"oncelog {durability}", broker.address, broker.pid, time.monotonic() - begun)


@contextlib.contextmanager
def apache_kafka(directory: Path) -> Iterator[Peer]:
    """Run an Apache Kafka broker."""
    kafka = ApacheKafka(directory)
    try:
        start_s = kafka.start()
        yield Peer("Apache Kafka", kafka.address, kafka.pid, start_s)
    finally:
        kafka.stop()
