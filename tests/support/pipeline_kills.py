"""A pipeline job as a process, and kill -9 of its parts: what comes out is held against what went in.

The job reads a topic in small micro-batches and writes each to two topics in one transaction. Killed are, at random
moments: the driver's Python and its JVM, one Python worker (a planner, a task, a commit) or all, and the broker. A
driver that died is started again; everything else mends itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import psutil
from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition

JOB = """
name = "killed"
checkpoint = "${CHECKPOINT}"
master = "${MASTER:-local[2]}"
trigger = "50 ms"
max_restarts = 1000
[options]
"kafka.bootstrap.servers" = "${BOOTSTRAP}"
"kafka.max.block.ms" = 20000
"kafka.default.api.timeout.ms" = 20000
[spark]
"spark.driver.memory" = "600m"
"spark.sql.shuffle.partitions" = "2"
[[source]]
name = "input"
options = { subscribe = "${INPUT}", startingOffsets = "earliest", maxOffsetsPerTrigger = "${PER_BATCH}" }
[[transform]]
name = "routed"
sql = "SELECT key, value, if(crc32(value) % 2 = 0, '${EVEN}', '${ODD}') AS topic FROM input"
[[sink]]
name = "outputs"
from = "routed"
"""

PARTITIONS = 3
KINDS = ("driver", "jvm", "worker", "workers", "broker")


class KillableBroker(Protocol):
    """What is killed: `BrokerProcess` or `ApacheKafka`."""

    @property
    def address(self) -> str: ...
    def kill9(self) -> None: ...
    def start(self) -> Any: ...


class PipelineKills:
    """`with PipelineKills(...) as kills: kills.run(5); kills.verify()`."""

    def __init__(self, broker: KillableBroker, directory: Path, seed: int, *, rows: int, per_batch: int = 100) -> None:
        self.broker = broker
        self.directory = directory
        self.rows = 0
        self._first_rows = rows
        self.per_batch = per_batch
        self.random = random.Random(seed)
        self.killed: Counter[str] = Counter()
        self.names = {name: f"{name}-{seed}" for name in ("INPUT", "EVEN", "ODD")}
        self.driver: subprocess.Popen[bytes] | None = None
        self.log = (directory / "driver.log").open("ab")
        self.seed = seed
        (directory / "job.toml").write_text(JOB)

    def __enter__(self) -> PipelineKills:
        asyncio.run(self._prepare(self._first_rows))
        return self

    def __exit__(self, *_: object) -> None:
        if self.driver is not None:
            self._kill_tree()
        self.log.close()

    def run(self, kills: int, timeout_s: float = 600) -> None:
        """Kill so many times while the job works, then wait until everything has come out."""
        deadline = time.monotonic() + timeout_s
        self._start_driver()
        done, before = 0, 0
        while (count := self._count()) < self.rows or done < kills:
            if done < kills and self.rows - count < 3 * self.per_batch:
                asyncio.run(self._feed(10 * self.per_batch))
            assert time.monotonic() < deadline, f"seed {self.seed}: {count} of {self.rows} rows came out in time"
            # Mostly while the job works again after the last kill, sometimes while it still mends itself.
            if done < kills and (count > before or self.random.random() < 0.01):
                before = count
                time.sleep(self.random.uniform(0.0, 1.5))
                if self._kill(self.random.choice(KINDS)):
                    done += 1
            else:
                time.sleep(0.2)
            self._revive()
        assert self.driver is not None
        self.driver.send_signal(signal.SIGTERM)
        assert self.driver.wait(90) == 0, "the job does not end cleanly"

    def verify(self) -> None:
        """Every row once, in the topic and partition where it belongs, and no transaction open."""
        found = asyncio.run(self._read())
        wanted = Counter(f"{number:06}" for number in range(self.rows))
        lost, doubled = wanted - found, found - wanted
        assert not lost, f"seed {self.seed}: lost {sorted(lost)[:10]} ({len(lost)})"
        assert not doubled, f"seed {self.seed}: doubled {sorted(doubled)[:10]} ({len(doubled)})"

    # -- killing

    def _kill(self, kind: str) -> bool:
        """Kill -9 one process; False if there is none of the kind now."""
        assert self.driver is not None
        if kind == "broker":
            self.broker.kill9()
            self.broker.start()
        elif self.driver.poll() is not None:
            return False
        elif kind == "driver":
            self.driver.kill()
        else:
            found = self._processes("java" if kind == "jvm" else "python")
            if not found:
                return False
            for process in found if kind == "workers" else [self.random.choice(found)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.killed[kind] += 1
        return True

    def _processes(self, name: str) -> list[psutil.Process]:
        assert self.driver is not None
        try:
            children = psutil.Process(self.driver.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        found = []
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.name().startswith(name):
                    found.append(child)
        return found

    def _kill_tree(self) -> None:
        for process in [*self._processes("java"), *self._processes("python")]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        assert self.driver is not None
        self.driver.kill()
        self.driver.wait()

    def _revive(self) -> None:
        assert self.driver is not None
        if self.driver.poll() is not None:
            self._start_driver()

    def _start_driver(self) -> None:
        command = [sys.executable, "-m", "oncelog.cli", "pipeline", "run", str(self.directory / "job.toml")]
        variables = {
            **self.names,
            "BOOTSTRAP": self.broker.address,
            "CHECKPOINT": str(self.directory / "checkpoint"),
            "PER_BATCH": str(self.per_batch),
        }
        for name, value in variables.items():
            command += ["--var", f"{name}={value}"]
        self.log.write(f"--- driver, killed so far {dict(self.killed)}\n".encode())
        self.log.flush()
        self.driver = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=dict(os.environ))

    # -- looking

    def _count(self) -> int:
        """Rows that are committed, 0 while nobody can tell."""
        try:
            return sum(asyncio.run(self._read(timeout_ms=3000)).values())
        except Exception:
            return 0

    async def _prepare(self, rows: int) -> None:
        async with Admin(bootstrap_servers=self.broker.address) as admin:
            await admin.create_topics([NewTopic(name, PARTITIONS) for name in self.names.values()])
        await self._feed(rows)

    async def _feed(self, more: int) -> None:
        """Send the next rows."""
        async with Producer(bootstrap_servers=self.broker.address) as producer:
            for number in range(self.rows, self.rows + more):
                await producer.enqueue(self.names["INPUT"], f"{number:06}".encode(), key=f"{number % 97}".encode())
            await producer.flush()
        self.rows += more

    async def _read(self, timeout_ms: int = 30_000) -> Counter[str]:
        found: Counter[str] = Counter()
        everything = [TopicPartition(self.names[name], one) for name in ("EVEN", "ODD") for one in range(PARTITIONS)]
        async with (
            asyncio.timeout(timeout_ms / 1000),
            Consumer(
                bootstrap_servers=self.broker.address,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                default_api_timeout_ms=timeout_ms,
                request_timeout_ms=timeout_ms,
            ) as consumer,
        ):
            consumer.assign(everything)
            ends = await consumer.end_offsets(everything)
            while any([await consumer.position(one) < ends[one] for one in everything]):
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    found.update(record.value.decode() for record in records if record.value is not None)
        return found
