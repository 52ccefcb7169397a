"""Which batch a number stands for: Spark's note of what it has planned, as the sink can see it.

Spark writes the offsets of a batch into `<checkpoint>/offsets/<number>` before the batch runs, and runs it again from
there. Where that note was lost (a checkpoint restored from a copy, a disk that lost power), Spark plans another batch
with the same number: it must not be taken for the one that was committed, or its further rows would never be written.

Only checkpoints in a file system of this machine are looked at; others keep what was written.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple


class Plan(NamedTuple):
    """The newest batch that a checkpoint has planned."""

    batch_id: int
    digest: str
    """Of what Spark has noted: sources, offsets and the time of planning."""


def local_path(location: str) -> str | None:
    """A checkpointLocation as a path of this machine; None for one that lies elsewhere."""
    path = location.removeprefix("file://") if location.startswith("file:///") else location.removeprefix("file:")
    return None if "://" in path or not path else path


def newest_plan(location: str) -> Plan | None:
    """The batch that is about to run, None where that cannot be seen."""
    path = local_path(location)
    if path is None:
        return None
    try:
        notes = {int(note.name): note for note in (Path(path) / "offsets").iterdir() if note.name.isdigit()}
        batch_id = max(notes, default=None)
        if batch_id is None:
            return None
        return Plan(batch_id, hashlib.sha256(notes[batch_id].read_bytes()).hexdigest()[:32])
    except OSError:
        return None
