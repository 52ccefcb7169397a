"""Run `oncelog pipeline cluster` as a process, and find the processes of the cluster."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from oncelog.demo.processes import ChildProcess

START_TIMEOUT_S = 120.0


class SparkCluster(ChildProcess):
    """A master and two workers of one core: `with SparkCluster(directory) as cluster: cluster.url`."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        given = ["pipeline", "cluster", "--port", "0", "--directory", str(directory / "cluster"), *arguments]
        super().__init__("oncelog.cli", given, directory / "cluster.log")
        self.url = ""

    def __enter__(self) -> Self:
        self.spawn()
        try:
            line = self.read_line(START_TIMEOUT_S)
            ready, _, self.url = line.partition(" ")
            assert ready == "ready", line
        except BaseException:
            self.terminate()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        everything = self.processes()
        code = self.terminate()
        left = [one for one in psutil.wait_procs(everything, timeout=5)[1] if one.is_running()]
        if kind is None:
            assert code == 0, f"the cluster ended with {code}: {self.last_words()}"
            assert not left, f"the cluster left {left} behind"

    def processes(self) -> list[psutil.Process]:
        """Return all processes below it: daemons, executors, and their Python processes."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return list(psutil.Process(self.pid).children(recursive=True))
        return []

    def daemons(self) -> list[psutil.Process]:
        """Return Spark's workers."""
        return [one for one in self.processes() if runs(one, "org.apache.spark.deploy.worker.Worker")]

    def executors(self) -> list[psutil.Process]:
        """Return the executors of all applications."""
        return [one for one in self.processes() if runs(one, "executor.CoarseGrainedExecutorBackend")]


def runs(process: psutil.Process, name: str) -> bool:
    """Return whether a process is a JVM whose main class ends with `name`. A process that has ended is not."""
    try:
        command = process.cmdline()
    except psutil.Error:
        return False
    return bool(command) and command[0].endswith("java") and any(one.endswith(name) for one in command)


def is_python(process: psutil.Process) -> bool:
    """Return whether a process is one of Spark's Python processes."""
    try:
        name: str = process.name()
        return name.startswith("python")
    except psutil.Error:
        return False
