"""Start and kill child processes, such as a broker that is started again on the same port and data.

The classes spawn processes, wait until a broker accepts requests, and end the processes that they spawned, by pid. They
do not depend on what the processes do. When `kill9` or `terminate` returns, the process has ended, so that its port and
its lock are free.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
LOWEST_PORT, HIGHEST_PORT = 15_000, 32_000
"""Range of ports for brokers. It is below the ports that the system assigns to outgoing connections, because such a
connection could take the port of a killed broker.
"""


class StartFailed(RuntimeError):
    """The process did not become ready in time, or ended first. The message contains its last log lines."""


class StopFailed(RuntimeError):
    """The process has not ended within `STOP_TIMEOUT_S` seconds after kill -9."""


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that has no listener and that the system assigns to no outgoing connection.

    Raise StartFailed if there is no such port.
    """
    for _ in range(200):
        port = random.randrange(LOWEST_PORT, HIGHEST_PORT)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise StartFailed(f"no free port found between {LOWEST_PORT} and {HIGHEST_PORT} on 127.0.0.1")


class ChildProcess:
    """A process `python -m <module> <arguments>` that can be killed and started again.

    Its stderr goes to the file `log`. With `with_children`, a kill also ends its child processes. `output` is a file
    for stdout. Without it, `read_line` reads stdout.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        *,
        with_children: bool = False,
        output: Path | None = None,
    ) -> None:
        self.module = module
        self.arguments = list(arguments)
        self.log = log
        self.starts = 0
        self._with_children = with_children
        self._output = output
        self._closed = False
        self._spawning = threading.Lock()
        self._environment = dict(environment) if environment is not None else None
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The process id. Raises RuntimeError before `spawn`, and after `kill9`, `terminate` or `wait`."""
        if self._process is None:
            raise RuntimeError(f"{self.module} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Start the process, and return without waiting until it is ready.

        Raise RuntimeError if it is already running, and StartFailed after `close`.
        """
        if self.running:
            raise RuntimeError(f"{self.module} is already running with pid {self.pid}")
        self._reap()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self._spawning, self.log.open("ab") as stderr, contextlib.ExitStack() as files:
            if self._closed:
                raise StartFailed(f"{self.module} cannot be started after close()")
            output = subprocess.PIPE if self._output is None else files.enter_context(self._output.open("ab"))
            self._process = self._popen(output, stderr)
        self.starts += 1

    def _command(self) -> list[str]:
        return [sys.executable, "-P", "-m", self.module, *self.arguments]

    def _popen(self, stdout: int | IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            text=True,
            env=self._environment,
            start_new_session=self._with_children,
        )

    def read_line(self, timeout: float) -> str:
        """Return the next line of stdout without its newline.

        Raise StartFailed if the process ends first, or prints nothing for `timeout` seconds.
        """
        process = self._process
        assert process is not None
        assert process.stdout is not None
        deadline = time.monotonic() + timeout
        while True:
            # The process prints a single line, so the text layer does not buffer a line that select would miss.
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise StartFailed(f"{self.module} printed nothing for {timeout:g} s: {self.last_words()}")
            line = process.stdout.readline()
            if not line:
                code = self._end(process)
                raise StartFailed(f"{self.module} ended with exit code {code}: {self.last_words()}")
            return line.rstrip("\n")

    def last_words(self, size: int = 2000) -> str:
        """Return the last `size` bytes of the process's stderr as text."""
        try:
            return self.log.read_bytes()[-size:].decode(errors="replace").strip()
        except FileNotFoundError:
            return ""

    def send_kill(self) -> None:
        """Send SIGKILL without waiting for the end of the process. Call `kill9` afterwards."""
        if self._process is not None:
            self._kill(self._process)

    def kill9(self) -> None:
        """End the process with SIGKILL, as a crash would, and wait for its end. Raise StopFailed if it does not end."""
        if self._process is not None:
            self._kill(self._process)
        self._reap()

    def terminate(self, timeout: float = STOP_TIMEOUT_S) -> int:
        """Send SIGTERM, wait for the end of the process, and return its exit code.

        After `timeout` seconds, kill the process. The exit code is then -9. Raise StopFailed if it does not end.
        """
        process = self._process
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float = STOP_TIMEOUT_S) -> int:
        """Wait until the process ends by itself, and return its exit code.

        After `timeout` seconds, kill the process. The exit code is then -9. Raise StopFailed if it does not end.
        """
        process = self._process
        if process is None:
            return 0
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._kill(process)
            code = self._end(process)
        self._reap()
        return code

    def close(self) -> None:
        """End the process if it is running, and make every later `spawn` fail, even in other threads.

        Raise StopFailed if the process does not end.
        """
        with self._spawning:
            self._closed = True
        self.terminate()

    def _kill(self, process: subprocess.Popen[str]) -> None:
        if not self._with_children:
            process.kill()
        elif process.returncode is None:  # not waited for yet, so its pid cannot belong to another process
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _end(self, process: subprocess.Popen[str]) -> int:
        """Wait for the end of a process that was killed or closed its stdout, and return its exit code.

        Raise StopFailed if it has not ended after `STOP_TIMEOUT_S` seconds.
        """
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise StopFailed(f"{self.module} (pid {process.pid}) has not ended within {STOP_TIMEOUT_S:g} s") from None

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._end(process)
            stdout: IO[str] | None = process.stdout
            if stdout is not None:
                stdout.close()


class BrokerProcess(ChildProcess):
    """A process `oncelog serve` on 127.0.0.1.

    `with BrokerProcess(directory, "--durability", "os") as broker` starts the broker, and stops it at the end. Its data
    is in `directory/data`, and its log is `directory/broker.log`. The port is chosen at the first start and kept, so
    that clients find the broker again after `kill9` and `start`, or after `restart`.
    """

    def __init__(self, directory: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        super().__init__("oncelog.cli", [], directory / "broker.log", environment)
        self.directory = directory
        self.data_dir = directory / "data"
        self.host = "127.0.0.1"
        self.port = 0
        self.start_s = 0.0
        self.extra_arguments = list(arguments)

    @property
    def address(self) -> str:
        """The address `host:port` for bootstrap_servers. It is known after the first start."""
        return f"{self.host}:{self.port}"

    def start(self, timeout: float = START_TIMEOUT_S) -> Self:
        """Start the broker, and return when it accepts requests.

        Raise StartFailed, with the last log lines, if the broker ends or is not ready after `timeout` seconds.
        """
        first = not self.port
        for attempt in range(5):
            begun = time.monotonic()
            if first:
                self.port = free_port()
            self.arguments = [
                "serve",
                "--data-dir",
                str(self.data_dir),
                "--listen",
                self.address,
                *self.extra_arguments,
            ]
            self.spawn()
            try:
                line = self.read_line(timeout)
            except StartFailed as failure:
                self.kill9()
                if first and attempt < 4 and "in use" in str(failure):
                    continue  # another process took the port between the probe and the start
                raise
            if line != f"ready {self.address}":
                self.kill9()
                raise StartFailed(f"expected `ready {self.address}`, but the broker printed {line!r}")
            self.start_s = time.monotonic() - begun
            return self
        raise AssertionError("unreachable: the last attempt raises")

    def restart(self) -> None:
        """Stop the broker cleanly and start it again on the same port and data."""
        self.terminate()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.terminate()
