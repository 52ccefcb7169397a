"""Read what a checkpoint says about batches: which batch is planned, with which digest, and which one is done.

Spark writes the offsets of a batch into `<checkpoint>/offsets/<number>` before the batch runs, and
`<checkpoint>/commits/<number>` after it. These files are called notes. If a batch has only the note in `offsets`, Spark
runs the batch again. If that note was lost, for example because the checkpoint was restored from a copy or the disk
lost power, Spark plans another batch with the same number. The sink must not mistake that batch for the committed one:
otherwise, the rows that only the new batch has would never be written.

`Notes` are read from this machine's disk (`LocalNotes`), or through Hadoop by the driver (`hadoop_notes.py`).
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from pathlib import Path
from typing import Final, NamedTuple, Protocol

RECENT: Final = 3
"""The number of newest notes to read. It is more than one, because another driver may have planned the next batch."""

_SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>/.*)", re.DOTALL)
_SLASHES: Final = re.compile("/+")


class Plan(NamedTuple):
    """A batch that a checkpoint has planned."""

    batch_id: int
    digest: str
    """Digest of Spark's note about the batch. The note has the batch's sources, offsets and time of planning."""


class Notes(Protocol):
    """The notes in a checkpoint: Spark's files about batches. Both methods raise OSError if a note cannot be read."""

    def numbers(self, kind: str) -> list[int]:
        """Return the numbers of the batches in the directory `kind` (offsets or commits), or [] if it is missing."""
        ...

    def read(self, kind: str, number: int) -> bytes:
        """Return the content of one note."""
        ...


class LocalNotes:
    """The notes in a checkpoint (Spark's files about batches) on this machine's disk."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def numbers(self, kind: str) -> list[int]:
        """Return the numbers of the batches with a note in the directory `kind`: offsets or commits."""
        directory = self._path / kind
        return [int(note.name) for note in directory.iterdir() if note.name.isdigit()] if directory.is_dir() else []

    def read(self, kind: str, number: int) -> bytes:
        """Return the content of one note."""
        return (self._path / kind / str(number)).read_bytes()


def local_path(location: str) -> str | None:
    """Return a checkpointLocation as a path of this machine, or None if it has the scheme of another file system."""
    parts = _SCHEME.fullmatch(location)
    if parts is None:
        return location or None
    if parts["scheme"].lower() != "file":
        return None
    rest = parts["rest"]
    return "/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest


def normalised(location: str) -> str:
    """Return a checkpointLocation in one form, which is the same for all of its spellings, by Hadoop's rules.

    `dbfs:/x` and `dbfs:///x` are the same, as are schemes in capitals, doubled slashes, and `.` and `..` in the path. A
    path without a scheme is made absolute on this machine.
    """
    path = local_path(location)
    if path is not None:
        return str(Path(_folded(path)).absolute())
    parts = _SCHEME.fullmatch(location)
    assert parts is not None
    rest = parts["rest"] if parts["rest"].startswith("//") else f"//{parts['rest']}"
    authority, slash, path = rest[2:].partition("/")
    return f"{parts['scheme'].lower()}://{authority}{_folded(slash + path) if slash else ''}".rstrip("/")


def _folded(path: str) -> str:
    """Return a path without doubled slashes, `.` and `..`. Like Hadoop's Path, this looks only at the text."""
    return posixpath.normpath(_SLASHES.sub("/", path))


def digest_of(note: bytes) -> str:
    """Return the digest that distinguishes a plan from other plans of the batch with the same number."""
    return hashlib.sha256(note).hexdigest()[:32]


def digest(notes: Notes, batch_id: int) -> str:
    """Return the digest of a batch's plan. Raises OSError."""
    return digest_of(notes.read("offsets", batch_id))


def done_and_pending(notes: Notes) -> tuple[int | None, int | None]:
    """Return (newest batch that is done, batch that Spark will run again); either may be None. Raises OSError."""
    planned = max(notes.numbers("offsets"), default=None)
    done = max(notes.numbers("commits"), default=None)
    pending = None if planned is None or (done is not None and done >= planned) else planned
    return done, pending


def planned_at(notes: Notes, batch_id: int) -> float | None:
    """Return when a batch was planned, in seconds since the epoch, or None if its note has no time. Raises OSError."""
    try:
        _, metadata, *_ = notes.read("offsets", batch_id).decode().splitlines()
        return float(json.loads(metadata)["batchTimestampMs"]) / 1000
    except (ValueError, KeyError, TypeError):
        return None


def recent_plans(location: str) -> list[Plan]:
    """Return the newest plans of a checkpoint, newest first. Return no plans if this process cannot read them."""
    path = local_path(location)
    if path is None:
        return []
    notes = LocalNotes(path)
    try:
        return [Plan(one, digest(notes, one)) for one in sorted(notes.numbers("offsets"), reverse=True)[:RECENT]]
    except OSError:
        return []


def newest_plan(location: str) -> Plan | None:
    """Return the newest plan, which is about to run, or None if this process cannot read it."""
    return next(iter(recent_plans(location)), None)
