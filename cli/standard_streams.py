"""The standard streams of a process that runs for long: it may be started without them, or outlive who read them."""

from __future__ import annotations

import os
from typing import Final

STANDARD_STREAMS: Final = (0, 1, 2)
STANDARD_OUTPUT: Final = 1


def open_missing() -> None:
    """Open /dev/null for each standard stream that is closed, so that no socket or data file takes its number."""
    for descriptor in STANDARD_STREAMS:
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number
            assert opened == descriptor, (opened, descriptor)


def announce(line: str) -> None:
    """Print a line to stdout; where nobody reads it any more, stdout becomes /dev/null."""
    try:
        print(line, flush=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STANDARD_OUTPUT)  # what is still buffered must not fail again at exit
        os.close(nowhere)
