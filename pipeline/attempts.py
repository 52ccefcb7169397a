"""What the driver remembers of an attempt outside of Spark: a small file on its machine, per driver and query.

Spark runs a stream's commit and abort in other processes than the one that began the batch, and hands them only what
tasks returned. When no task returned anything, because all were killed, `abort` finds the attempt here. Losing the file
loses nothing but time: the transaction then ends with the next batch, or at its timeout.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from .transaction import Attempt, SinkState

MAX_AGE_S: Final = 7 * 86_400


def remember(attempt: Attempt) -> None:
    """Write the attempt down, instead of the one before."""
    path = _path(attempt.transactional_id)
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(asdict(attempt)))
        new.replace(path)
        for other in path.parent.glob("*.json"):  # of drivers that were killed
            if time.time() - other.stat().st_mtime > MAX_AGE_S:
                other.unlink(missing_ok=True)


def recall(transactional_id: str) -> Attempt | None:
    """The attempt that this driver began last, None if it is decided or not known."""
    try:
        found = json.loads(_path(transactional_id).read_text())
        state = found.pop("state")
        return Attempt(**found, state=None if state is None else SinkState(*state))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def forget(transactional_id: str) -> None:
    """The attempt is decided."""
    with contextlib.suppress(OSError):
        _path(transactional_id).unlink()


def _path(transactional_id: str) -> Path:
    name = hashlib.sha256(transactional_id.encode()).hexdigest()[:24]
    return Path(tempfile.gettempdir()) / f"oncelog-pipeline-{os.getuid()}" / f"{name}-{_driver()}.json"


def _driver() -> int:
    """The driver's process id: the parent of the daemon that Spark forks Python processes from."""
    try:
        stat = Path(f"/proc/{os.getppid()}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return os.getppid()
