"""Keep a query's newest attempt and last committed state in a small file on the driver's machine, outside of Spark.

An attempt is one transaction in which a batch is written. Spark runs a stream's commit and abort in processes other
than the one that began the attempt, and passes them only the results of tasks. If all tasks were killed and returned
nothing, `abort` finds the attempt in this file. The file also stores the state that this driver committed last. If a
query has nothing to write for so long that its state in Kafka expires, it reads the state from this file.

A driver never reads the file of another driver, even if the other driver had the same process id. If the file is lost,
an open transaction ends when the next batch begins, or at its timeout. If the state in Kafka expires as well, the query
may end with StateError.
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
from typing import Any, Final

from .transaction import Attempt, SinkState

MAX_AGE_S: Final = 7 * 86_400


def remember(attempt: Attempt) -> None:
    """Store this attempt as the driver's newest one."""
    _write(attempt.transactional_id, attempt, last_decided(attempt.transactional_id), attempt.run)


def last_run(transactional_id: str) -> str:
    """Return the run (start of the query) of this driver's newest attempt, or an empty string if it is unknown."""
    try:
        return str(_read(transactional_id)["run"])
    except (OSError, ValueError, TypeError, KeyError):
        return ""


def recall(transactional_id: str) -> Attempt | None:
    """Return this driver's newest attempt, or None if it is already committed or aborted, or if the file is lost."""
    try:
        found = _read(transactional_id)["attempt"]
        state = found.pop("state")
        return Attempt(**found, state=None if state is None else SinkState(*state))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def decided(transactional_id: str, state: SinkState | None) -> None:
    """Store that the newest attempt has been committed or aborted. `state` is the newly committed state, if any."""
    _write(transactional_id, None, state or last_decided(transactional_id), last_run(transactional_id))


def forget(transactional_id: str) -> None:
    """Delete the file of a query."""
    with contextlib.suppress(OSError):
        _path(transactional_id).unlink()


def last_decided(transactional_id: str) -> SinkState | None:
    """Return the state that this driver committed last, or None if it committed none or the file is lost."""
    try:
        return SinkState(*_read(transactional_id)["decided"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(transactional_id: str, attempt: Attempt | None, state: SinkState | None, run: str) -> None:
    """Replace the file of a query. Delete files older than MAX_AGE_S whose drivers have ended. Ignore failures."""
    path = _path(transactional_id)
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.parent.stat().st_uid != os.getuid():
            return  # another user's directory: its content cannot be trusted
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({"attempt": attempt and asdict(attempt), "decided": state, "run": run}))
        new.replace(path)
        for other in path.parent.glob("*.json"):  # files of drivers that were killed
            if other != path and time.time() - other.stat().st_mtime > MAX_AGE_S and not _is_used(other):
                other.unlink(missing_ok=True)


def _read(transactional_id: str) -> Any:
    """Return the content of a query's file. Raises OSError if the file is missing or belongs to another user."""
    path = _path(transactional_id)
    if path.parent.stat().st_uid != os.getuid():
        raise OSError
    return json.loads(path.read_text())


def _is_used(path: Path) -> bool:
    """Return whether the driver that wrote a file is still running."""
    driver = path.stem.rpartition("-")[2]
    process = driver.partition(".")[0]
    return process.isdigit() and _name_of(int(process)) == driver


def _path(transactional_id: str) -> Path:
    """Return the path of a query's file, which is specific to the user, the transactional id and the driver."""
    name = hashlib.sha256(transactional_id.encode()).hexdigest()[:24]
    return Path(tempfile.gettempdir()) / f"oncelog-pipeline-{os.getuid()}" / f"{name}-{_driver()}.json"


def _driver() -> str:
    """Return a name for the driver process, which is the parent of the daemon that forks Spark's Python processes."""
    try:
        return _name_of(int(_stat(os.getppid())[1]))
    except (OSError, ValueError, IndexError):
        return f"{os.getppid()}"


def driver_started_at() -> float | None:
    """Return when the driver started, in seconds since the epoch, or None if the system does not report it."""
    try:
        ticks = int(_stat(int(_stat(os.getppid())[1]))[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return time.time() - age_s


def _name_of(process: int) -> str:
    """Return a name for a process from its id and start time, because process ids are reused."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        return f"{process}.{_stat(process)[19]}.{boot}"
    except (OSError, IndexError):
        return ""


def _stat(process: int) -> list[str]:
    """Return the fields of /proc/<process>/stat from the third field on."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
