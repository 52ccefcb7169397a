"""Handle missing standard streams of a long-running process.

Such a process may be started with closed streams, or the process that reads its output may end first.
"""

from __future__ import annotations

import os
from typing import Final

STANDARD_STREAMS: Final = (0, 1, 2)
STANDARD_OUTPUT: Final = 1


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
