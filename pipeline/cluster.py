"""Run a Spark standalone cluster on this machine: one master and several workers from pyspark's package, on 127.0.0.1.

The cluster starts its processes in order, reports when they are ready, restarts workers that have ended, and at the end
stops every process that it started. It listens only on loopback. It does not know which applications run on it.

Invariant: after `stop` returns, no process that this cluster started is running.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from .spark_home import light_home

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 8.0
POLL_S: Final = 0.1
MAX_RESTARTS: Final = 10
RESTART_WINDOW_S: Final = 60.0
DAEMON_MEMORY: Final = "256m"
# The daemons are nearly always idle. They need a cheap start and little memory, not the speed of compiled code.
DAEMON_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

_MASTER_IS_UP: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_IS_UP: Final = re.compile(r"Successfully registered with master")
_NEWS: Final = (
    (re.compile(r"Registered app (.+) with ID (\S+)"), "application {0} begins as {1}"),
    (re.compile(r"Launching executor (\S+) on worker"), "executor {0} starts"),
    (re.compile(r"Removing app (\S+)"), "application {0} has ended"),
)
_WHY: Final = re.compile(r"(Exception|Error)\b.*: |ERROR |\berror\b", re.IGNORECASE)


class ClusterError(RuntimeError):
    """The cluster cannot start or continue. The message says why and what to do."""


class Daemon:
    """One of Spark's processes, with its log in a file. It can be started again after it has ended."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.ready = False
        self.restarts: deque[float] = deque()
        self._command = list(command)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0

    @property
    def pid(self) -> int:
        """The process id, even after the process has ended. Another start changes it."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while the process is running. A negative number is the signal that killed it."""
        assert self._process is not None, "not started"
        return self._process.poll()

    def start(self) -> None:
        """Start the process and return at once."""
        self.ready = False
        with self.log.open("ab") as log:
            self._read = log.tell()
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C does not reach the process; killing its group also ends executors
            )

    def news(self) -> Iterator[str]:
        """Yield the complete lines that the process has written since the last call."""
        with self.log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        end = text.rfind(b"\n") + 1
        self._read += end
        yield from text[:end].decode(errors="replace").splitlines()

    def last_words(self) -> str:
        """Return the line of the log that best explains why the process ended."""
        lines = [one.strip() for one in self.log.read_text(errors="replace").splitlines() if one.strip()]
        explaining = [one for one in lines[-200:] if _WHY.search(one)]
        return (explaining or lines or ["its log is empty"])[-1][:400]

    def ask_to_end(self) -> None:
        """Send SIGTERM if the process is running."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def end(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for the process to end. Then kill its process group, including executors."""
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(timeout_s, 0.0))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class StandaloneCluster:
    """A cluster: `start()` returns the master's URL, `watch()` runs until `request_stop()`, `stop()` ends it.

    Port 0 means any free port. `memory` is the amount that each worker gives to executors, in Spark's notation (1g,
    512m). `directory` gets the logs and the executors' files. `tell` is called with each line that users should see.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 7077,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.url = ""
        self.directory = directory
        self._port = port
        self._cores = cores
        self._memory = memory
        self._count = workers
        self._tell = tell
        self._stopping = False
        self._environment, self._spark_class = _spark()
        self.master = self._daemon(
            "master", "master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0", log="master"
        )
        self.workers: list[Daemon] = []

    def start(self) -> str | None:
        """Start all processes, wait until all workers have registered, and return the master's URL.

        Return None if `request_stop` is called meanwhile. Raises ClusterError.
        """
        self._require_free_port()
        self.directory.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + START_TIMEOUT_S
        self.master.start()
        while not self.url:
            if not self._go_on(deadline, [self.master]):
                return None
            for line in self.master.news():
                if (found := _MASTER_IS_UP.search(line)) is not None:
                    self.url = found[1]
        self._tell(f"master {self.url}")
        self.workers = [self._worker(number) for number in range(1, self._count + 1)]
        for worker in self.workers:
            worker.start()
        while not all(worker.ready for worker in self.workers):
            if not self._go_on(deadline, [self.master, *self.workers]):
                return None
            self._look_at_workers()
        return self.url

    def watch(self) -> None:
        """Report events and restart workers that have ended, until `request_stop`. Raises ClusterError."""
        while not self._stopping:
            time.sleep(POLL_S)
            for line in self.master.news():
                for pattern, text in _NEWS:
                    if (found := pattern.search(line)) is not None:
                        self._tell(text.format(*found.groups()))
            self._look_at_workers()
            if self.master.exit_code is not None:
                raise ClusterError(
                    f"the master has ended ({_ended(self.master)}), so the cluster cannot continue: start it again. "
                    f"The log {self.master.log} says: {self.master.last_words()}"
                )
            for worker in self.workers:
                if worker.exit_code is not None:
                    self._restart(worker)

    def request_stop(self) -> None:
        """Make `start` and `watch` return soon. Safe to call from a signal handler."""
        self._stopping = True

    def stop(self) -> None:
        """End all processes: first the workers, which end their executors. Safe to call at any time, even twice."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        everybody = [*self.workers, self.master]
        for daemon in everybody:
            daemon.ask_to_end()
        for daemon in everybody:
            daemon.end(deadline - time.monotonic())

    # -- inside

    def _require_free_port(self) -> None:
        """Raise ClusterError if the master cannot listen on its port."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, self._port))
            except OSError as error:
                raise ClusterError(
                    f"the master cannot listen on {HOST}:{self._port} ({error.strerror}): "
                    "name another port with --port, or 0 for any free port"
                ) from None

    def _go_on(self, deadline: float, daemons: Sequence[Daemon]) -> bool:
        """Wait a moment and return True, or return False if a stop was requested.

        Raises ClusterError if a daemon has ended, or if the deadline has passed.
        """
        if self._stopping:
            return False
        for daemon in daemons:
            if daemon.exit_code is not None:
                raise ClusterError(
                    f"{daemon.name} has ended ({_ended(daemon)}) instead of starting. "
                    f"The log {daemon.log} says: {daemon.last_words()}"
                )
        if time.monotonic() > deadline:
            late = ", ".join(daemon.name for daemon in daemons if not daemon.ready)
            raise ClusterError(
                f"these processes are not ready after {START_TIMEOUT_S:.0f} s: {late}. See the logs in {self.directory}"
            )
        time.sleep(POLL_S)
        return True

    def _look_at_workers(self) -> None:
        """Set `ready` for the workers that have registered with the master, and report them."""
        for worker in self.workers:
            if not worker.ready and any(_WORKER_IS_UP.search(line) for line in worker.news()):
                worker.ready = True
                self._tell(f"{worker.name} has registered: {self._cores} core(s), {self._memory}")

    def _restart(self, worker: Daemon) -> None:
        """Restart a worker that has ended. Raises ClusterError if it ended too often within RESTART_WINDOW_S."""
        now = time.monotonic()
        worker.restarts.append(now)
        while now - worker.restarts[0] > RESTART_WINDOW_S:
            worker.restarts.popleft()
        why = f"{worker.name} has ended ({_ended(worker)})"
        if len(worker.restarts) > MAX_RESTARTS:
            raise ClusterError(
                f"{why} {len(worker.restarts)} times within {RESTART_WINDOW_S:.0f} s. "
                f"The log {worker.log} says: {worker.last_words()}"
            )
        self._tell(f"{why}: starting it again")
        worker.end(0.0)
        worker.start()

    def _worker(self, number: int) -> Daemon:
        limits = ("--cores", str(self._cores), "--memory", self._memory, "--webui-port", "0")
        work = ("--work-dir", str((self.directory / f"worker-{number}").absolute()))
        return self._daemon(
            f"worker {number}", "worker.Worker", "--host", HOST, *limits, *work, self.url, log=f"worker-{number}"
        )

    def _daemon(self, name: str, main: str, *arguments: str, log: str) -> Daemon:
        command = [self._spark_class, f"org.apache.spark.deploy.{main}", *arguments]
        return Daemon(name, command, self._environment, self.directory / f"{log}.log")


def _ended(daemon: Daemon) -> str:
    """Return how a daemon ended, for messages: its exit code or its signal."""
    code = daemon.exit_code
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _spark() -> tuple[dict[str, str], str]:
    """Return the environment of Spark's processes and the program that starts them, from this Python's pyspark."""
    import pyspark

    home = Path(pyspark.__file__).parent
    options = [
        DAEMON_JAVA,
        "-Dspark.port.maxRetries=0",  # use the requested port or fail: never try the next one
        "-Dspark.master.rest.enabled=false",
        os.environ.get("SPARK_DAEMON_JAVA_OPTS", ""),
    ]
    environment = {
        **os.environ,
        "SPARK_HOME": light_home() or str(home),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_PUBLIC_DNS": HOST,
        "SPARK_DAEMON_MEMORY": os.environ.get("SPARK_DAEMON_MEMORY", DAEMON_MEMORY),
        "SPARK_DAEMON_JAVA_OPTS": " ".join(options).strip(),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    return environment, str(home / "bin" / "spark-class")
