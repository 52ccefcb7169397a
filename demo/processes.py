"""Processes that may be killed: the broker, started, killed with SIGKILL and started again on the same port and data.

Owns: spawning, waiting until the broker says that it accepts requests, and ending every process that it spawned, by pid
and no other. Knows nothing of what the processes do.

Invariant: after `kill9` and `terminate` return, the process has been waited for: its port and its lock are free.
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
"""Below the ports that the system gives to outgoing connections: one could take the port of a killed broker."""


class StartFailed(RuntimeError):
    """The process ended or stayed silent instead of getting ready; the text has its last words."""


class StopFailed(RuntimeError):
    """The process is still there some seconds after kill -9."""


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on and that no outgoing connection will be given."""
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
    """`python -m <module> <arguments>` with stderr in a file; can be killed and started again.

    `with_children`: what it starts in turn is killed with it. `output`: a file for stdout, instead of `read_line`.
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
        """Process id of the running process; RuntimeError when it does not run."""
        if self._process is None:
            raise RuntimeError(f"{self.module} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Start the process, without waiting for anything."""
        if self.running:
            raise RuntimeError(f"{self.module} is already running as {self.pid}")
        self._reap()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self._spawning, self.log.open("ab") as stderr, contextlib.ExitStack() as files:
            if self._closed:
                raise StartFailed(f"{self.module} is not to be started any more")
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", self.module, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._output is None else files.enter_context(self._output.open("ab")),
                stderr=stderr,
                text=True,
                env=self._environment,
                start_new_session=self._with_children,
            )
        self.starts += 1

    def read_line(self, timeout: float) -> str:
        """The next line of stdout, without its end; StartFailed when the process ends first or time is up."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        deadline = time.monotonic() + timeout
        while True:
            # One line at most is ever waited for, so the text layer holds nothing back behind select's back.
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise StartFailed(f"{self.module} said nothing for {timeout:g} s: {self.last_words()}")
            line = process.stdout.readline()
            if not line:
                code = self._end(process)
                raise StartFailed(f"{self.module} ended with exit code {code}: {self.last_words()}")
            return line.rstrip("\n")

    def last_words(self, size: int = 2000) -> str:
        """The end of what the process wrote to stderr."""
        try:
            return self.log.read_bytes()[-size:].decode(errors="replace").strip()
        except FileNotFoundError:
            return ""

    def send_kill(self) -> None:
        """Send SIGKILL now, without waiting: call `kill9` next."""
        if self._process is not None:
            self._kill(self._process)

    def kill9(self) -> None:
        """End the process with SIGKILL, as a crash would, and wait until it is gone. Raises StopFailed if it stays."""
        if self._process is not None:
            self._kill(self._process)
        self._reap()

    def terminate(self, timeout: float = STOP_TIMEOUT_S) -> int:
        """Ask the process to end with SIGTERM and return its exit code; killed after `timeout` s (then: -9)."""
        process = self._process
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float = STOP_TIMEOUT_S) -> int:
        """The exit code of a process that ends by itself; killed after `timeout` s (then: -9)."""
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
        """End the process if it runs, and refuse every later start, also one that another thread is about to make."""
        with self._spawning:
            self._closed = True
        with contextlib.suppress(StartFailed):
            self.terminate()

    def _kill(self, process: subprocess.Popen[str]) -> None:
        if not self._with_children:
            process.kill()
        elif process.returncode is None:  # not waited for yet: nobody else can have got its number
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _end(self, process: subprocess.Popen[str]) -> int:
        """Wait for a process that is about to be gone; returns its exit code."""
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
    """`oncelog serve` on 127.0.0.1: `with BrokerProcess(directory, "--durability", "os") as broker: broker.address`.

    Data lies in `directory/data`, the log in `directory/broker.log`. The port is chosen at the first start and kept, so
    that clients find the broker again after `kill9` and `start`, or `restart`.
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
        """`host:port`, for bootstrap_servers; known after the first start."""
        return f"{self.host}:{self.port}"

    def start(self, timeout: float = START_TIMEOUT_S) -> Self:
        """Start the broker and return when it accepts requests; StartFailed tells its last words."""
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
                raise StartFailed(f"expected `ready {self.address}`, the broker said {line!r}")
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
