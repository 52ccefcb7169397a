"""Measure how the broker's cost grows with its load, for docs/performance.md (`python -m bench.performance`).

Each point is measured with a new broker process, to which a small client sends requests over TCP. The cost is the
processor time of all threads of this process, because other load on the machine affects it less than elapsed time. Each
value is the lowest of several rounds of many requests. Durability is os, so the speed of the disk has no effect.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
from oncelog.demo.processes import BrokerProcess
from oncelog.protocol.batch_header import assemble_batch
from oncelog.protocol.compression import Compression
from oncelog.protocol.framing import decode_response, encode_request
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.records import encode_record
from oncelog.protocol.schema import Request, Response, Struct
from support.wire import Wire

from .growth import Figure, Growth, draw, page, table

ROUNDS: Final = 5
AHEAD: Final = 50
"""Number of requests that are sent before their responses are read."""
START_TIMEOUT_S: Final = 180.0
SAMPLE: Final = 100
"""Number of transactional ids, besides the idle ones, whose transactions are measured."""
PRODUCE, FETCH, LIST_OFFSETS, INIT, ADD, END, CREATE = 11, 11, 7, 4, 3, 3, 7
TOPIC: Final = "growth"
SETTINGS: Final = {
    "message.max.bytes": "20000000",
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    "max.connections": "20000",
}


# ---- the broker, its processor time and its memory


@contextmanager
def broker() -> Iterator[BrokerProcess]:
    """Run a broker with a temporary data directory."""
    with tempfile.TemporaryDirectory(prefix="oncelog-performance-") as directory:
        options = [text for name, value in SETTINGS.items() for text in ("--set", f"{name}={value}")]
        with BrokerProcess(Path(directory), "--durability", "os", *options) as process:
            yield process


def cpu_s(pid: int) -> float:
    """Return the processor time of a process until now, in seconds; on Linux with a resolution of nanoseconds."""
    threads = Path(f"/proc/{pid}/task")
    try:
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads.iterdir()) / 1e9
    except FileNotFoundError:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    return float(psutil.Process(pid).memory_info().rss) / 1e6


def start_cpu_s(process: BrokerProcess) -> float:
    """Return the processor time of a start after kill -9 until the broker is ready: the lowest of three, in seconds."""
    least = float("inf")
    for _ in range(3):
        process.kill9()
        process.start(START_TIMEOUT_S)
        least = min(least, cpu_s(process.pid))
    return least


class Frame(NamedTuple):
    """An encoded request, and the class and version of its response."""

    data: bytes
    response: type[Response]
    version: int


class Link(Wire):
    """A connection that sends encoded requests."""

    def run(self, frames: list[Frame], links: list[Link] | None = None) -> None:
        """Send all frames, over `links` in turn if given, and read their responses, `AHEAD` at a time.

        Raises RuntimeError if the last response has an error code.
        """
        links = links or [self]
        for begin in range(0, len(frames), AHEAD):
            part = frames[begin : begin + AHEAD]
            owners = [links[(begin + number) % len(links)] for number in range(len(part))]
            for link, frame in zip(owners, part, strict=True):
                link.send_bytes(frame.data)
            for link in owners:
                answer = link.receive_frame()
        check(decode_response(frames[-1].response, frames[-1].version, answer)[1])


def cost_us(process: BrokerProcess, work: Callable[[], int]) -> float:
    """Return the broker's lowest processor time per request in µs. `work` sends requests and returns their number."""
    least = float("inf")
    for _ in range(ROUNDS):
        begun = cpu_s(process.pid)
        count = work()
        time.sleep(0.02)  # work that the broker does after its responses counts, too
        least = min(least, (cpu_s(process.pid) - begun) / count * 1e6)
    return least


# ---- requests


def encoded(request: Request[Any], version: int) -> Frame:
    """Return the encoded request."""
    return Frame(b"".join(encode_request(request, version, 1, "growth")), request.response, version)


def check(answer: Any) -> None:
    """Raise RuntimeError if a response or a part of it has an error code: a refused request would cost too little."""
    if isinstance(answer, list):
        for part in answer:
            check(part)
    elif isinstance(answer, Struct):
        if getattr(answer, "error_code", 0):
            raise RuntimeError(f"the broker refused a measured request: {answer}")
        for field in answer.fields:
            check(getattr(answer, field.name))


def batch_of(count: int, size: int, timestamp_ms: int, producer: tuple[int, int, int] | None = None) -> bytes:
    """Return a batch of `count` records of `size` bytes; `producer` (id, epoch, sequence) makes it transactional."""
    value = bytes(97 + number * 31 % 26 for number in range(min(size, 1 << 16))) * (1 + size // (1 << 16))
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    return assemble_batch(
        b"".join(encode_record(0, number, None, value[:size]) for number in range(count)),
        base_offset=0,
        leader_epoch=-1,
        attributes=Compression.NONE | (0x10 if producer else 0),
        last_offset_delta=count - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def produce(batch: bytes, partition: int = 0, transactional_id: str | None = None) -> Frame:
    """Return an encoded Produce request for one batch."""
    topics = [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(partition, batch)])]
    return encoded(ProduceRequest(transactional_id, 1, 30_000, topics), PRODUCE)


