"""Handle missing and blocked standard streams.

A process may be started with closed streams. The process that reads its output may end first, or may stop reading.
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

_MISSING: Final = (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_RDWR, "w"))
"""The standard streams by descriptor: name, flags with which a missing one is opened, and mode of Python's stream."""
STANDARD_OUTPUT: Final = 1
STANDARD_ERROR: Final = 2
LAST_LINE_S: Final = 1.0
"""The longest time, in seconds, for which the process waits for the reader of stderr before it ends."""


def open_missing() -> None:
    """Open /dev/null for each closed standard stream, so that no socket or data file gets the stream's descriptor.

    A read from a closed stdin and a write to a closed stdout still fail with EBADF, so that no command regards records
    as printed if nobody can read them. What is written to a closed stderr is lost.
    """
    for descriptor, (name, flags, mode) in enumerate(_MISSING):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, flags)  # the lowest free number
            assert opened == descriptor, (opened, descriptor)
            for attribute in (name, f"__{name}__"):
                if getattr(sys, attribute) is None:
                    setattr(sys, attribute, os.fdopen(descriptor, mode, closefd=False))


def announce(line: str) -> None:
    """Print a line to stdout. If the reader of stdout is gone, redirect stdout to /dev/null."""
    try:
        print(line, flush=True)
    except OSError:
        _discard_output()


def end_output() -> None:
    """Flush stdout. If that fails, redirect stdout to /dev/null; the command has reported the failure already."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()


def _discard_output() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STANDARD_OUTPUT)  # so that the flush of buffered output at exit does not fail
    os.close(nowhere)


def write_last_line(writer: LineWriter | None, line: str) -> None:
    """Write to stderr the line that says why the process ends, after the lines that `writer` still holds.

    If nothing reads stderr, give up after `LAST_LINE_S`.
    """
    if sys.stderr is not sys.__stderr__:  # the program's own stream, as in a test
        click.echo(line, err=True)
    elif writer is not None:
        writer.put(line)
        writer.flush(LAST_LINE_S)


@cache
def log_writer() -> LineWriter | None:
    """Return the writer with which `LogLines` writes to stderr, or None if stderr is not open."""
    from ..broker.observability.line_writer import LineWriter, own_copy

    def notices(lost: int) -> Iterator[str]:
        if lost:
            yield f"{lost} log lines were lost, because nothing read stderr"

    descriptor = own_copy(STANDARD_ERROR)
    return None if descriptor is None else LineWriter(descriptor, notices)


class LogLines(logging.Handler):
    """A handler of Python's `logging` that writes to stderr. It neither waits for the reader of stderr nor raises."""

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line of a log record for writing."""
        with contextlib.suppress(Exception):  # formatting fails if the arguments do not fit the format string
            if (writer := log_writer()) is not None:
                writer.put(self.format(record))
