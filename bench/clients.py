"""Compare oncelog's client with aiokafka and confluent-kafka on an oncelog broker (`python -m oncelog.bench.clients`).

Every measurement runs in a separate process, and the broker in another. The clients take turns, so that a slower
phase of the machine affects all clients. A ratio compares two runs of the same round; the table shows the median over
the rounds. The clients use their default settings, except for acks=all. Both asyncio clients run on uvloop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiokafka
import confluent_kafka
import oncelog
import uvloop
from confluent_kafka.admin import AdminClient, NewTopic
from oncelog.demo.processes import BrokerProcess
from rich.console import Console
from rich.table import Table

TIMEOUT_S: Final = 120.0
OURS: Final = "oncelog"
CLIENTS: Final = (OURS, "aiokafka", "confluent")


class Load(NamedTuple):
    """The work of one run: `count` records of `size` bytes, or `count` transactions of `records` such records."""

    kind: str
    count: int  # type: ignore[assignment]
    size: int
    records: int = 0

    @property
    def value(self) -> bytes:
        """A record value of `size` bytes."""
        return bytes(i * 31 % 251 for i in range(self.size))


CASES: Final = {
    "produce 1 KB": Load("produce", 60_000, 1000),
    "produce 100 B": Load("produce", 200_000, 100),
    "produce 100 B, keys": Load("produce_keys", 200_000, 100),
    "consume 1 KB": Load("consume", 200_000, 1000),
    "consume 100 B": Load("consume", 600_000, 100),
    "consume 100 B, one by one": Load("iterate", 300_000, 100),
    "transactions of 1": Load("transactions", 800, 100, 1),
    "transactions of 30": Load("transactions", 600, 100, 30),
}
READING: Final = ("consume", "iterate")


class Took(NamedTuple):
    """Wall-clock time and processor time of one run in the client's process, in seconds."""

    wall_s: float
    cpu_s: float


class Watch:
    """A context manager that measures the time of its block; `took` has the result."""

    def __enter__(self) -> Watch:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *exc: object) -> None:
        self.took = Took(time.perf_counter() - self._wall, time.process_time() - self._cpu)


async def _send_all(send: Callable[..., Awaitable[object]], topic: str, load: Load, names: list[bytes]) -> None:
    """Pass the records of a load to an asyncio client's `send`, with the keys `names` in turn."""
    value = load.value
    if names:
        keys = len(names)
        for number in range(load.count):
            await send(topic, value, key=names[number % keys])
    else:
        for _ in range(load.count):
            await send(topic, value)


# -- oncelog


async def oncelog_produce(address: str, topic: str, load: Load, keys: int = 0) -> Took:
    async with oncelog.Producer(bootstrap_servers=address, acks="all") as producer:
        await producer.partitions_for(topic)
        names = _names(keys)
        with Watch() as watch:
            await _send_all(producer.enqueue, topic, load, names)
            await producer.flush()
        return watch.took


async def oncelog_consume(address: str, topic: str, load: Load) -> Took:
    async with oncelog.Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        seen = len(await consumer.poll(10_000))
        with Watch() as watch:
            while seen < load.count:
                for records in (await consumer.getmany(1000)).values():
                    for record in records:
                        seen += record.value is not None
        return watch.took


async def oncelog_iterate(address: str, topic: str, load: Load) -> Took:
    async with oncelog.Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        seen = len(await consumer.poll(10_000))
        with Watch() as watch:
            async for record in consumer:
                seen += record.value is not None
                if seen >= load.count:
                    break
        return watch.took


async def oncelog_transactions(address: str, topic: str, load: Load) -> Took:
    async with oncelog.Producer(bootstrap_servers=address, transactional_id=uuid.uuid4().hex) as producer:
        await producer.init_transactions()
        value = load.value

        async def run(count: int) -> None:
            for _ in range(count):
                async with producer.transaction() as transaction:
                    for _ in range(load.records):
                        transaction.send(topic, value)

        await run(20)
        with Watch() as watch:
            await run(load.count)
        return watch.took


