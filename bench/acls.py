"""Compare a broker that checks 1,000 access rules with one without access control (`python -m bench.acls`).

librdkafka writes and reads records of 1 KB, and writes single records, each of which is a request. The brokers take
turns in each round, and the table has the medians of the rounds. The processor time of the broker depends less on other
load of the machine than the throughput does. Both brokers run with durability os, so that no disk hides the difference.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from oncelog import Acl, Admin
from oncelog.demo.processes import BrokerProcess

from .cases import TIMEOUT_S, consume, fresh_topic, produce
from .rounds import processor_s, show_ratios

SIZE = 1000
OPEN, GUARDED = "without access control", "1,000 rules"
ANONYMOUS = "User:ANONYMOUS"
GUARD = ("--set", "authorizer.class.name=StandardAuthorizer", "--set", "allow.everyone.if.no.acl.found=true")


@dataclass(slots=True)
class Peer:
    """A running broker: its address, and its process id."""

    address: str
    pid: int


def rules() -> list[Acl]:
    """Return 1,000 rules: those that the client needs, and rules of all kinds for other users."""
    needed = [
        *(
            Acl("TOPIC", "bench-", ANONYMOUS, operation, pattern="PREFIXED")
            for operation in ("READ", "WRITE", "CREATE")
        ),
        Acl("GROUP", "*", ANONYMOUS, "READ"),
        Acl("CLUSTER", "kafka-cluster", ANONYMOUS, "ALL"),
    ]
    others = [Acl("TOPIC", f"team-{number}", f"User:writer-{number}", "WRITE") for number in range(400)]
    others += [Acl("TOPIC", f"team-{n}.", f"User:team-{n}", "ALL", pattern="PREFIXED") for n in range(300)]
    others += [Acl("GROUP", f"group-{number}", f"User:reader-{number}", "READ") for number in range(200)]
    others += [Acl("TOPIC", f"secret-{number}", "User:*", "ALL", permission="DENY") for number in range(95)]
    return [*others, *needed]  # once the last rule exists, only ANONYMOUS may change the cluster


async def guard(address: str) -> None:
    """Create the rules, 100 per request."""
    every = rules()
    assert len(every) == 1000
    async with Admin(bootstrap_servers=address) as admin:
        for start in range(0, len(every), 100):
            await admin.create_acls(every[start : start + 100])


def write_one_by_one(address: str, topic: str, count: int) -> float:
    """Write `count` records, each after the one before is acknowledged; return the seconds that this takes."""
    producer = Producer({"bootstrap.servers": address, "acks": "1", "linger.ms": 0})
    producer.produce(topic, b"x")
    producer.flush(TIMEOUT_S)
    begun = time.perf_counter()
    for _ in range(count):
        producer.produce(topic, b"x" * 100)
        if producer.flush(TIMEOUT_S):
            raise RuntimeError(f"a record was not acknowledged within {TIMEOUT_S:.0f} s")
    return time.perf_counter() - begun


@contextlib.contextmanager
def broker(directory: Path, *settings: str) -> Iterator[Peer]:
    """Run a broker."""
    with BrokerProcess(directory, "--durability", "os", *settings) as running:
        yield Peer(running.address, running.pid)


def measure(peer: Peer, records: int, requests: int) -> dict[str, float]:
    """Write and read `records` records of 1 KB, and write `requests` single records; return the figures by name."""
    topic = fresh_topic(peer.address)
    figures = {}
    for action in ("produce", "consume"):
        used = processor_s(peer.pid)
        write = action == "produce"
        took = produce(peer.address, topic, SIZE, records) if write else consume(peer.address, topic, records)
        figures[f"{action} 1 KB, MB/s"] = records * SIZE / 1e6 / took
        figures[f"{action} 1 KB, broker's ms per MB"] = 1000 * (processor_s(peer.pid) - used) / (records * SIZE / 1e6)
    used = processor_s(peer.pid)
    took = write_one_by_one(peer.address, topic, requests)
    figures["single records, per s"] = requests / took
    figures["single records, broker's µs each"] = 1e6 * (processor_s(peer.pid) - used) / requests
    return figures


def main() -> None:
    """Run all rounds, and print the medians and the ratios."""
    options = argparse.ArgumentParser(prog="bench.acls", description=__doc__)
    options.add_argument("--rounds", type=int, default=7, help="number of runs on each broker (default 7)")
    options.add_argument("--records", type=int, default=100_000, help="records of 1 KB in each run (default 100,000)")
    options.add_argument("--requests", type=int, default=5_000, help="single records in each run (default 5,000)")
    chosen = options.parse_args()
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="oncelog-acls-") as directory, contextlib.ExitStack() as running:
        peers = {
            OPEN: running.enter_context(broker(Path(directory, "open"))),
            GUARDED: running.enter_context(broker(Path(directory, "guarded"), *GUARD)),
        }
        asyncio.run(guard(peers[GUARDED].address))
        for number in range(-1, chosen.rounds):  # the first round warms up
            for name in (OPEN, GUARDED) if number % 2 else (GUARDED, OPEN):
                for figure, value in measure(peers[name], chosen.records, chosen.requests).items():
                    if number >= 0:
                        values[figure][name].append(value)
    title = f"medians of {chosen.rounds} alternating rounds, librdkafka client"
    show_ratios(title, (GUARDED, OPEN), values, ratio_digits=3)


if __name__ == "__main__":
    main()
