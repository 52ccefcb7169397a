"""Run a pipeline job as a process, end its parts with kill -9, and compare its output with its input.

The job reads a topic in small micro-batches, and writes each to two topics in one transaction. At random moments, one
of these is killed: the driver's Python or its JVM, one Python process of Spark (a planner, a task, a commit) or all of
them, the broker, and on a cluster an executor or a worker. The test starts only a dead driver again. All other parts
recover by themselves.
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
from oncelog import KafkaError
from support.pipeline_topics import PipelineTopics, Undecided
from support.spark_archive import java_options
from support.spark_cluster import SparkCluster, is_python, runs

JOB = """
name = "killed"
checkpoint = "${CHECKPOINT}"
master = "${MASTER}"
trigger = "50 ms"
max_restarts = 1000
restart_window = "5 seconds"
[options]
"kafka.bootstrap.servers" = "${BOOTSTRAP}"
"kafka.max.block.ms" = 20000
"kafka.default.api.timeout.ms" = 20000
[spark]
"spark.driver.memory" = "600m"
"spark.driver.extraJavaOptions" = "${JAVA_OPTIONS}"
"spark.executor.memory" = "512m"
"spark.executor.extraJavaOptions" = "${JAVA_OPTIONS}"
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

KINDS = {"driver": 2, "jvm": 2, "worker": 6, "workers": 2, "broker": 4}
"""The targets of kills, with their weights. `worker` is one Python process of Spark, `workers` all of them."""
CLUSTER_KINDS = {"executor": 5, "daemon": 3}
"""Additional targets on a cluster. `daemon` is one of Spark's workers, the parents of the executors."""
IMPATIENT = 0.2
"""The share of kills that do not wait until the job works again."""
STALL_S = 180.0


class KillableBroker(Protocol):
    """The broker to kill: `BrokerProcess` or `ApacheKafka`."""

    @property
    def address(self) -> str: ...
    def kill9(self) -> None: ...
    def start(self) -> Any: ...


