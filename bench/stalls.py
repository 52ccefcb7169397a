"""Measure how long a small Produce waits while the broker does something large (`python -m bench.stalls`).

A probe in a separate process sends records of 100 bytes one after another, with a pause of 2 ms, to a separate topic.
Each case first prepares its work without the probe. Then the broker does the work while the probe runs. The figures are
the p99 and the maximum of the probe's response times. The probe uses acks=1, or acks=all if the case's name says so.
The names of the cases contain their sizes, which `--scale` divides.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

from oncelog.demo.processes import BrokerProcess
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.records import Record, encode_batch
from rich.console import Console
from rich.table import Table
from support.apache_kafka import ApacheKafka
from support.hostile.neighbour import Wire
from support.raw_connection import RawConnection, batch

PROBE_TOPIC = "probe"
PROBE_PAUSE_S = 0.002
AFTERWARDS_S = 1.0
"""Seconds after a case in which the probe's requests still count, because the broker finishes part of the work then."""
LIMIT_S = 90.0
TOPIC_RESOURCE = 2
SETTINGS = {
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "message.max.bytes": "100000000",
    "socket.request.max.bytes": "104857600",
}
KAFKA_ONLY = {"log.initial.task.delay.ms"}

Restart = Callable[[], Awaitable[RawConnection]]


class Scene:
    """The environment of a case: a connection, the divisor of its sizes, and a way to restart the broker cleanly."""

    def __init__(self, wire: RawConnection, divisor: int, restart: Restart) -> None:
        self.wire = wire
        self.divisor = divisor
        self._restart = restart
        self._topics = 0

    async def restart(self) -> None:
        """Restart the broker cleanly and connect again."""
        self.wire = await self._restart()

    async def topic(self, partitions: int = 1, **configs: str) -> str:
        """Create a topic, wait until its partitions are ready, and return its name."""
        self._topics += 1
        name = f"stalls-{self._topics}"
        rows = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, -1, [], rows)], 60_000)
        check(row.error_code for row in (await self.wire.call(request, 7)).topics)
        async with asyncio.timeout(LIMIT_S):
            while not await self._serves(name, partitions):  # noqa: ASYNC110 - it is not announced
                await asyncio.sleep(0.2)
        return name

    async def _serves(self, topic: str, partitions: int) -> bool:
        """Whether all partitions have a leader. Apache Kafka creates partitions some time after its response."""
        asked = [ListOffsetsPartition(index, -1, -1) for index in range(partitions)]
        response = await self.wire.call(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, asked)]), 7)
        return not any(part.error_code for part in response.topics[0].partitions)

    async def fill(self, topic: str, megabytes: int, records: bytes, in_flight: int = 16) -> None:
        """Write the batch `records` repeatedly with acks=1, until the topic has `megabytes` MB divided by the scale."""
        count = max(1, megabytes * 1_000_000 // self.divisor // len(records))
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, records)])
        request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data])
        for sent in range(count):
            self.wire.send(request, 9)
            if sent >= in_flight:
                await self.wire.receive(ProduceRequest, 9)
        for _ in range(min(count, in_flight)):
            await self.wire.receive(ProduceRequest, 9)

    async def write_each(self, topic: str, partitions: int, acks: int = 1) -> None:
        """Write one record to each partition, with 100 partitions per request."""
        for first in range(0, partitions, 100):
            chosen = range(first, min(first + 100, partitions))
            rows = [PartitionProduceData(index, batch(bytes(100))) for index in chosen]
            data = [TopicProduceData(topic, partition_data=rows)]
            request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data)
            response = await self.wire.call(request, 9)
            check(part.error_code for part in response.responses[0].partition_responses)

    async def alter(self, topic: str, **configs: str) -> None:
        """Set configs of a topic."""
        rows = [AlterableConfig(name.replace("_", "."), 0, value) for name, value in configs.items()]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC_RESOURCE, topic, rows)], False)
        check(row.error_code for row in (await self.wire.call(request, 1)).responses)

    async def offsets(self, topic: str, partitions: int, timestamp: int) -> list[int]:
        """Return each partition's offset for `timestamp`, from requests for 1,000 partitions each."""
        offsets: list[int] = []
        for first in range(0, partitions, 1000):
            asked = [
                ListOffsetsPartition(index, -1, timestamp) for index in range(first, min(first + 1000, partitions))
            ]
            response = await self.wire.call(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, asked)]), 7)
            check(part.error_code for part in response.topics[0].partitions)
            offsets += [part.offset for part in response.topics[0].partitions]
        return offsets


