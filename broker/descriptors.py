"""The process's file descriptors: as many as the system grants, and enough of them kept for the data.

Owns the limit's rise at start and the question whether one more connection would take what files need. A file that
can't be opened for want of a descriptor is no failure of the disk: `OUT_OF_DESCRIPTORS` tells these errors apart.
"""

from __future__ import annotations

import errno
import resource
from typing import Final

OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


def raise_limit() -> int:
    """Raise this process's limit of open files as far as it may; returns the limit that holds from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems name a hard limit that they don't grant
            return soft
    return hard


def taken_by_connections(descriptor: int, reserve: int) -> bool:
    """Whether a connection with this new descriptor leaves fewer than `reserve` (at most half of all) for files.

    A system gives out the lowest free number, so the number of a new one tells how many are open.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return False
    return descriptor >= limit - min(reserve, limit // 2)
