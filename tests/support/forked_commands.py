"""Run `oncelog` commands in processes that are forked from a prepared one, because Python starts slowly.

Each command is a process with its own arguments, environment, directory and standard streams, and it ends as a process
of its own does. Only the imports are made once, by a server: `python -m support.forked_commands PATH`. Tests of starts,
imports, terminals and signals start real commands instead.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

CAN_FORK = hasattr(os, "pidfd_open") and "COVERAGE_RUN" not in os.environ
"""Whether commands can be forked: on Linux, and if no coverage is measured, which begins when Python starts."""

LENGTH = struct.Struct(">i")
PRELOADED = (
    "oncelog.broker.node",
    "oncelog.broker.observability.logging",
    "oncelog.cli.garbage",
    "oncelog.cli.tables",
    "oncelog.client.admin",
    "oncelog.client.consumer",
    "oncelog.client.producer",
    "uvloop",
)


class ForkedProcess:
    """A command in a forked process, with those methods of `subprocess.Popen` that tests use.

    `streams`: the file descriptors of stdin, stdout and stderr. If this object is dropped, or this process ends, while
    the command runs, the command is killed.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]) -> None:
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self._lock = threading.Lock()
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_server())
        asked = json.dumps([list(arguments), dict(environment), os.getcwd()]).encode()
        socket.send_fds(self._connection, [LENGTH.pack(len(asked))], streams)
        self._connection.sendall(asked)
        (self.pid,) = LENGTH.unpack(_read(self._connection, LENGTH.size))

    def poll(self) -> int | None:
        """Return the exit code, None while the command runs."""
        with self._lock:
            if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
                (self.returncode,) = LENGTH.unpack(_read(self._connection, LENGTH.size))
                self._connection.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the command; return the exit code. Raises subprocess.TimeoutExpired."""
        with suppress(ValueError, OSError):  # another thread has seen the end, and has closed the connection
            select.select([self._connection], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("oncelog", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the command has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless the command has ended."""
        self.send_signal(signal.SIGKILL)


def run_forked(
    arguments: tuple[str, ...], lines: str, timeout_s: float, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command with `lines` as its stdin; return its exit code and output.

    Raises subprocess.TimeoutExpired after `timeout_s` seconds. Then the command is killed.
    """
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        stdin.write(lines.encode())
        stdin.seek(0)
        process = ForkedProcess(arguments, environment, [stream.fileno() for stream in (stdin, stdout, stderr)])
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(arguments, code, _content(stdout), _content(stderr))


def _content(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError("the other side has closed the connection")
        data += piece
    return data


@cache
def _server() -> str:
    """Start the server for the commands of this process; return the path of its socket."""
    directory = Path(tempfile.mkdtemp(prefix="oncelog-commands-"))
    path = directory / "socket"
    paths = filter(None, [os.environ.get("PYTHONPATH")])  # `oncelog` may be another one than the installed one
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "support.forked_commands", str(path)],
        stdin=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[1]), *paths))},
    )

    atexit.register(server.communicate)  # closes its stdin, and so it ends
    deadline = time.monotonic() + 60
    while not path.exists():
        assert server.poll() is None, "the server of commands has ended"
        assert time.monotonic() < deadline, "the server of commands does not start"
        time.sleep(0.01)
    return str(path)


# ---- the server, and the processes that it forks


def _serve(path: str) -> None:
    """Fork a supervisor for each connection, until stdin ends."""
    from oncelog.cli.main import COMMANDS

    for module in (*(f"oncelog.cli.{name}" for name in COMMANDS), *PRELOADED):
        import_module(module)
    gc.collect()
    gc.freeze()  # collections in forked processes would copy all pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets supervisors that have ended
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen(64)
        Path(f"{path}.new").rename(path)
        while True:
            ready, _, _ = select.select([listener.fileno(), sys.stdin.fileno()], [], [])
            if listener.fileno() not in ready:  # stdin has ended: so has the process that runs the tests
                shutil.rmtree(Path(path).parent)
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _supervise(connection)
                os._exit(0)
            connection.close()


def _supervise(connection: socket.socket) -> None:
    """Fork the command; send its pid, and its exit code when it ends. Kill it when the connection is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    header, streams, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
    arguments, environment, directory = json.loads(_read(connection, LENGTH.unpack(header)[0]))
    pid = os.fork()
    if pid == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _run(arguments, environment, directory)
    for stream in streams:  # only the command keeps them open
        os.close(stream)
    connection.sendall(LENGTH.pack(pid))
    watched = os.pidfd_open(pid)
    ready, _, _ = select.select([watched, connection.fileno()], [], [])
    if watched not in ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if watched in ready:
        connection.sendall(LENGTH.pack(os.waitstatus_to_exitcode(status)))


def _run(arguments: list[str], environment: dict[str, str], directory: str) -> NoReturn:
    """Run a command and end the process like Python itself, but without freeing all objects, which would take long."""
    from oncelog.cli.main import main

    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = ["oncelog", *arguments]
    code: object = 1
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    _serve(sys.argv[1])