class PipelineKills:
    """`with PipelineKills(...) as kills: kills.run(5); kills.verify()`. On local[2], or on `cluster`."""

    def __init__(
        self,
        broker: KillableBroker,
        directory: Path,
        seed: int,
        *,
        cluster: SparkCluster | None = None,
        per_batch: int = 100,
        make_archive: bool = False,
    ) -> None:
        self.broker = broker
        self.directory = directory
        self.cluster = cluster
        self.per_batch = per_batch
        self.random = random.Random(seed)
        self.seed = seed
        self.killed: Counter[str] = Counter()
        self.checked = 0
        self.took_s = 0.0
        self.driver: subprocess.Popen[bytes] | None = None
        self.log = (directory / "driver.log").open("ab")
        self._names = {name: f"{name}-{seed}" for name in ("INPUT", "EVEN", "ODD")}
        self._topics = PipelineTopics(broker.address, self._names, directory / "checkpoint" / "outputs")
        self._java_options = java_options(make_archive=make_archive)
        self._jvm: psutil.Process | None = None
        (directory / "job.toml").write_text(JOB)

    def __enter__(self) -> PipelineKills:
        asyncio.run(self._topics.make())
        return self

    def __exit__(self, *_: object) -> None:
        if self.driver is not None:
            for process in self._children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self.driver.kill()
            self.driver.wait()
        self.log.close()

    def __str__(self) -> str:
        what = ", ".join(f"{kind} {count}" for kind, count in sorted(self.killed.items()))
        where = "cluster" if self.cluster is not None else "local[2]"
        return (
            f"{where}, {type(self.broker).__name__}, seed {self.seed}: {self.killed.total()} kills ({what}) in "
            f"{self.took_s:.0f} s, {self._topics.rows:,} rows, checkpoint and sink compared {self.checked} times"
        )

    def run(self, kills: int) -> None:
        """Kill `kills` times while the job works, wait until all rows have come out, and stop the job."""
        began = time.monotonic()
        self._start_driver()
        while self.killed.total() < kills:
            self._wait_for_a_moment()
            self._kill()
        self._feed(2 * self.per_batch)
        self._wait_for_rows(self._topics.rows)
        assert self.driver is not None
        self.driver.send_signal(signal.SIGTERM)
        assert self.driver.wait(90) == 0, self._told("the job does not end cleanly")
        self.took_s = time.monotonic() - began

    def verify(self) -> None:
        """Check that every row is there once, in the right topic and partition, and as the checkpoint says.

        Also check that no transaction is open.
        """
        try:
            asyncio.run(self._topics.check_end())
        except AssertionError as wrong:
            raise AssertionError(self._told(str(wrong))) from wrong
        self.checked += 1

    # -- when

    def _wait_for_a_moment(self) -> None:
        """Wait for some time into a batch after the job works again, or at times only for its recovery to begin."""
        if self.random.random() < IMPATIENT:
            self._wait_for_rows(self._count() + 1, at_most_s=self.random.uniform(0.0, 6.0))
        else:
            self._wait_for_rows(self._count() + 1)
            time.sleep(self.random.uniform(0.0, 0.8))

    def _wait_for_rows(self, rows: int, at_most_s: float | None = None) -> None:
        began = time.monotonic()
        while (count := self._count()) < rows:
            waited = time.monotonic() - began
            if at_most_s is not None and waited > at_most_s:
                return
            assert waited < STALL_S, self._told(f"hangs: {count} of {self._topics.rows} rows for {waited:.0f} s")
            self._revive()
            if rows > self._topics.rows or (
                rows < self._topics.rows and count + 3 * self.per_batch > self._topics.rows
            ):
                self._feed(5 * self.per_batch)
            time.sleep(0.1)

    # -- killing

    def _kill(self) -> None:
        """End a process that exists now with kill -9."""
        kinds = KINDS if self.cluster is None else KINDS | CLUSTER_KINDS
        victims = self._victims()
        possible = {kind: weight for kind, weight in kinds.items() if kind == "broker" or victims.get(kind)}
        kind = self.random.choices(list(possible), list(possible.values()))[0]
        self._note(f"kill {kind}")
        if kind == "broker":
            self.broker.kill9()
            self.broker.start()
        else:
            found = victims[kind]
            for process in found if kind == "workers" else [self.random.choice(found)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.killed[kind] += 1
        self._revive()

    def _victims(self) -> dict[str, list[psutil.Process]]:
        assert self.driver is not None
        children = self._children()
        elsewhere = [] if self.cluster is None else self.cluster.processes()
        python = [one for one in [*children, *elsewhere] if is_python(one)]
        found = {
            "jvm": [one for one in children if runs(one, "SparkSubmit")],
            "worker": python,
            "workers": python,
        }
        if self.driver.poll() is None:
            found["driver"] = [psutil.Process(self.driver.pid)]
        if self.cluster is not None:
            found |= {"executor": self.cluster.executors(), "daemon": self.cluster.daemons()}
        return found

    def _children(self) -> list[psutil.Process]:
        assert self.driver is not None
        try:
            return list(psutil.Process(self.driver.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    # -- the driver

    def _revive(self) -> None:
        """Start the driver again if it has ended, after a comparison of the checkpoint with the output."""
        assert self.driver is not None
        if self.driver.poll() is None:
            if self._jvm is None:
                self._jvm = next((one for one in self._children() if runs(one, "SparkSubmit")), None)
            return
        if self._jvm is not None and not self._jvm.is_running():
            # If the JVM still runs, it outlives the driver's Python a little and may commit. Then nothing is compared,
            # so that the next driver starts beside it.
            with contextlib.suppress(Undecided, KafkaError, OSError, TimeoutError):
                asyncio.run(self._topics.check(timeout_ms=5000))
                self.checked += 1
        self._start_driver()

    def _start_driver(self) -> None:
        command = [sys.executable, "-m", "oncelog.cli", "pipeline", "run", str(self.directory / "job.toml")]
        variables = {
            **self._names,
            "BOOTSTRAP": self.broker.address,
            "CHECKPOINT": str(self.directory / "checkpoint"),
            "PER_BATCH": str(self.per_batch),
            "MASTER": "local[2]" if self.cluster is None else self.cluster.url,
            "JAVA_OPTIONS": self._java_options,
        }
        for name, value in variables.items():
            command += ["--var", f"{name}={value}"]
        self._note("start of the driver")
        self._jvm = None
        self.driver = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=dict(os.environ))

    def _note(self, what: str) -> None:
        self.log.write(f"--- {time.strftime('%H:%M:%S')} {what}; so far {dict(self.killed)}\n".encode())
        self.log.flush()

    def _told(self, what: str) -> str:
        """Return a message about a failure, with the last output of the driver."""
        last = (self.directory / "driver.log").read_bytes()[-3000:].decode(errors="replace")
        return f"{what}\n{self}\n{self.directory}/driver.log ends with:\n{last}"

    # -- looking

    def _count(self) -> int:
        return asyncio.run(self._topics.count())

    def _feed(self, more: int) -> None:
        asyncio.run(self._topics.feed(more))
