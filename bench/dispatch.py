"""Measure the CPU time of a request and of an append in one process, without sockets (`python bench/dispatch.py`).

With `--beside CHECKOUT`, another checkout of the project is measured in alternation (A B A B). This shows the
cost of a change even on a busy machine. Each figure is the least CPU time of a call in µs, over many rounds of many
calls, with durability os.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
CALLS = 200


class Peer:
    """A stand-in for the connection of a request."""

    def __init__(self) -> None:
        self.id = 1
        self.listener = "PLAINTEXT"
        self.peer_host = "127.0.0.1"
        self.local_address = ("127.0.0.1", 9092)
        self.state: dict[str, Any] = {}
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer_allowance = 100_000_000

    def close(self, reason: str) -> None:
        """Raise RuntimeError, because the broker must not close the connection."""
        raise RuntimeError(reason)


class Bench:
    """A running broker, and the least CPU time of each case in µs."""

    def __init__(self, broker: Any, only: str) -> None:
        self.broker = broker
        self.peer = Peer()
        self.least: dict[str, float] = {}
        self.only = only

    def note(self, name: str, begun: float, calls: int = CALLS) -> None:
        """Record the CPU time per call since `begun` if it is the least of the case."""
        took = (time.process_time() - begun) / calls * 1e6
        self.least[name] = min(took, self.least.get(name, took))

    def repeat(self, name: str, call: Callable[[], object], calls: int = CALLS) -> None:
        """Measure `calls` calls of `call` as one sample of the case `name`, unless `only` excludes the case."""
        if self.only in name:
            begun = time.process_time()
            for _ in range(calls):
                call()
            self.note(name, begun, calls)

    def answer(self, frame: memoryview) -> Any:
        """Execute the request in `frame`, and encode its response; return the response.

        The request must not need to wait.
        """
        dispatcher = self.broker.dispatcher
        exchange = dispatcher.accept(self.peer, frame)
        reply = dispatcher.execute(exchange)
        if not hasattr(reply, "spec"):
            reply = dispatcher.conclude(exchange, reply, None, None)
        dispatcher.encode(exchange, reply)
        return reply

    async def answered(self, frame: memoryview) -> Any:
        """Execute the request in `frame`, wait if necessary, and encode its response; return the response."""
        dispatcher = self.broker.dispatcher
        exchange = dispatcher.accept(self.peer, frame)
        reply = dispatcher.execute(exchange)
        if isinstance(reply, Coroutine):
            reply = await reply
        if not hasattr(reply, "spec"):
            outcome = None if reply.awaitable is None else await reply.awaitable
            reply = dispatcher.conclude(exchange, reply, outcome, None)
        dispatcher.encode(exchange, reply)
        return reply


def frame_of(request: Any, version: int) -> memoryview:
    """Return the frame of an encoded request."""
    from oncelog.protocol.framing import encode_request

    return memoryview(bytearray(b"".join(encode_request(request, version, 1, "bench"))[4:]))


def batch_of(
    count: int, size: int, codec: int = 0, varied: bool = False, producer: tuple[int, int, int] | None = None
) -> bytearray:
    """Return a batch of `count` records of about `size` bytes."""
    from oncelog.protocol.batch_header import assemble_batch
    from oncelog.protocol.compression import Compression, compress
    from oncelog.protocol.records import encode_record

    text = bytes(97 + i * 31 % 26 for i in range(2 * size))
    records = []
    for number in range(count):
        length = size - number * 37 % (size // 2) if varied else size
        records.append(encode_record(0, number, b"key-%06d" % number, text[number % size :][:length]))
    payload = b"".join(records)
    now = int(time.time() * 1000)
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    return bytearray(
        assemble_batch(
            compress(Compression(codec), payload) if codec else payload,
            base_offset=0,
            leader_epoch=-1,
            attributes=codec | (0x10 if producer else 0),
            last_offset_delta=count - 1,
            base_timestamp=now,
            max_timestamp=now,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            record_count=count,
        )
    )


# ---- the cases


async def requests(bench: Bench) -> Callable[[], None]:
    """Prepare Produce, Fetch and Metadata requests; return a function that measures them."""
    from oncelog.protocol.messages import fetch, metadata, produce

    def producing(count: int, size: int, partitions: int = 1) -> memoryview:
        rows = [produce.PartitionProduceData(index, batch_of(count, size)) for index in range(partitions)]
        topics = [produce.TopicProduceData("ten", partition_data=rows)]
        return frame_of(produce.ProduceRequest(None, -1, 30_000, topics), 11)

    def fetching(partitions: int, topic: str = "ten", size: int = 300, **options: Any) -> memoryview:
        rows = [fetch.FetchPartition(index, fetch_offset=0, partition_max_bytes=size) for index in range(partitions)]
        topics = [fetch.FetchTopic(topic, partitions=rows)]
        options = {"max_wait_ms": 500, **options}
        request = fetch.FetchRequest(min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics, **options)
        return frame_of(request, 11)

    asked = [metadata.MetadataRequestTopic(name="ten")]
    frames = {
        "Produce, 1 record": producing(1, 100),
        "Produce, 16 x 100 B": producing(16, 100),
        "Produce, 10 partitions": producing(1, 100, 10),
        "Fetch, 1 partition": fetching(1),
        "Fetch, 10 partitions": fetching(10),
        "Fetch, 100 empty partitions": fetching(100, "hundred", max_wait_ms=0),
        "Fetch, 1 MB": fetching(1, "large", 1 << 20),
        "Metadata, 10 partitions": frame_of(metadata.MetadataRequest(asked, allow_auto_topic_creation=False), 9),
    }
    bench.answer(frames["Produce, 10 partitions"])
    for _ in range(100):
        bench.broker.replica_manager.partition("large", 0).log.append(batch_of(16, 1000))
    parts = bench.answer(frames["Fetch, 10 partitions"]).responses[0].partitions
    assert all(part.error_code == 0 and part.records for part in parts), parts

    def run() -> None:
        for name, frame in frames.items():
            bench.repeat(name, lambda frame=frame: bench.answer(frame))  # type: ignore[misc]

    return run


async def appends(bench: Bench) -> Callable[[], None]:
    """Prepare batches; return a function that measures their appends to a log."""
    batches = {
        "append 1 x 100 B": (batch_of(1, 100), CALLS),
        "append 16 x 1 KB": (batch_of(16, 1000), CALLS),
        "append 16 x 1 KB, sizes vary": (batch_of(16, 1000, varied=True), CALLS),
        "append 1 MB of 1 KB": (batch_of(1000, 1000), 5),
        "append 1 MB, sizes vary": (batch_of(1300, 1000, varied=True), 5),
        "append 16 x 1 KB, lz4": (batch_of(16, 1000, 3), CALLS),
        "append 1 MB, lz4": (batch_of(1000, 1000, 3), 5),
        "append 1 MB, zstd": (batch_of(1000, 1000, 4), 5),
        "append 1 MB, gzip": (batch_of(1000, 1000, 1), 2),
        "append 1 MB, snappy": (batch_of(1000, 1000, 2), 5),
    }
    log = bench.broker.replica_manager.partition("one", 0).log

    def append(batch: bytearray) -> None:
        """Append a batch as the Produce handler does, which inspects the batch first."""
        if hasattr(log, "inspection_of"):
            inspection = log.inspection_of(batch)
            assert inspection.begin(), "the batch must be small enough to be checked at once"
            log.append(batch, inspection=inspection)
        else:
            log.append(batch)

    def run() -> None:
        for name, (batch, calls) in batches.items():
            bench.repeat(name, lambda batch=batch: append(batch), calls)  # type: ignore[misc]

    return run


async def transactions(bench: Bench) -> Callable[[], Coroutine[Any, Any, None]]:
    from oncelog.protocol.messages import (
        add_offsets_to_txn,
        add_partitions_to_txn,
        end_txn,
        init_producer_id,
        produce,
        txn_offset_commit,
    )

    async def run() -> None:
        if bench.only not in "transactions":
            return
        count = 50
        producers = []
        for number in range(count):
            init = init_producer_id.InitProducerIdRequest(f"t{number}", 60_000)
            answer = await bench.answered(frame_of(init, 4))
            assert not answer.error_code, answer
            producers.append((f"t{number}", answer.producer_id, answer.producer_epoch))
        stages: dict[str, list[memoryview]] = {}

        def stage(name: str, version: int, make: Callable[[str, int, int], Any]) -> None:
            stages[name] = [frame_of(make(*producer), version) for producer in producers]

        def producing(name: str, id: int, epoch: int) -> produce.ProduceRequest:
            rows = [produce.PartitionProduceData(0, batch_of(1, 100, producer=(id, epoch, 0)))]
            return produce.ProduceRequest(name, -1, 30_000, [produce.TopicProduceData("ten", partition_data=rows)])

        topic = add_partitions_to_txn.AddPartitionsToTxnTopic("ten", [0, 1])
        offsets = [txn_offset_commit.TxnOffsetCommitRequestPartition(index, 5, -1, "") for index in range(2)]
        stage(
            "AddPartitionsToTxn",
            3,
            lambda name, id, epoch: add_partitions_to_txn.AddPartitionsToTxnRequest([], name, id, epoch, [topic]),
        )
        stage("Produce, transactional", 11, producing)
        stage(
            "AddOffsetsToTxn",
            3,
            lambda name, id, epoch: add_offsets_to_txn.AddOffsetsToTxnRequest(name, id, epoch, "g"),
        )
        stage(
            "TxnOffsetCommit",
            3,
            lambda name, id, epoch: txn_offset_commit.TxnOffsetCommitRequest(
                name, "g", id, epoch, topics=[txn_offset_commit.TxnOffsetCommitRequestTopic("ten", offsets)]
            ),
        )
        stage("EndTxn", 3, lambda name, id, epoch: end_txn.EndTxnRequest(name, id, epoch, True))
        for name, frames in stages.items():
            begun = time.process_time()
            for frame in frames:
                answer = await bench.answered(frame)
                assert not getattr(answer, "error_code", 0), answer
            bench.note(name, begun, count)

    return run


# ---- one process


async def measure(rounds: int, only: str) -> dict[str, float]:
    """Measure all cases with a new broker; return the least CPU times by case, in µs."""
    from oncelog.broker.node import BrokerNode

    settings: dict[str, Any] = {"durability": "os", "log_segment_bytes": 20_000_000, "log_retention_bytes": 20_000_000}
    async with BrokerNode(logging_level="error", **settings) as broker:
        for name, partitions in (("one", 1), ("ten", 10), ("hundred", 100), ("large", 1)):
            await broker.metadata.create_topic(name, partitions, {})
            for index in range(partitions):
                assert broker.replica_manager.partition(name, index).log is not None, "the access opens the log"
        bench = Bench(broker, only)
        cases = [await make(bench) for make in (requests, appends, transactions)]
        gc.collect()
        gc.freeze()
        for _ in range(rounds):
            for case in cases:
                outcome = case()
                if outcome is not None:
                    await outcome
            await asyncio.sleep(0)
    return bench.least


def in_process_of(checkout: Path, rounds: int, only: str) -> dict[str, float]:
    """Measure a checkout of the project in a separate process; return the least CPU times by case, in µs."""
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as path:
        Path(path, "oncelog").symlink_to(checkout)
        command = [sys.executable, str(HERE), "--child", "--rounds", str(rounds), "--only", only]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=True)
    least: dict[str, float] = json.loads(done.stdout)
    return least


def main() -> None:
    options = argparse.ArgumentParser(prog="dispatch", description=__doc__)
    options.add_argument("--beside", type=Path, action="append", default=[], help="another checkout; may be repeated")
    options.add_argument("--turns", type=int, default=3, help="processes per checkout (default 3)")
    options.add_argument("--rounds", type=int, default=15, help="rounds of calls per process (default 15)")
    options.add_argument("--only", default="", help="only cases whose name contains this text")
    options.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.child:
        print(json.dumps(asyncio.run(measure(chosen.rounds, chosen.only))))
        return
    checkouts = [*(path.resolve() for path in chosen.beside), HERE.parent.parent]
    least: list[dict[str, float]] = [{} for _ in checkouts]
    for _ in range(chosen.turns):
        for column, checkout in zip(least, checkouts, strict=True):
            for name, took in in_process_of(checkout, chosen.rounds, chosen.only).items():
                column[name] = min(took, column.get(name, took))
    print(f"{'least CPU time of a call, µs':32}" + "".join(f"{path.name:>14}" for path in checkouts))
    for name in least[-1]:
        print(f"{name:32}" + "".join(f"{column.get(name, 0):14.1f}" for column in least))


if __name__ == "__main__":
    main()