def check(codes: Iterator[int]) -> None:
    """Raise RuntimeError if one of the error codes is not zero."""
    wrong = {ErrorCode(code).name for code in codes if code}
    if wrong:
        raise RuntimeError(f"the broker answered with {', '.join(sorted(wrong))}")


# ---- the cases: the code before `yield` is the preparation, and the code after it is measured


async def retention(scene: Scene) -> AsyncIterator[None]:
    """Let retention delete one record in each of 1,000 partitions."""
    count = 1000 // scene.divisor
    topic = await scene.topic(count)
    await scene.write_each(topic, count)
    yield
    await scene.alter(topic, retention_ms="1000")
    async with asyncio.timeout(LIMIT_S):
        while await scene.offsets(topic, count, -2) != [1] * count:  # noqa: ASYNC110 - it is not announced
            await asyncio.sleep(0.5)


async def delete_records(scene: Scene) -> AsyncIterator[None]:
    """Delete one record in each of 300 partitions with DeleteRecords."""
    count = 300 // scene.divisor
    topic = await scene.topic(count)
    await scene.write_each(topic, count)
    yield
    rows = [DeleteRecordsPartition(index, 1) for index in range(count)]
    response = await scene.wire.call(DeleteRecordsRequest([DeleteRecordsTopic(topic, rows)], 60_000), 2)
    check(part.error_code for part in response.topics[0].partitions)


async def delete_topics(scene: Scene) -> AsyncIterator[None]:
    """Delete 300 topics with one DeleteTopics request."""
    names = [await scene.topic() for _ in range(300 // scene.divisor)]
    for name in names:
        await scene.write_each(name, 1)
    yield
    request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], timeout_ms=60_000)
    check(row.error_code for row in (await scene.wire.call(request, 6)).responses)


async def time_look_up(scene: Scene) -> AsyncIterator[None]:
    """Look up offsets by time in 300 MB of records with equal timestamps."""
    topic = await scene.topic()
    await scene.fill(topic, 300, batch(bytes(900)))
    yield
    for _ in range(3):
        await scene.offsets(topic, 1, 1_700_000_000_001)
        await scene.offsets(topic, 1, -3)


async def tiny_records(scene: Scene) -> AsyncIterator[None]:
    """Write 1,000,000 empty records with one Produce request."""
    topic = await scene.topic()
    records = _tiny(scene, None)
    yield
    check(iter([(await scene.wire.produce(topic, records)).error_code]))


async def tiny_records_compacted(scene: Scene) -> AsyncIterator[None]:
    """Write 1,000,000 empty records with one Produce request to a compacted topic."""
    topic = await scene.topic(cleanup_policy="compact")
    records = _tiny(scene, b"k")
    yield
    check(iter([(await scene.wire.produce(topic, records)).error_code]))


