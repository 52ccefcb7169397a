"""Measure what the journal saves: syncs, time and CPU per transaction (`python -m bench.journal`).

The load comes from transactional producers that also commit offsets. The broker runs in a separate process, which
counts its calls to fdatasync. Runs with and without the journal alternate, each in a fresh data directory on the file
system of `--directory`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import uvloop
from oncelog.broker.node import BrokerNode
from oncelog.broker.system.ports import RealFile, RealFileSystem
from rich.console import Console
from rich.table import Table

from .cases import transactions_with_offsets

WARM_UP = 5
"""Transactions of each producer that are not measured."""


class Counter:
    """The number of syncs of a process; they come from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def add(self) -> None:
        with self._lock:
            self.count += 1


class CountedFile(RealFile):
    """A file whose syncs are counted."""

    syncs = Counter()

    def fdatasync(self) -> None:
        self.syncs.add()
        super().fdatasync()


class CountingFileSystem(RealFileSystem):
    """The file system of the operating system, with `CountedFile`s."""

    def open(self, path: str, *, create: bool = False) -> CountedFile:
        file = super().open(path, create=create)
        return CountedFile(file._fd)


async def serve(directory: str, journal_bytes: int) -> None:
    """Run a broker until stdin is closed. After each line of stdin, print the syncs and CPU seconds so far."""
    broker = BrokerNode(directory, {"log.journal.bytes": journal_bytes}, fs=CountingFileSystem())
    await broker.start()
    print(broker.address, flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps([CountedFile.syncs.count, time.process_time()]), flush=True)
    await broker.stop()


COLUMNS = ("fdatasyncs per transaction", "transactions/s", "p50 ms", "p99 ms", "worst ms", "CPU ms per transaction")


def run(directory: str, journal_bytes: int, producers: int, each: int) -> list[float]:
    """Run the load on a new broker, and return the figures that `COLUMNS` names."""
    with tempfile.TemporaryDirectory(dir=directory) as data:
        command = (sys.executable, "-m", "bench.journal", "--serve", data, str(journal_bytes))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
            assert broker.stdin is not None
            assert broker.stdout is not None
            address = broker.stdout.readline().strip()

            def counted() -> tuple[int, float]:
                assert broker.stdin is not None
                assert broker.stdout is not None
                print(file=broker.stdin, flush=True)
                syncs, cpu_s = json.loads(broker.stdout.readline())
                return syncs, cpu_s

            transactions_with_offsets(address, producers, WARM_UP)
            before = counted()
            took, latencies = transactions_with_offsets(address, producers, each)
            after = counted()
            broker.stdin.close()
            latencies.sort()
            count = producers * (each + 1)
            return [
                (after[0] - before[0]) / count,
                len(latencies) / took,
                *(1000 * latencies[min(int(share * len(latencies)), len(latencies) - 1)] for share in (0.5, 0.99, 1)),
                1000 * (after[1] - before[1]) / count,
            ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.journal", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--producers", type=int, default=50)
    parser.add_argument("--transactions", type=int, default=100, help="of each producer")
    parser.add_argument("--journal-bytes", type=int, default=16 << 20)
    parser.add_argument("--directory", default=".build", help="where the data directories are made")
    parser.add_argument("--serve", nargs=2, metavar=("DIRECTORY", "JOURNAL_BYTES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(options.serve[0], int(options.serve[1])))
        return
    results: dict[str, list[list[float]]] = {"off": [], "on": []}
    for _ in range(options.runs):
        for name, journal_bytes in (("off", 0), ("on", options.journal_bytes)):
            results[name].append(run(options.directory, journal_bytes, options.producers, options.transactions))
            print(name, *(f"{value:.2f}" for value in results[name][-1]), file=sys.stderr, flush=True)
    table = Table("journal", *COLUMNS, title=f"{options.producers} producers, medians")
    for name, rows in results.items():
        table.add_row(name, *(f"{statistics.median(column):.2f}" for column in zip(*rows, strict=True)))
    Console().print(table)


if __name__ == "__main__":
    main()
