"""Handle missing and blocked standard streams of a long-running process.

Such a process may be started with closed streams, the process that reads its output may end first, or it may not read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from ..broker.observability.line_writer import LineWriter

STANDARD_STREAMS: Final = (0, 1, 2)
STANDARD_OUTPUT: Final = 1
STANDARD_ERROR: Final = 2
LAST_LINE_S: Final = 1.0
"""How long the end of the process waits for the reader of stderr, in seconds."""


def open_missing() -> None:
    """Open /dev/null for each closed standard stream, so that no socket or data file gets the stream's descriptor."""
    for descriptor in STANDARD_STREAMS:
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number
            assert opened == descriptor, (opened, descriptor)


def announce(line: str) -> None:
    """Print a line to stdout. If the reader of stdout is gone, redirect stdout to /dev/null."""
    try:
        print(line, flush=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STANDARD_OUTPUT)  # so that the flush of buffered output at exit does not fail
        os.close(nowhere)


def write_last_line(writer: LineWriter | None, line: str) -> None:
    """Write the line that says why the process ends to stderr, after the lines in `writer`.

    If nothing reads stderr, give up after `LAST_LINE_S`.
    """
    if sys.stderr is not sys.__stderr__:  # the program's own stream, as in a test
        click.echo(line, err=True)
    elif writer is not None:
        writer.put(line)
        writer.flush(LAST_LINE_S)


@cache
def log_writer() -> LineWriter | None:
    """Return the writer to stderr of a process that logs through `LogLines`, or None if stderr is not open."""
    from ..broker.observability.line_writer import LineWriter, own_copy

    def notices(lost: int) -> Iterator[str]:
        if lost:
            yield f"{lost} log lines were lost, because nothing read stderr"

    descriptor = own_copy(STANDARD_ERROR)
    return None if descriptor is None else LineWriter(descriptor, notices)


class LogLines(logging.Handler):
    """A handler of Python's `logging` that writes to stderr, and never waits for the reader of stderr or raises."""

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line of a record."""
        with contextlib.suppress(Exception):  # the arguments of a record may not fit its text
            if (writer := log_writer()) is not None:
                writer.put(self.format(record))
