"""Show in a line on stderr what a command is waiting for, if stderr is a terminal and the wait exceeds a second."""

from __future__ import annotations

import sys
import time
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self, TextIO

from .progress import CLEAR_LINE

SILENT_S: Final = 1.0
"""Seconds before the line appears, and between two updates of the line."""


class Waiting:
    """A line on stderr about a wait. The line is removed when the context ends.

    `with Waiting("waiting for the worker")` shows `waiting for the worker (3 s)`. `what` may change during the wait.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._ended = Event()
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._thread = Thread(target=self._show, args=(sys.stderr,), daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self, terminal: TextIO) -> None:
        begun, shown = time.monotonic(), False
        while not self._ended.wait(SILENT_S):
            shown = True
            print(f"{CLEAR_LINE}{self.what} ({time.monotonic() - begun:.0f} s)", end="", flush=True, file=terminal)
        if shown:
            print(CLEAR_LINE, end="", flush=True, file=terminal)
