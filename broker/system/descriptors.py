"""Divide the process's file descriptors between data files and connections.

The broker raises its limit of open files at start. This module computes how many descriptors the data files may use,
and how many connections may be open at the same time. If a call fails because no descriptor is free, the disk has not
failed: `OUT_OF_DESCRIPTORS` lists the errors of such calls, as `NO_SPACE` lists the errors of a full disk.
"""

from __future__ import annotations

import errno
import resource
from typing import Final

OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)

BESIDE: Final = 32
"""The number of descriptors reserved for everything except data files and connections.

These are listening sockets, the event loop, the lock file, and files and directories that are open only during a call.
"""

LARGEST_DEFAULT: Final = 16_384
"""The maximum number of open data files by default, even if the process's limit allows more."""

_FEWEST_FILES: Final = 8


def raise_limit() -> int:
    """Raise this process's limit of open files as far as the system allows; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems report a hard limit that they do not grant
            return soft
    return hard


def open_files(setting: int) -> int:
    """Return the maximum number of open data files: `setting` (-1: 16,384), but at most half of the process's limit.

    If the process has a limit, the result is nevertheless at least 8.
    """
    wanted = LARGEST_DEFAULT if setting < 0 else setting
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if limit == resource.RLIM_INFINITY else max(min(wanted, limit // 2), _FEWEST_FILES)


def connections(setting: int) -> int | None:
    """Return how many connections may be open besides the data files (at least 1), or None if there is no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else max(limit - open_files(setting) - BESIDE, 1)