def fetch(offset: int, size: int, partition: int = 0) -> Frame:
    """Return an encoded Fetch request for up to `size` bytes of one partition."""
    rows = [FetchPartition(partition, fetch_offset=offset, partition_max_bytes=size)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=size, session_epoch=-1, topics=[FetchTopic(TOPIC, partitions=rows)]
    )
    return encoded(request, FETCH)


def create(link: Wire, partitions: int) -> None:
    """Create the topic of the benchmark."""
    answer = link.call(CreateTopicsRequest([CreatableTopic(TOPIC, partitions, 1)], timeout_ms=120_000), CREATE)
    if answer.topics[0].error_code:
        raise RuntimeError(f"topic {TOPIC} with {partitions} partitions: {answer.topics[0].error_message}")


def now_ms() -> int:
    """Return the wall-clock time in ms."""
    return int(time.time() * 1000)


# ---- what grows


def partitions(most: int) -> Growth:
    """Measure how costs grow with the number of partitions."""
    growth = Growth(
        "Partitions",
        "partitions",
        "partitions of the broker, each with records",
        "A request costs more when the broker has more partitions than fit into the processor's caches: the data of a"
        " partition has left the caches before its next request. With more partitions than file descriptors"
        " (`ulimit -n`), the broker has to close files and open them again. Memory and start time grow with the number"
        " of partitions.",
        [
            Figure("a request for each of them in turn", "µs"),
            Figure("memory", "MB"),
            Figure("start after kill -9", "s"),
        ],
    )
    requests, memory, start = growth.figures
    for count in powers(most):
        with broker() as process, Link(process.address, 120) as link:
            create(link, count)
            batch, asked = batch_of(1, 100, now_ms()), max(count, 2000)
            writes = [produce(batch, number % count) for number in range(asked)]
            reads = [fetch(0, 200, number % count) for number in range(asked)]
            link.run(writes)  # the first record of each partition creates its files
            requests.add("Produce of one record", count, cost_us(process, counted(link, writes)))
            requests.add("Fetch of one record", count, cost_us(process, counted(link, reads)))
            memory.add("resident", count, memory_mb(process.pid))
            start.add("processor time", count, start_cpu_s(process))
    return growth


def connections(most: int) -> Growth:
    """Measure how costs grow with the number of connections."""
    growth = Growth(
        "Connections",
        "connections",
        "open connections, used in turn",
        "Requests on many connections arrive one by one, but requests on one connection arrive several at a time. With"
        " many connections, buffers have also left the processor's caches before they are used again. For these two"
        " reasons, the cost rises up to 1,000 connections. Beyond that, it does not rise further.",
        [Figure("Produce", "µs"), Figure("memory", "MB")],
    )
    requests, memory = growth.figures
    for count in powers(most):
        with broker() as process, ExitStack() as opened:
            links = [opened.enter_context(Link(process.address, 120)) for _ in range(count)]
            create(links[0], 1)
            frames = [produce(batch_of(1, 100, now_ms()))] * max(count, 2000)
            links[0].run(frames, links)
            requests.add("one record of 100 B", count, cost_us(process, counted(links[0], frames, links)))
            memory.add("resident", count, memory_mb(process.pid))
    return growth


def transactional_ids(most: int) -> Growth:
    """Measure how costs grow with the number of transactional ids."""
    growth = Growth(
        "Transactional ids",
        "transactional-ids",
        "transactional ids that the broker knows",
        "A transaction looks up only its own id. Other ids make it more expensive only because they displace data from"
        " the processor's caches. Memory and start time grow with the number of ids.",
        [
            Figure("a transaction of one record", "µs"),
            Figure("memory", "MB"),
            Figure("start after kill -9", "s"),
        ],
    )
    requests, memory, start = growth.figures
    for count in powers(most, least=100):
        with broker() as process, Link(process.address, 120) as link:
            create(link, 1)
            link.find_coordinator("id-0", 1)
            others = [encoded(InitProducerIdRequest(f"id-{number}", 60_000), INIT) for number in range(count)]
            link.run(others)
            names = [f"sample-{number}" for number in range(SAMPLE)]
            producers = {
                name: (known.producer_id, known.producer_epoch)
                for name in names
                if (known := link.call(InitProducerIdRequest(name, 60_000), INIT))
            }
            sequences = dict.fromkeys(names, 0)

            def transactions(
                link: Link = link,
                producers: dict[str, tuple[int, int]] = producers,
                numbers: dict[str, int] = sequences,
            ) -> int:
                stages: list[list[Frame]] = [[], [], []]
                for name, (id, epoch) in producers.items():
                    topic = AddPartitionsToTxnTopic(TOPIC, [0])
                    stages[0].append(encoded(AddPartitionsToTxnRequest([], name, id, epoch, [topic]), ADD))
                    data = batch_of(1, 100, now_ms(), (id, epoch, numbers[name]))
                    stages[1].append(produce(data, 0, name))
                    stages[2].append(encoded(EndTxnRequest(name, id, epoch, True), END))
                    numbers[name] += 1
                for frames in stages:
                    link.run(frames)
                return len(producers)

            transactions()
            requests.add("AddPartitionsToTxn, Produce, EndTxn", count, cost_us(process, transactions))
            memory.add("resident", count, memory_mb(process.pid))
            start.add("processor time", count, start_cpu_s(process))
    return growth


