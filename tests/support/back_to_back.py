"""Run transactions of one record without a pause between them, and record the broker's responses on the wire."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer as StockProducer
from oncelog import ConsumerGroupMetadata, Producer, TopicPartition
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Request, Response, Struct
from support.proxy import FaultProxy

PATIENT = ("--set", "transaction.pending.wait.max.ms=60000")
"""Broker settings with which no request is refused if the machine's disk is busy for a second."""

Work = Callable[[str, str, str, int], None]
"""A function (bootstrap, topic, transactional id, count) that runs the transactions. It raises the client's errors."""


@dataclass(frozen=True)
class Seen:
    """The messages on the wire. `codes` counts error codes by API and name; `versions` are the versions used last."""

    seconds: float
    requests: Counter[str]
    codes: Counter[tuple[str, str]]
    versions: dict[str, int]

    def count(self, code: ErrorCode) -> int:
        """Return how often a response of any API had this code."""
        return sum(count for (_, name), count in self.codes.items() if name == code.name)


async def observed(target: str, work: Work, topic: str, transactional_id: str, count: int) -> Seen:
    """Run the transactions through a proxy that reads every response, and return what the proxy has seen."""
    codes: Counter[tuple[str, str]] = Counter()

    def note(api: type[Request[Any]], response: Response) -> None:
        for code in error_codes(response):
            codes[api.__name__.removesuffix("Request"), code.name] += 1

    async with FaultProxy(target) as proxy:
        proxy.on_answer = note
        begun = time.monotonic()
        await asyncio.to_thread(work, proxy.address, topic, transactional_id, count)
        return Seen(time.monotonic() - begun, proxy.seen, codes, proxy.versions)


def error_codes(answer: Struct) -> Iterator[ErrorCode]:
    """Yield every error code in a response, except NONE."""
    for spec in answer.fields:
        value = getattr(answer, spec.name)
        if spec.name.endswith("error_code"):
            if value:
                yield ErrorCode(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    yield from error_codes(item)


def librdkafka(bootstrap: str, topic: str, transactional_id: str, count: int) -> None:
    """Run the transactions with one producer of confluent-kafka."""
    producer = StockProducer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(60)
    for number in range(count):
        producer.begin_transaction()
        producer.produce(topic, str(number).encode(), partition=0)
        producer.commit_transaction(60)


def bundled(bootstrap: str, topic: str, transactional_id: str, count: int) -> None:
    """Run the transactions with one oncelog producer, in a new event loop."""

    async def run() -> None:
        async with Producer(bootstrap_servers=bootstrap, transactional_id=transactional_id, linger_ms=0) as producer:
            await producer.init_transactions()
            for number in range(count):
                async with producer.transaction() as txn:
                    txn.send(topic, str(number).encode(), partition=0)

    asyncio.run(run())


def bundled_with_offsets(bootstrap: str, topic: str, transactional_id: str, count: int) -> None:
    """Run the transactions with one oncelog producer that also commits an offset in each transaction."""

    async def run() -> None:
        async with Producer(bootstrap_servers=bootstrap, transactional_id=transactional_id, linger_ms=0) as producer:
            await producer.init_transactions()
            for number in range(count):
                async with producer.transaction() as txn:
                    txn.send(topic, str(number).encode(), partition=0)
                    position = {TopicPartition(topic, 0): number + 1}
                    await txn.send_offsets(position, ConsumerGroupMetadata(transactional_id))

    asyncio.run(run())


def java(bootstrap: str, topic: str, transactional_id: str, count: int) -> None:
    """Run the transactions with one producer of the Java client 4.1, which uses transaction.version 2."""
    import subprocess

    from support.apache_kafka import class_path, jvm_options

    program = Path(__file__).resolve().parents[1] / "interop" / "clients" / "java" / "BackToBack.java"
    command = ["java", *jvm_options("256m"), "-cp", class_path(), str(program)]
    done = subprocess.run(
        [*command, bootstrap, topic, transactional_id, str(count)],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.stdout.endswith("OK\n"), done.stdout[-2000:] + done.stderr[-2000:]
