"""`Tap`: runs the process of a tap, and reads its messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import signal
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConnectError

log = logging.getLogger(__name__)


class Tap:
    """One run of a tap: `await start(state)`, then call `line` until it returns None, then `failure`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._files = tempfile.TemporaryDirectory(prefix="oncelog-tap-")  # readable by this user only
        self._process: asyncio.subprocess.Process | None = None
        self._errors: asyncio.Task[None] | None = None
        self._tail: deque[str] = deque(maxlen=5)

    async def start(self, state: str | None) -> None:
        """Start the tap from `state`, or from the beginning if it is None. Raises ConnectError if the start fails."""
        command = [*shlex.split(self._settings["tap.command"]), *self._arguments(state)]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=self._settings["max.message.bytes"],
                start_new_session=True,  # so that its child processes end with it
            )
        except OSError as error:
            raise ConnectError(
                f"tap {command[0]} cannot be started: {error.strerror}; install it, or correct tap.command"
            ) from error
        self._errors = asyncio.create_task(self._log_errors(self._process))

    async def line(self) -> bytes | None:
        """Return the next message, or None at the end of the output.

        Raises ConnectError for a message that is too large.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.readline() or None
        except ValueError:
            limit = self._settings["max.message.bytes"]
            raise ConnectError(f"a message of the tap is larger than {limit} bytes: raise max.message.bytes") from None

    async def failure(self) -> str | None:
        """Wait for the end of the process; return why the tap has failed, or None if it succeeded."""
        assert self._process is not None
        assert self._errors is not None
        code = await self._process.wait()
        await self._errors
        return f"exit code {code}: {' | '.join(self._tail) or 'no message'}" if code else None

    async def stop(self) -> None:
        """End the process with SIGTERM, then SIGKILL, and remove the temporary files."""
        process = self._process
        try:
            if process is not None:
                self._signal(process, signal.SIGTERM)
                try:
                    async with asyncio.timeout(self._settings["tap.stop.timeout.ms"] / 1000):
                        await process.wait()
                except TimeoutError:
                    log.warning("the tap did not end after SIGTERM and will be killed")
                self._signal(process, signal.SIGKILL)  # including its child processes
                await process.wait()
        finally:
            if self._errors is not None:
                self._errors.cancel()
                await asyncio.gather(self._errors, return_exceptions=True)
            self._files.cleanup()

    def _arguments(self, state: str | None) -> list[str]:
        arguments: list[str] = []
        config, directory = self._settings["tap.config"], Path(self._files.name)
        if config is not None:
            (directory / "config.json").write_text(config.value)
            arguments += ["--config", str(directory / "config.json")]
        elif self._settings["tap.config.file"]:
            arguments += ["--config", self._settings["tap.config.file"]]
        if self._settings["tap.catalog.file"]:
            arguments += ["--catalog", self._settings["tap.catalog.file"]]
        if state is not None:
            (directory / "state.json").write_text(state)
            arguments += ["--state", str(directory / "state.json")]
        return arguments

    @staticmethod
    def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    async def _log_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:
                continue  # the line is too long to be logged
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip()[:1000]
            self._tail.append(text)
            log.info("tap: %s", text)
