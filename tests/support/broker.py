"""Run the broker as a separate process. Tests can kill it and start it again.

`with BrokerProcess(tmp_path, "--durability", "os") as broker:` gives .address, .host, .port, .pid, .data_dir and .log
(its stderr). `kill9()` and then `start()` are a crash and a recovery on the same port and data. `restart()` stops
cleanly and starts again. `terminate()` returns the exit code. The class belongs to the demo, so that tests and demo
kill processes in the same way. Here, the process is forked from a prepared one, because Python starts slowly.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import IO, cast

from oncelog.demo import processes
from oncelog.demo.processes import StartFailed

from .forked_commands import CAN_FORK, ForkedProcess

__all__ = ["BrokerProcess", "StartFailed"]


class BrokerProcess(processes.BrokerProcess):
    """A process `oncelog serve` on 127.0.0.1, forked, where possible, from a process that has made the imports."""

    descriptors: int | None = None
    """How many descriptors the process may have open. None: as many as this process. With a limit, it is not forked."""

    def _command(self) -> list[str]:
        command = super()._command()
        if self.descriptors is None:
            return command
        # A limit that is set when the process runs would come after the broker has read it, now and then.
        return ["sh", "-c", f'ulimit -n {self.descriptors} && exec "$@"', "sh", *command]

    def _popen(self, stdout: int | IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[str]:
        environment = os.environ if self._environment is None else self._environment
        if self.descriptors is not None or not CAN_FORK or _changes_the_start(environment):
            return super()._popen(stdout, stderr)
        assert stdout == subprocess.PIPE
        reading, writing = os.pipe()
        with open(os.devnull, "rb") as nothing, open(writing, "wb") as output:
            streams = [stream.fileno() for stream in (nothing, output, stderr)]
            process = ForkedProcess(self.arguments, environment, streams)
        process.stdout = open(reading, encoding="utf-8")  # noqa: SIM115  # `ChildProcess` closes it
        return cast("subprocess.Popen[str]", process)


def _changes_the_start(environment: Mapping[str, str]) -> bool:
    """Whether a variable that is read when Python starts differs from that of this process, which a fork would keep."""
    return any(
        environment.get(name) != os.environ.get(name)
        for name in {*environment, *os.environ}
        if name.startswith(("PYTHON", "LD_"))
    )
