"""Compare the throughput of TLS with that of Apache Kafka 4.1 (`python -m bench.tls`).

librdkafka writes and reads records of 1 KB over TLS and over plaintext. The brokers take turns in each round, and the
table has the medians of the rounds. The processor time of the broker depends less on other load of the machine than the
throughput does. oncelog runs with durability os, because Kafka does not sync either.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from oncelog.demo.processes import BrokerProcess
from support.apache_kafka import ApacheKafka, free_port
from support.tls import HOST, Authority

from .cases import consume, fresh_topic, produce
from .rounds import processor_s, show_ratios

SIZE = 1000
KAFKA = "Apache Kafka"
PROTOCOLS = ("TLS", "plaintext")


@dataclass(slots=True)
class Peer:
    """A running broker: the addresses of its listeners by protocol, and its process id."""

    addresses: dict[str, str]
    pid: int


@contextlib.contextmanager
def oncelog(directory: Path, key: Path) -> Iterator[Peer]:
    """Run an oncelog broker."""
    address = f"{HOST}:{free_port()}"
    settings = ("--durability", "os", "--listen", f"SSL://{address}", "--set", f"ssl.keystore.location={key}")
    with BrokerProcess(directory, *settings) as broker:
        yield Peer({"TLS": address, "plaintext": broker.address}, broker.pid)


@contextlib.contextmanager
def apache_kafka(directory: Path, key: Path) -> Iterator[Peer]:
    """Run an Apache Kafka broker."""
    kafka = ApacheKafka(directory)
    address = f"{HOST}:{free_port()}"
    everywhere = f"PLAINTEXT://{kafka.address},SSL://{address}"
    kafka.properties = {
        "listeners": f"{everywhere},CONTROLLER://127.0.0.1:{kafka.controller_port}",
        "advertised.listeners": everywhere,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
    }
    with kafka:
        yield Peer({"TLS": address, "plaintext": kafka.address}, kafka.pid)


def measure(peer: Peer, protocol: str, count: int, client: dict[str, str]) -> dict[str, float]:
    """Write and read `count` records; return the figures by name."""
    address = peer.addresses[protocol]
    topic = fresh_topic(address, 1, **client)
    megabytes = count * SIZE / 1e6
    figures = {}
    for action in ("produce", "consume"):
        used = processor_s(peer.pid)
        took = (
            produce(address, topic, SIZE, count, **client)
            if action == "produce"
            else consume(address, topic, count, **client)
        )
        figures[f"{action}, {protocol}, MB/s"] = megabytes / took
        figures[f"{action}, {protocol}, broker's ms per MB"] = 1000 * (processor_s(peer.pid) - used) / megabytes
    return figures


def main() -> None:
    """Run all rounds, and print the medians and the ratios."""
    options = argparse.ArgumentParser(prog="bench.tls", description=__doc__)
    options.add_argument("--rounds", type=int, default=5, help="number of runs on each broker (default 5)")
    options.add_argument("--records", type=int, default=100_000, help="records of 1 KB in each run (default 100,000)")
    chosen = options.parse_args()
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="oncelog-tls-") as directory, contextlib.ExitStack() as running:
        home = Path(directory)
        authority = Authority(home)
        key = authority.certificate("broker", HOST)
        secure = {"security.protocol": "SSL", "ssl.ca.location": str(authority.trusted)}
        peers = {
            "oncelog": running.enter_context(oncelog(home / "oncelog", key)),
            KAFKA: running.enter_context(apache_kafka(home / "kafka", key)),
        }
        for number in range(-1, chosen.rounds):  # the first round warms up
            for protocol in PROTOCOLS:
                # Each round begins with the other broker.
                for name, peer in sorted(peers.items(), reverse=number % 2 == 0):
                    figures = measure(peer, protocol, chosen.records, secure if protocol == "TLS" else {})
                    for figure, value in figures.items():
                        if number >= 0:
                            values[figure][name].append(value)
    title = f"records of 1 KB: medians of {chosen.rounds} alternating rounds, librdkafka client"
    show_ratios(title, ("oncelog", KAFKA), values, ratio="oncelog / Kafka")


if __name__ == "__main__":
    main()