# -- aiokafka


@asynccontextmanager
async def _open(client: Any) -> AsyncIterator[Any]:
    """Start an aiokafka client, and stop it at the end of the block."""
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def aiokafka_produce(address: str, topic: str, load: Load, keys: int = 0) -> Took:
    async with _open(aiokafka.AIOKafkaProducer(bootstrap_servers=address, acks="all")) as producer:
        await producer.partitions_for(topic)
        names = _names(keys)
        with Watch() as watch:
            await _send_all(producer.send, topic, load, names)
            await producer.flush()
        return watch.took


def _aiokafka_consumer(address: str) -> Any:
    """Return an aiokafka consumer without a group."""
    return aiokafka.AIOKafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False, group_id=None
    )


async def aiokafka_consume(address: str, topic: str, load: Load) -> Took:
    async with _open(_aiokafka_consumer(address)) as consumer:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        seen = sum(map(len, (await consumer.getmany(timeout_ms=10_000, max_records=500)).values()))
        with Watch() as watch:
            while seen < load.count:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    for record in records:
                        seen += record.value is not None
        return watch.took


async def aiokafka_iterate(address: str, topic: str, load: Load) -> Took:
    async with _open(_aiokafka_consumer(address)) as consumer:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        seen = len(await consumer.getmany(timeout_ms=10_000, max_records=1))
        with Watch() as watch:
            async for record in consumer:
                seen += record.value is not None
                if seen >= load.count:
                    break
        return watch.took


async def aiokafka_transactions(address: str, topic: str, load: Load) -> Took:
    client = aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id=uuid.uuid4().hex)
    async with _open(client) as producer:
        value = load.value

        async def run(count: int) -> None:
            for _ in range(count):
                async with producer.transaction():
                    for _ in range(load.records):
                        await producer.send(topic, value)

        await run(20)
        with Watch() as watch:
            await run(load.count)
        return watch.took


# -- confluent-kafka


def confluent_produce(address: str, topic: str, load: Load, keys: int = 0) -> Took:
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = confluent_kafka.Producer({"bootstrap.servers": address, "acks": "all"})
    producer.list_topics(topic, timeout=TIMEOUT_S)
    value = load.value
    names = _names(keys)
    with Watch() as watch:
        for number in range(load.count):
            while True:
                try:
                    producer.produce(topic, value, names[number % keys] if keys else None, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1000 == 0:
                producer.poll(0)
        left = producer.flush(TIMEOUT_S)
    if left or failed:
        raise RuntimeError(f"{left} records were not acknowledged, {len(failed)} failed: {failed[:1]}")
    return watch.took


def confluent_consume(address: str, topic: str, load: Load, most: int = 500) -> Took:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    seen = len(consumer.consume(1, 10.0))
    with Watch() as watch:
        while seen < load.count:
            for message in consumer.consume(most, 1.0):
                if message.error():
                    raise RuntimeError(str(message.error()))
                seen += message.value() is not None
    consumer.close()
    return watch.took


def confluent_iterate(address: str, topic: str, load: Load) -> Took:
    return confluent_consume(address, topic, load, 1)


def confluent_transactions(address: str, topic: str, load: Load) -> Took:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "transactional.id": uuid.uuid4().hex, "linger.ms": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    value = load.value

    def run(count: int) -> None:
        for _ in range(count):
            producer.begin_transaction()
            for _ in range(load.records):
                producer.produce(topic, value)
            producer.commit_transaction(TIMEOUT_S)

    run(20)
    with Watch() as watch:
        run(load.count)
    return watch.took


# -- runs


KEYS: Final = 1000


def _names(keys: int) -> list[bytes]:
    """Return `keys` different record keys."""
    return [b"key-%05d" % number for number in range(keys)]


def run_here(client: str, case: str, address: str, topic: str) -> Took:
    """Measure one client with one case in this process."""
    load = CASES[case]
    kind, keys = (load.kind, ()) if load.kind != "produce_keys" else ("produce", (KEYS,))
    measure: Callable[..., Took | Coroutine[Any, Any, Took]] = globals()[f"{client}_{kind}"]
    took = measure(address, topic, load, *keys)
    if isinstance(took, Took):
        return took

    async def bounded() -> Took:
        async with asyncio.timeout(TIMEOUT_S):
            return await took

    return uvloop.run(bounded())


def run_apart(client: str, case: str, address: str, topic: str) -> Took:
    """Measure one client with one case in a separate process."""
    command = [sys.executable, "-m", "oncelog.bench.clients", "--run", client, case, address, topic]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=2 * TIMEOUT_S, check=True)
    return Took(*json.loads(done.stdout))


