"""Measure start time, stop time and memory of a broker with a large data directory (`python -m bench.scale`).

The benchmark creates two directories, and starts the broker on each after a clean stop and after kill -9:

* coordinators: 100,000 transactional ids with four records each, and 10,000 groups with one member and 20 committed
  offsets each, written twice. Nothing is compacted.
* partitions: 10,000 partitions. One small record is written to each, and then another one, with acks=all.

The start time is measured from the start of the process until the broker reports that it is ready. The stop time is
measured from SIGTERM to the end of the process. Both are in seconds. The broker's CPU time is in parentheses, because a
busy machine affects it less. Memory is resident memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from oncelog.broker.coordinator.group.classic_group import ClassicGroup
from oncelog.broker.coordinator.group.group_log import GROUP_METADATA_TOPIC
from oncelog.broker.coordinator.group.member import (
    ClassicGroupMember,
    ClientIdentity,
    OfferedProtocol,
    OfferedProtocols,
)
from oncelog.broker.coordinator.group.offsets import OffsetAndMetadata
from oncelog.broker.coordinator.group.records import encode_group, encode_offset, group_key, offset_key
from oncelog.broker.coordinator.transaction.metadata import (
    TransactionMetadata,
    add_partitions,
    complete_end,
    increment_epoch,
    new_metadata,
    prepare_end,
)
from oncelog.broker.coordinator.transaction.state import TransactionVersion
from oncelog.broker.coordinator.transaction.transaction_log import TRANSACTION_STATE_TOPIC, encode_key, encode_value
from oncelog.broker.node import BrokerNode
from oncelog.demo.processes import BrokerProcess
from oncelog.protocol.codec import encode_versioned
from oncelog.protocol.internal_topics import partition_for_key
from oncelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from oncelog.protocol.records import Record, encode_batch
from rich.console import Console
from rich.table import Table

INTERNAL_PARTITIONS = 50
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 300.0
TOPIC = "scale"

Pairs = list[tuple[bytes, bytes | None]]


def main() -> None:
    options = argparse.ArgumentParser(prog="bench.scale", description=__doc__)
    options.add_argument("--ids", type=int, default=100_000, help="transactional ids (default 100,000)")
    options.add_argument("--groups", type=int, default=10_000, help="groups of 20 offsets (default 10,000)")
    options.add_argument("--partitions", type=int, default=10_000, help="partitions (default 10,000)")
    options.add_argument(
        "--rounds", type=int, default=3, help="number of starts of each kind; medians are shown (default 3)"
    )
    options.add_argument("--only", choices=("coordinators", "partitions"), help="measure only this directory")
    options.add_argument(
        "--keep", type=Path, help="keep the coordinators' directory here, and reuse that of an earlier run"
    )
    chosen = options.parse_args()
    table = Table(title=f"start, stop and memory: medians of {chosen.rounds}")
    for column in ("directory", "figure", "value"):
        table.add_column(column, justify="right" if column == "value" else "left")
    with tempfile.TemporaryDirectory(prefix="oncelog-scale-") as temporary:
        home = chosen.keep or Path(temporary)
        if chosen.only != "partitions":
            directory = made(home / f"coordinators-{chosen.ids}-{chosen.groups}", chosen.ids, chosen.groups, 20)
            for figure, value in coordinators(directory, Path(temporary), chosen.rounds):
                table.add_row("coordinators", figure, value)
        if chosen.only != "coordinators":
            for figure, value in partitions(Path(temporary) / "partitions", chosen.partitions, chosen.rounds):
                table.add_row("partitions", figure, value)
    Console(width=100).print(table)


def made(directory: Path, ids: int, groups: int, offsets: int) -> Path:
    """Return the data directory of a cleanly stopped broker with the coordinators' state; create it if necessary."""
    if not directory.exists():
        half_made = directory.with_suffix(".tmp")
        shutil.rmtree(half_made, ignore_errors=True)
        asyncio.run(_make(half_made / "data", ids, groups, offsets))
        half_made.rename(directory)
    return directory