def record_size(most: int) -> Growth:
    """Measure how costs grow with the size of records."""
    growth = Growth(
        "Record size",
        "record-size",
        "bytes of a record",
        "Up to a few kilobytes, every request costs about the same. The cost of larger records is mostly that of their"
        " bytes: they are copied between socket, memory and page cache, and Produce also verifies their checksum. A"
        " receive buffer above 2 MiB is freed after its request, so the system has to find and clear memory for the"
        " next buffer. This makes the cost of Produce rise faster above 1 MB.",
        [Figure("one record", "µs")],
    )
    (requests,) = growth.figures
    for size in powers(most, least=10):
        with broker() as process, Link(process.address, 120) as link:
            create(link, 1)
            asked = max(20, min(2000, 200_000_000 // (ROUNDS * size) // 5))
            writes = [produce(batch_of(1, size, now_ms()))] * asked
            reads = [fetch(0, size + 200)] * asked
            link.run(writes[:10])
            requests.add("Produce", size, cost_us(process, counted(link, writes)))
            requests.add("Fetch", size, cost_us(process, counted(link, reads)))
    return growth


def log_size(most: int) -> Growth:
    """Measure how costs grow with the size of a partition."""
    growth = Growth(
        "Log size",
        "log-size",
        "MB in one partition",
        "A read finds its position by bisection of an index, then scans at most `log.index.interval.bytes` of batches."
        " Above 1 GB the partition has more than one segment, and the indexes of earlier segments are read when they"
        " are needed. A start after kill -9 reads the batches that were appended to the last segment since the"
        " partition's state was saved.",
        [Figure("a request at a random place", "µs"), Figure("start after kill -9", "s")],
    )
    requests, start = growth.figures
    for size in powers(most):
        with broker() as process, Link(process.address, 120) as link:
            create(link, 1)
            first_ms, per_batch = now_ms() - 10_000_000, 10
            written = size * 1000 // per_batch  # batches of ten records of 1 KB
            for begin in range(0, written, AHEAD):
                many = range(begin, min(begin + AHEAD, written))
                link.run([produce(batch_of(per_batch, 1000, first_ms + number)) for number in many])
            chance = random.Random(size)
            places = [chance.randrange(written) for _ in range(1000)]
            reads = [fetch(place * per_batch, 1000) for place in places]
            looks = [
                encoded(
                    ListOffsetsRequest(
                        -1, 0, [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, first_ms + place)])]
                    ),
                    LIST_OFFSETS,
                )
                for place in places
            ]
            requests.add("Fetch of one batch", size, cost_us(process, counted(link, reads)))
            requests.add("ListOffsets by time", size, cost_us(process, counted(link, looks)))
            start.add("processor time", size, start_cpu_s(process))
    return growth


def counted(link: Link, frames: list[Frame], links: list[Link] | None = None) -> Callable[[], int]:
    """Return a function that runs the frames and returns their number, for `cost_us`."""

    def work() -> int:
        link.run(frames, links)
        return len(frames)

    return work


def powers(most: int, least: int = 1) -> list[int]:
    """Return `least`, ten times `least` and so on, up to `most`, which is always the last number."""
    found = [least]
    while found[-1] * 10 <= most:
        found.append(found[-1] * 10)
    return found if found[-1] == most else [*found, most]


# ---- the page


GROWTHS: Final[dict[str, tuple[Callable[[int], Growth], int]]] = {
    "partitions": (partitions, 10_000),
    "connections": (connections, 5_000),
    "transactional-ids": (transactional_ids, 100_000),
    "record-size": (record_size, 10_000_000),
    "log-size": (log_size, 4_000),
}


def main() -> None:
    """Run the measurements, print the tables, and write the page if this is requested."""
    options = argparse.ArgumentParser(prog="bench.performance", description=__doc__)
    options.add_argument("--only", action="append", choices=sorted(GROWTHS), help="measure only this; may be repeated")
    options.add_argument("--divide", type=int, default=1, help="divide the largest sizes by this, for a short run")
    options.add_argument("--docs", type=Path, help="write performance.md and its plots to this directory")
    chosen = options.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    growths = []
    for name, (measure, most) in GROWTHS.items():
        if chosen.only and name not in chosen.only:
            continue
        begun = time.monotonic()
        growth = measure(max(10, most // chosen.divide))
        growths.append(growth)
        print(f"{growth.title} ({time.monotonic() - begun:.0f} s)\n{table(growth)}", flush=True)
    if chosen.docs:
        for growth in growths:
            draw(growth, chosen.docs / "performance")
        (chosen.docs / "performance.md").write_text(page(growths, AHEAD, ROUNDS))


if __name__ == "__main__":
    main()
