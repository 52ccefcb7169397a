"""Compare oncelog's connect worker with Kafka Connect 4.1 (`python -m bench.connect`, needs java 17 and mvn).

Both run FileStreamSource with exactly-once support on the same oncelog broker, one after the other in each round, and
each time in a new group with new topics. Each worker copies a file of lines of 100 bytes. Kafka Connect's JVM has the
options that the script `connect-distributed.sh` gives it. oncelog's modules are compiled to bytecode beforehand, as
an installation with pip does. The table has the medians of the rounds, and the median, the lowest and the highest
ratio of a round.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import oncelog
import psutil
import uvloop
from oncelog import Admin, Consumer, NewTopic
from oncelog.demo.processes import BrokerProcess
from support.connect_workers import ANSWER_S, Group, group

from .rounds import show_ratios

LINE_BYTES = 100
OURS, JAVA = "oncelog", "Kafka Connect"
SETTINGS = {
    **{f"{part}.converter": "org.apache.kafka.connect.storage.StringConverter" for part in ("key", "value")},
    "offset.flush.interval.ms": "1000",
}
JVM = (
    *("-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
FOLDERS = ("auth", "cli", "client", "connect", "protocol", "settings")
"""The folders of the package that a worker imports."""

LESS_IS_BETTER = " (less is better)"


class Reader:
    """A read_committed consumer of a topic with one partition. It looks up the partition before the block begins."""

    def __init__(self, address: str, topic: str) -> None:
        self._consumer = Consumer(
            bootstrap_servers=address,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            max_poll_records=10_000,
        )
        self._topic = topic
        self.count = 0

    async def __aenter__(self) -> Reader:
        await self._consumer.start()
        self._consumer.assign([(self._topic, 0)])
        await self._consumer.poll(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.close()

    async def until(self, count: int, limit_s: float) -> float:
        """Return the time at which `count` records had arrived."""
        async with asyncio.timeout(limit_s):
            while self.count < count:
                self.count += len(await self._consumer.poll(1000))
        return time.monotonic()


async def measure(peer: str, workers: Group, topic: str, source: Path, lines: int) -> dict[str, float]:
    """Run a worker with one connector; return the figures by name."""
    begun = time.monotonic()
    worker = await (workers.add_process() if peer == OURS else workers.add_java({}, *JVM))
    process = psutil.Process(worker.pid)
    rest = workers.rest(worker)
    async with Reader(workers.settings["bootstrap.servers"], topic) as reader:
        put = time.monotonic()
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(source),
            "topic": topic,
            "tasks.max": "1",
            "batch.size": "2000",
            "exactly.once.support": "required",
        }
        status, answer = await rest.settled("PUT", f"/connectors/{topic}/config", config)
        assert status == 201, answer
        first = await reader.until(1, ANSWER_S)
        fresh = process.memory_info().rss / 1e6
        before = process.cpu_times()
        end = await reader.until(lines, 10 * ANSWER_S)
        after = process.cpu_times()
    assert reader.count == lines, f"{reader.count} records of {lines} lines"
    used_s = after.user + after.system - before.user - before.system
    return {
        f"start to first record, s{LESS_IS_BETTER}": first - begun,
        f"PUT to first record, s{LESS_IS_BETTER}": first - put,
        "thousand records/s": lines / (end - first) / 1000,
        f"processor ms per thousand records{LESS_IS_BETTER}": 1e6 * used_s / lines,
        f"memory at the first record, MB{LESS_IS_BETTER}": fresh,
        f"memory at the end, MB{LESS_IS_BETTER}": process.memory_info().rss / 1e6,
    }


async def compare(rounds: int, lines: int) -> dict[str, dict[str, list[float]]]:
    """Return the figures of all rounds, by name and worker."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="oncelog-connect-") as directory:
        home = Path(directory)
        source = home / "lines.txt"
        source.write_text("".join(f"{number:0{LINE_BYTES - 1}}\n" for number in range(lines)))
        with BrokerProcess(home / "broker") as broker:
            for number in range(rounds):
                for peer in (OURS, JAVA) if number % 2 else (JAVA, OURS):
                    topic = f"{peer.split()[0].lower()}-{number}"
                    async with Admin(bootstrap_servers=broker.address) as admin:
                        await admin.create_topics([NewTopic(topic, 1, 1)])
                    async with group(broker.address, f"group-{topic}", home, SETTINGS) as workers:
                        figures = await measure(peer, workers, topic, source, lines)
                    for name, value in figures.items():
                        values[name][peer].append(value)
    return values


def main() -> None:
    """Run all rounds and print the table."""
    options = argparse.ArgumentParser(prog="bench.connect", description=__doc__)
    options.add_argument("--rounds", type=int, default=5, help="runs of each worker (default 5)")
    options.add_argument("--lines", type=int, default=1_000_000, help="lines of the file (default 1,000,000)")
    chosen = options.parse_args()
    for folder in FOLDERS:
        assert compileall.compile_dir(Path(oncelog.__file__).parent / folder, quiet=1)
    what = f"FileStreamSource, exactly once, {chosen.lines:,} lines of {LINE_BYTES} bytes"
    values = uvloop.run(compare(chosen.rounds, chosen.lines))
    show_ratios(f"{what}: medians of {chosen.rounds} alternating rounds", (OURS, JAVA), values, digits=2)


if __name__ == "__main__":
    main()