def _tiny(scene: Scene, key: bytes | None) -> bytes:
    """Return a batch of 1,000,000 records (divided by the scale) with empty values."""
    return encode_batch([Record(n, 1_700_000_000_000, key, b"", []) for n in range(1_000_000 // scene.divisor)])


async def cold_segment(scene: Scene) -> AsyncIterator[None]:
    """Read from a segment of 1 GB after a restart of the broker."""
    topic = await scene.topic(segment_bytes=str(1 << 30))
    await scene.fill(topic, 1000, batch(bytes(4000)))
    (end,) = await scene.offsets(topic, 1, -1)
    await scene.restart()
    yield
    await scene.offsets(topic, 1, 1_700_000_000_000)
    for part in range(1, 4):
        await scene.wire.fetch(topic, end * part // 4)


async def fetch_of_many(scene: Scene) -> AsyncIterator[None]:
    """Fetch from 10,000 partitions with one request, five times."""
    count = 10_000 // scene.divisor
    each = min(1000, count)
    names = [await scene.topic(each) for _ in range(count // each)]
    rows = [FetchTopic(name, partitions=[FetchPartition(n, -1, 0) for n in range(each)]) for name in names]
    yield
    for _ in range(5):
        await scene.wire.call(FetchRequest(max_wait_ms=0, min_bytes=1, topics=rows), 12)


async def compaction(scene: Scene) -> AsyncIterator[None]:
    """Compact 2 GB of records."""
    topic = await scene.topic(segment_bytes=str(256 << 20), min_cleanable_dirty_ratio="0.01")
    keyed = [Record(n, 1_700_000_000_000, b"%d" % (n % 100), bytes(1000), []) for n in range(900)]
    await scene.fill(topic, 2000, encode_batch(keyed))
    yield
    await scene.alter(topic, cleanup_policy="compact")
    await asyncio.sleep(30 / scene.divisor + 5)


async def unlinking(scene: Scene) -> AsyncIterator[None]:
    """Delete a topic with 3 GB of records."""
    topic = await scene.topic(segment_bytes=str(512 << 20))
    await scene.fill(topic, 3000, batch(bytes(900_000)))
    yield
    request = DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=60_000)
    check(row.error_code for row in (await scene.wire.call(request, 6)).responses)
    await asyncio.sleep(4.0)


async def creation(scene: Scene) -> AsyncIterator[None]:
    """Create 300 topics with one CreateTopics request."""
    yield
    topics = [CreatableTopic(f"created-{n}", 1, -1, [], []) for n in range(300 // scene.divisor)]
    check(row.error_code for row in (await scene.wire.call(CreateTopicsRequest(topics, 60_000), 7)).topics)


async def writer_to_many(scene: Scene) -> AsyncIterator[None]:
    """Write to 300 partitions with acks=all for ten seconds."""
    count = 300 // scene.divisor
    topic = await scene.topic(count)
    await scene.write_each(topic, count, acks=-1)
    yield
    until = time.monotonic() + 10.0
    while time.monotonic() < until:
        await scene.write_each(topic, count, acks=-1)


async def nothing(scene: Scene) -> AsyncIterator[None]:
    """Do nothing for five seconds."""
    yield
    await asyncio.sleep(5.0)


Case = Callable[[Scene], AsyncIterator[None]]
CASES: dict[str, tuple[Case, int]] = {
    "nothing to do": (nothing, 1),
    "retention over 1,000 partitions": (retention, 1),
    "DeleteRecords on 300 partitions": (delete_records, 1),
    "DeleteTopics of 300": (delete_topics, 1),
    "CreateTopics of 300": (creation, 1),
    "time look-ups in 300 MB of equal timestamps": (time_look_up, 1),
    "1,000,000 tiny records in one Produce": (tiny_records, 1),
    "the same, compacted topic": (tiny_records_compacted, 1),
    "reads of a cold segment of 1 GB": (cold_segment, 1),
    "Fetch of 10,000 partitions, 5 times": (fetch_of_many, 1),
    "compaction of 2 GB": (compaction, 1),
    "unlinking 3 GB": (unlinking, 1),
    "acks=all: nothing to do": (nothing, -1),
    "acks=all: a writer to 300 partitions": (writer_to_many, -1),
}
"""The cases by name, each with the acks of its probe."""


# ---- the probe


class Probe:
    """A process that sends small records one after another, and prints the time and duration of each request."""

    def __init__(self, address: str, acks: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.stalls", "--probe", address, str(acks)], stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ended(self) -> list[tuple[float, float]]:
        """End the process; return (time sent, duration) of each answered request, in seconds."""
        self._process.terminate()
        output, _ = self._process.communicate(timeout=30)
        rows = [line.split() for line in output.splitlines()]
        return [(float(row[0]), float(row[1])) for row in rows if len(row) == 2]


def probe(address: str, acks: int) -> None:
    """Send records and print (time sent, duration) of each request until the process is terminated."""
    wire = Wire(address)
    with contextlib.suppress(BrokenPipeError):
        wire.call(CreateTopicsRequest([CreatableTopic(PROBE_TOPIC, 1, -1, [], [])], 10_000), 7)
        data = TopicProduceData(PROBE_TOPIC, partition_data=[PartitionProduceData(0, batch(bytes(100)))])
        request = ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data])
        while True:
            begun = time.monotonic()
            wire.call(request, 9)
            print(begun, time.monotonic() - begun, flush=True)
            time.sleep(PROBE_PAUSE_S)


# ---- the brokers


class _Oncelog:
    """An oncelog broker process."""

    name = "oncelog"

    def __init__(self, home: Path, durability: str) -> None:
        rows = [f"--set={name}={value}" for name, value in SETTINGS.items() if name not in KAFKA_ONLY]
        self._process = BrokerProcess(home, "--durability", durability, *rows)

    @property
    def address(self) -> str:
        return self._process.address

    def start(self) -> None:
        self._process.start(LIMIT_S)

    def stop(self) -> None:
        self._process.terminate(LIMIT_S)


class _Kafka:
    """An Apache Kafka broker process."""

    name = "Apache Kafka"

    def __init__(self, home: Path) -> None:
        self._process = ApacheKafka(home, SETTINGS)

    @property
    def address(self) -> str:
        return self._process.address

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        self._process.stop()


async def measured(peer: _Oncelog | _Kafka, case: Case, acks: int, divisor: int) -> tuple[float, float]:
    """Run a case on a new broker; return the (p99, maximum) of the probe's response times in milliseconds."""
    peer.start()
    try:
        async with contextlib.AsyncExitStack() as stack:

            async def restart() -> RawConnection:
                await asyncio.to_thread(peer.stop)
                await asyncio.to_thread(peer.start)
                return await stack.enter_async_context(RawConnection(peer.address))

            scene = Scene(await stack.enter_async_context(RawConnection(peer.address)), divisor, restart)
            steps = case(scene)
            await anext(steps)
            with Probe(peer.address, acks) as sender:
                await asyncio.sleep(2.0)  # the first requests are slower, because the broker loads code and data
                begun = time.monotonic()
                await anext(steps, None)
                took = time.monotonic() - begun
                await asyncio.sleep(AFTERWARDS_S)
                answers = sender.ended()
    finally:
        await asyncio.to_thread(peer.stop)
    until = begun + took + AFTERWARDS_S
    counted = [1000 * seconds for sent, seconds in answers if sent + seconds > begun and sent < until]
    return statistics.quantiles(counted, n=100)[98], max(counted)


def main() -> None:
    options = argparse.ArgumentParser(prog="bench.stalls", description=__doc__)
    options.add_argument(
        "--rounds", type=int, default=1, help="number of runs of each case; medians are shown (default 1)"
    )
    options.add_argument("--scale", type=int, default=1, help="divides all sizes (default 1)")
    options.add_argument("--only", help="only cases whose name contains this")
    options.add_argument(
        "--durability", choices=("os", "flush"), default="os", help="durability of oncelog (default os)"
    )
    options.add_argument("--without-kafka", action="store_true", help="measure only oncelog, without Apache Kafka")
    options.add_argument("--probe", nargs=2, metavar=("ADDRESS", "ACKS"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.probe:
        probe(chosen.probe[0], int(chosen.probe[1]))
        return
    names = ["oncelog"] + ["Apache Kafka"] * (not chosen.without_kafka)
    table = Table(title=f"a Produce of 100 bytes during large work, ms, medians of {chosen.rounds}")
    table.add_column("beside")
    for name in names:
        table.add_column(f"{name} p99", justify="right")
        table.add_column("slowest", justify="right")
    console = Console(width=140)
    for name, (case, acks) in CASES.items():
        if chosen.only and chosen.only not in name:
            continue
        figures: dict[str, list[tuple[float, float]]] = {peer: [] for peer in names}
        for turn in range(chosen.rounds):
            for peer_name in names if turn % 2 == 0 else names[::-1]:
                with tempfile.TemporaryDirectory(prefix="oncelog-stalls-") as directory:
                    home = Path(directory)
                    peer = _Oncelog(home, chosen.durability) if peer_name == "oncelog" else _Kafka(home)
                    try:
                        figures[peer_name].append(asyncio.run(measured(peer, case, acks, chosen.scale)))
                    except (RuntimeError, TimeoutError) as error:
                        console.print(f"{name} on {peer_name} was not measured: {error!r}")
        cells = []
        for peer_name in names:
            columns = list(zip(*figures[peer_name], strict=True)) or [(), ()]
            cells += [f"{statistics.median(column):,.1f}" if column else "-" for column in columns]
        console.print(f"{name}: {', '.join(cells)}")
        table.add_row(name, *cells)
    console.print(table)


if __name__ == "__main__":
    main()
