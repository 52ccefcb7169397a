"""The process's file descriptors: as many as the system grants, divided between data files and connections.

Raises the limit at start, and computes how many descriptors the data files may have and how many connections may be
open beside them. A call that fails for want of a descriptor is no failure of the disk: `OUT_OF_DESCRIPTORS` lists these
errors, as `NO_SPACE` does those of a full disk.
"""

from __future__ import annotations

import errno
import resource
from typing import Final

OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)

BESIDE: Final = 32
"""Descriptors for everything but pooled files and connections: sockets that listen, the event loop, the lock, and
files and directories that are open only during one call."""

LARGEST_DEFAULT: Final = 16_384
"""Open files by default where the limit is higher than anybody needs."""

_FEWEST_FILES: Final = 8


def raise_limit() -> int:
    """Raise this process's limit of open files as far as it may; returns the limit that holds from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems name a hard limit that they do not grant
            return soft
    return hard


def open_files(setting: int) -> int:
    """How many data files may be open at a time: `setting` (-1: 16,384), at most half of the process's limit."""
    wanted = LARGEST_DEFAULT if setting < 0 else setting
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if limit == resource.RLIM_INFINITY else max(min(wanted, limit // 2), _FEWEST_FILES)


def connections(setting: int) -> int | None:
    """How many connections may be open beside so many files, at least 1; None: any number."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else max(limit - open_files(setting) - BESIDE, 1)
