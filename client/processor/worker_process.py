"""Entry point of a worker process: `multiprocessing` calls `main` in a new interpreter.

`main` makes the processor with the factory. It runs the processor until SIGTERM or SIGINT, or until the parent process
ends, and reports the outcome to the parent through a pipe. Before the process ends, it finishes the open transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import signal
import traceback
from collections.abc import Callable, Mapping
from enum import Enum
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

from ..errors import ConfigError


class Stage(Enum):
    """The state of a worker process."""

    STARTING = "starting"
    UNUSABLE = "the factory failed"
    RUNNING = "running"
    FAILED = "failed"


class Report(NamedTuple):
    """A worker process's report to its parent."""

    stage: Stage
    text: str = ""


class Runnable(Protocol):
    """The interface of a factory's result, a Processor."""

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *error: Any) -> None: ...
    async def run(self) -> None: ...
    def stop(self) -> None: ...


def load(factory: str) -> Callable[..., Any]:
    """Return the object named `module:callable`. Raises ConfigError, or the error of importing the module."""
    module, colon, name = factory.partition(":")
    if not (module and colon and name):
        raise ConfigError("factory", f"{factory!r} is not of the form module:callable")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError("factory", f"module {module!r} has no callable {name!r}")
    return found  # type: ignore[no-any-return]


def main(factory: str, number: int, arguments: Mapping[str, object], parent: Connection) -> None:
    """Run a worker. Exit with 0 when it was stopped, and with 1 after an error, which is reported to the parent."""
    try:
        asyncio.run(_Child(parent).run(factory, number, arguments))
    except Exception as error:
        traceback.print_exc()
        stage = Stage.UNUSABLE if isinstance(error, _FactoryFailed) else Stage.FAILED
        cause = error.__cause__ if isinstance(error, _FactoryFailed) and error.__cause__ is not None else error
        with contextlib.suppress(OSError):
            notes = [f" ({note})" for note in getattr(cause, "__notes__", ())]
            parent.send(Report(stage, f"{type(cause).__name__}: {cause}{''.join(notes)}"))
        raise SystemExit(1) from None


class _FactoryFailed(Exception):
    """The factory failed; starting the process again would not help."""


class _Child:
    def __init__(self, parent: Connection) -> None:
        self._parent = parent
        self._processor: Runnable | None = None
        self._starting: asyncio.Task[Any] | None = None
        self._stopped = False

    async def run(self, factory: str, number: int, arguments: Mapping[str, object]) -> None:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._stop)
        loop.add_reader(self._parent.fileno(), self._parent_gone)
        try:
            processor = await self._make(factory, number, arguments)
            self._starting = asyncio.ensure_future(processor.__aenter__())
            if self._stopped:
                self._starting.cancel()
            await asyncio.wait({self._starting})
            if self._starting.cancelled():
                return
            self._starting.result()
            self._processor = processor
            try:
                if not self._stopped:
                    self._parent.send(Report(Stage.RUNNING))
                    await processor.run()
            finally:
                await processor.__aexit__(None, None, None)
        finally:
            loop.remove_reader(self._parent.fileno())

    async def _make(self, factory: str, number: int, arguments: Mapping[str, object]) -> Runnable:
        try:
            made = load(factory)(number, **arguments)
            if inspect.isawaitable(made):
                made = await made
            for method in ("__aenter__", "__aexit__", "run", "stop"):
                if not hasattr(made, method):
                    raise TypeError(f"{factory} returned a {type(made).__name__}, not a Processor")
        except Exception as error:
            raise _FactoryFailed from error
        return made  # type: ignore[no-any-return]

    def _stop(self) -> None:
        self._stopped = True
        if self._processor is not None:
            self._processor.stop()
        elif self._starting is not None:
            self._starting.cancel()

    def _parent_gone(self) -> None:
        asyncio.get_running_loop().remove_reader(self._parent.fileno())
        self._stop()
