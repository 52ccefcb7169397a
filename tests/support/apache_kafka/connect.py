"""Run Kafka Connect's distributed worker, from Maven's artifacts, as a process on 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from . import HERE, VERSION, class_path, free_port, jvm_options

START_S = 120
STOP_S = 30


class JavaWorker:
    """A process `connect-distributed` with the settings of an oncelog worker, for `support.connect_workers.Group`.

    `jvm`: the options of the JVM, by default those of a small one.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str], *jvm: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        self._file, self._log = directory / "worker.properties", directory / "worker.log"
        own = {**settings, "listeners": self.url, "plugin.discovery": "service_load"}
        self._file.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
        self._jvm = jvm or jvm_options("256m", quick=True)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def worker_id(self) -> str:
        return self.url.removeprefix("http://")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def start(self) -> None:
        """Start the process, and wait until it reports that it is healthy."""
        path = await asyncio.to_thread(class_path, VERSION, HERE / "connect.xml")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "java",
                    *self._jvm,
                    f"-Dlog4j2.configurationFile={HERE / 'connect-log4j2.properties'}",
                    "-cp",
                    path,
                    "org.apache.kafka.connect.cli.ConnectDistributed",
                    str(self._file),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        async with aiohttp.ClientSession() as session, asyncio.timeout(START_S):
            while True:
                assert self._process.poll() is None, self.log[-3000:]
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{self.url}/health") as response:
                        if response.status == 200:
                            return
                await asyncio.sleep(0.1)

    async def end(self, number: int = signal.SIGTERM) -> int:
        """End the process with a signal, and return its exit code.

        Kafka Connect 4.1 does not always end on SIGTERM: its own shutdown hook and the one of Jetty run concurrently,
        and if Jetty's is first, Connect's waits in `Server.join` forever. Such a process is killed after `STOP_S`.
        """
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return await asyncio.to_thread(process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return await asyncio.to_thread(process.wait)
        finally:
            process.kill()

    async def kill(self) -> None:
        await self.end(signal.SIGKILL)