async def _make(directory: Path, ids: int, groups: int, offsets: int) -> None:
    """Create the coordinators' directory."""
    async with BrokerNode(directory, durability="os") as broker:
        topic = await broker.metadata.create_topic(TOPIC, offsets, {})
        now_ms = broker.clock.now_ms()
        for name, batches in (
            (TRANSACTION_STATE_TOPIC, _transactions(ids, now_ms)),
            (GROUP_METADATA_TOPIC, _groups(groups, offsets, topic.topic_id, now_ms)),
        ):
            logs = [_LogFile(directory / f"{name}-{partition}") for partition in range(INTERNAL_PARTITIONS)]
            for key, pairs in batches:
                logs[partition_for_key(key, INTERNAL_PARTITIONS)].append(pairs, now_ms)
            for log in logs:
                log.close()
    async with BrokerNode(directory, logging_level="error"):  # builds the indexes
        pass


class _LogFile:
    """The only segment of a partition, written without a broker."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._file = (directory / f"{0:020}.log").open("wb")
        self._end_offset = 0

    def append(self, pairs: Pairs, timestamp_ms: int) -> None:
        """Write one batch of (key, value) pairs."""
        base = self._end_offset
        records = [Record(offset, timestamp_ms, key, value, []) for offset, (key, value) in enumerate(pairs, base)]
        self._file.write(encode_batch(records, base_offset=base, leader_epoch=0))
        self._end_offset += len(pairs)

    def close(self) -> None:
        self._file.close()


def _transactions(ids: int, now_ms: int) -> Iterator[tuple[str, Pairs]]:
    """Yield (transactional id, batch) for each batch of each id's first transaction, which is committed."""
    level = TransactionVersion.TV_2
    for number in range(ids):
        name = f"scale-transactional-id-{number}"
        for batch in _one_transaction(new_metadata(name, number, 60_000, now_ms), number, level, now_ms):
            yield name, [(encode_key(name), encode_value(value, level)) for value in batch]


def _one_transaction(
    new: TransactionMetadata, number: int, level: TransactionVersion, now_ms: int
) -> list[list[TransactionMetadata]]:
    """Return the states that a committed transaction writes to the transaction log, one list per batch."""
    empty = increment_epoch(new, 60_000, -1, now_ms)
    ongoing = add_partitions(empty, [(TOPIC, number % 20), (TOPIC, (number + 1) % 20)], level, now_ms)
    prepared = prepare_end(ongoing, True, level, now_ms)
    return [[empty], [ongoing], [prepared], [complete_end(prepared, now_ms)]]


def _groups(groups: int, offsets: int, topic_id: bytes, now_ms: int) -> Iterator[tuple[str, Pairs]]:
    """Yield (group id, batch) with the metadata of each group and then with all its offsets, for all groups, twice."""
    subscription = encode_versioned(ConsumerProtocolSubscription(topics=[TOPIC]), 1)
    for turn in (1, 2):
        for number in range(groups):
            name = f"scale-group-{number}"
            member = ClassicGroupMember(
                f"consumer-{number}-8bf6d2a7-9b19-4c37-b4c0-5a0d4c2c9b1e",
                None,
                ClientIdentity("consumer", "/127.0.0.1"),
                rebalance_timeout_ms=300_000,
                session_timeout_ms=300_000,
                protocol_type="consumer",
                protocols=OfferedProtocols([OfferedProtocol("range", subscription)]),
            )
            group = ClassicGroup(name, now_ms)
            group.add(member)
            group.generation_id, group.protocol_name = turn, "range"
            yield name, [(group_key(name), encode_group(group, {member.member_id: bytes(100)}))]
            committed = OffsetAndMetadata(turn * 1000, 0, "", now_ms, topic_id=topic_id)
            yield name, [(offset_key(name, (TOPIC, index)), encode_offset(committed)) for index in range(offsets)]


def coordinators(directory: Path, temporary: Path, rounds: int) -> Iterator[tuple[str, str]]:
    """Measure starts and stops with the coordinators' directory; yield (figure, value) rows."""
    home = temporary / "coordinators"
    shutil.copytree(directory, home)
    with _Timed(home) as broker:
        for _ in range(rounds):
            broker.start("start to ready, clean")
            broker.note_memory("memory when ready")
            broker.process.kill9()
            broker.start("start to ready, after kill -9")
            broker.stop("clean stop")
    yield from broker.figures()


