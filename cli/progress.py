"""Show the progress of a long command if stderr is a terminal, in one line that each update overwrites."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self

INTERVAL_S: Final = 0.1
"""Shortest time between two updates of the line, in seconds."""

CLEAR_LINE: Final = "\r\x1b[K"


class Progress:
    """A progress line on stderr, which is removed when the context ends.

    `with Progress("groups read") as progress: progress.show(3, total=10)` shows `3 of 10 groups read`.
    """

    def __init__(self, what: str, *, visible: bool = True) -> None:
        self._what = what
        self._visible = visible and sys.stderr.isatty()
        self._shown_s = -INTERVAL_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def show(self, count: int, total: int | None = None) -> None:
        """Update the progress line, unless the last update was less than `INTERVAL_S` seconds ago."""
        if not self._visible or (now_s := time.monotonic()) - self._shown_s < INTERVAL_S:
            return
        self._shown_s = now_s
        of_all = "" if total is None else f" of {total:,}"
        sys.stderr.write(f"{CLEAR_LINE}{count:,}{of_all} {self._what}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the progress line from the terminal."""
        if self._visible:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()