def make_topic(address: str) -> str:
    """Create a topic with one partition and a random name; return the name."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": address})  # kept in a variable: its removal would cancel the request
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    return name


def main() -> None:
    """Run the chosen cases with all clients and print the table."""
    options = argparse.ArgumentParser(prog="bench.clients", description=__doc__)
    options.add_argument(
        "--rounds", type=int, default=5, help="number of runs of each case with each client (default 5)"
    )
    options.add_argument("--only", action="append", choices=sorted(CASES), help="run only this case; may be repeated")
    options.add_argument("--clients", nargs="*", default=CLIENTS, choices=CLIENTS, help="run only these clients")
    options.add_argument(
        "--durability", default="os", choices=("os", "flush"), help="the broker's durability (default os)"
    )
    options.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.run:
        print(json.dumps(run_here(*chosen.run)))
        return
    taken: dict[str, dict[str, list[Took]]] = defaultdict(lambda: defaultdict(list))
    cases = {name: load for name, load in CASES.items() if not chosen.only or name in chosen.only}
    with (
        tempfile.TemporaryDirectory(prefix="oncelog-bench-") as home,
        BrokerProcess(Path(home), "--durability", chosen.durability) as broker,
    ):
        topics: dict[int, str] = {}
        for load in cases.values():
            if load.kind in READING and load.size not in topics:
                topics[load.size] = make_topic(broker.address)
                most = max(one.count for one in CASES.values() if one.kind in READING and one.size == load.size)
                confluent_produce(broker.address, topics[load.size], load._replace(count=most))
        for number in range(chosen.rounds):
            for case, load in cases.items():
                for turn in range(len(chosen.clients)):
                    client = chosen.clients[(turn + number) % len(chosen.clients)]
                    topic = topics[load.size] if load.kind in READING else make_topic(broker.address)
                    taken[case][client].append(run_apart(client, case, broker.address, topic))
    show(list(chosen.clients), cases, taken, chosen.rounds)


def show(clients: list[str], cases: dict[str, Load], taken: dict[str, dict[str, list[Took]]], rounds: int) -> None:
    """Print the medians and ratios of all cases."""
    table = Table(title=f"medians of {rounds} alternating rounds: items per s, and client processor µs per item")
    table.add_column("")
    for client in clients:
        table.add_column(client, justify="right")
        table.add_column("µs", justify="right")
    others = [client for client in clients if client != OURS and OURS in clients]
    for client in others:
        table.add_column(f"/ {client}", justify="right")
    for case, load in cases.items():
        row = [case]
        for client in clients:
            runs = taken[case][client]
            row.append(f"{load.count / statistics.median(took.wall_s for took in runs):,.0f}")
            row.append(f"{statistics.median(took.cpu_s for took in runs) / load.count * 1e6:,.2f}")
        for client in others:
            pairs = zip(taken[case][OURS], taken[case][client], strict=True)
            row.append(f"{statistics.median(theirs.wall_s / ours.wall_s for ours, theirs in pairs):.2f} ×")
        table.add_row(*row)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