def partitions(home: Path, count: int, rounds: int) -> Iterator[tuple[str, str]]:
    """Measure writes, starts and stops with many partitions; yield (figure, value) rows."""
    asyncio.run(_create(home / "data", count))
    with _Timed(home) as broker:
        broker.process.start(START_TIMEOUT_S)
        with broker.timed("first acks=all to each"):
            _produce(broker.process.address, count)
        for _ in range(rounds):
            with broker.timed("second acks=all to each"):
                _produce(broker.process.address, count)
            broker.note_memory("memory after the writes")
            broker.process.kill9()
            broker.start("start to ready, after kill -9")
            broker.stop("clean stop")
            broker.start("start to ready, clean")
            broker.note_memory("memory when ready")
    yield from broker.figures()


async def _create(home: Path, count: int) -> None:
    """Create a topic with `count` partitions in a new directory."""
    async with BrokerNode(home, durability="os") as broker:
        await broker.metadata.create_topic(TOPIC, count, {})


def _produce(address: str, count: int) -> None:
    """Write one record to each partition, and return when all are acknowledged. Raises RuntimeError on a failure."""
    failed: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 100})
    for partition in range(count):
        producer.produce(TOPIC, bytes(20), partition=partition, on_delivery=delivered)
        producer.poll(0)
    if producer.flush(STOP_TIMEOUT_S) or failed:
        raise RuntimeError(f"some records were not acknowledged: {failed[:3]}")


class _Timed:
    """A broker process, and its measured times (wall-clock and CPU, in s) and memory (in MB) by name."""

    def __init__(self, home: Path) -> None:
        self.process = BrokerProcess(home)
        self._seconds: dict[str, list[tuple[float, float]]] = {}
        self._memory: dict[str, list[float]] = {}

    def __enter__(self) -> _Timed:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill9()

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Measure the time of the block, as one sample of the figure `name`."""
        begun, cpu = time.perf_counter(), self._cpu_s()
        yield
        self._seconds.setdefault(name, []).append((time.perf_counter() - begun, self._cpu_s() - cpu))

    def start(self, name: str) -> None:
        """Start the broker and measure the time until it is ready."""
        begun = time.perf_counter()
        self.process.start(START_TIMEOUT_S)
        self._seconds.setdefault(name, []).append((time.perf_counter() - begun, self._cpu_s()))

    def stop(self, name: str) -> None:
        """Stop the broker and measure the time until its process has ended."""
        begun, cpu = time.perf_counter(), _cpu_of_ended_s() + self._cpu_s()
        code = self.process.terminate(STOP_TIMEOUT_S)
        if code:
            raise RuntimeError(f"the broker ended with {code}: {self.process.last_words()}")
        self._seconds.setdefault(name, []).append((time.perf_counter() - begun, _cpu_of_ended_s() - cpu))

    def note_memory(self, name: str) -> None:
        """Record the broker's resident memory."""
        self._memory.setdefault(name, []).append(psutil.Process(self.process.pid).memory_info().rss / 1e6)

    def figures(self) -> Iterator[tuple[str, str]]:
        """Yield (name, median) of all measured times and of the memory."""
        for name, seconds in self._seconds.items():
            wall, cpu = (statistics.median(values) for values in zip(*seconds, strict=True))
            yield name, f"{wall:.2f} s ({cpu:.2f})"
        for name, megabytes in self._memory.items():
            yield name, f"{statistics.median(megabytes):.0f} MB"

    def _cpu_s(self) -> float:
        """Return the broker's CPU time in seconds."""
        spent = psutil.Process(self.process.pid).cpu_times()
        return float(spent.user + spent.system)


def _cpu_of_ended_s() -> float:
    """Return the CPU time of all ended child processes that were waited for, in seconds."""
    return os.times().children_user + os.times().children_system


if __name__ == "__main__":
    main()
