"""Two drivers of one job, as a rolling restart has them: the newer one goes on, the older one ends."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oncelog.pipeline.requirements import java_problem

needs_java = pytest.mark.skipif(java_problem() is not None, reason=str(java_problem()))

JOB = """
name = "rolling"
checkpoint = "{directory}/checkpoint"
trigger = "200 ms"
[options]
"kafka.bootstrap.servers" = "{bootstrap}"
[spark]
"spark.driver.memory" = "500m"
[[source]]
name = "input"
options = {{ subscribe = "{source}", startingOffsets = "earliest" }}
[[sink]]
name = "output"
from = "input"
tasks = 1
options = {{ topic = "{sink}" }}
"""


class Driver:
    """`oncelog pipeline run`, and what it has printed."""

    def __init__(self, job: Path) -> None:
        command = [sys.executable, "-m", "oncelog.cli", "pipeline", "run", str(job), "--master=local[1]"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self._began = time.monotonic()
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, words: str) -> None:
        """Wait until it has printed a line with these words."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(words in line for line in self.lines), timeout=120), self.lines

    def end(self) -> int:
        """Wait until it has ended; the exit code."""
        code = self.process.wait(120)
        self._reader.join(10)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(f"{time.monotonic() - self._began:.1f} s: {line}")
                self._changed.notify_all()


@contextlib.contextmanager
def driver(job: Path) -> Iterator[Driver]:
    running = Driver(job)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.terminate()
            running.process.wait(60)


@needs_java
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rolling_restart_leaves_the_newer_driver_running(topics: Any, tmp_path: Path) -> None:
    source, sink = topics.make("in"), topics.make("out")
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(directory=tmp_path, bootstrap=topics.bootstrap, source=source, sink=sink))
    topics.send(source, range(10))
    with driver(job) as old:
        old.wait_for("output: batch 0, 10 rows")
        owner = topics.owner_of_checkpoint(tmp_path / "checkpoint" / "output")
        with driver(job) as new:
            topics.wait_until(lambda: topics.owner_of_checkpoint(tmp_path / "checkpoint" / "output") != owner)
            topics.send(source, range(10, 20))
            assert old.end() == 3, old.lines
            assert "superseded: a newer driver of this query has started" in old.lines[-1]
            topics.send(source, range(20, 30))
            topics.wait_until(lambda: len(topics.records(sink, settled=False)) == 30)
            new.process.terminate()
            assert new.end() == 0, new.lines
    assert topics.values(sink) == sorted(str(n) for n in range(30))
