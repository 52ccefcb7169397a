"""What a checkpoint says about batches: which one is planned, with which digest, and which one is done.

Spark writes the offsets of a batch into `<checkpoint>/offsets/<number>` before the batch runs, and
`<checkpoint>/commits/<number>` after it. It runs a batch again from the first note until the second is there. Where the
first was lost (a checkpoint restored from a copy, a disk that lost power), Spark plans another batch with the same
number. That must not be taken for the one that was committed, or its further rows would never be written.

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
"""So many notes are read: another driver of the query may have planned the next batch already."""

_SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>/.*)", re.DOTALL)
_SLASHES: Final = re.compile("/+")


class Plan(NamedTuple):
    """The newest batch that a checkpoint has planned."""

    batch_id: int
    digest: str
    """Of what Spark has noted: sources, offsets and the time of planning."""


class Notes(Protocol):
    """The notes of one checkpoint. Both methods raise OSError where they cannot be read."""

    def numbers(self, kind: str) -> list[int]:
        """The numbers of the batches in the directory `kind`: offsets or commits. Empty where it is missing."""
        ...

    def read(self, kind: str, number: int) -> bytes:
        """One note."""
        ...


class LocalNotes:
    """Notes on this machine's disk."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def numbers(self, kind: str) -> list[int]:
        """The batches of which there is a note."""
        directory = self._path / kind
        return [int(note.name) for note in directory.iterdir() if note.name.isdigit()] if directory.is_dir() else []

    def read(self, kind: str, number: int) -> bytes:
        """One note."""
        return (self._path / kind / str(number)).read_bytes()


def local_path(location: str) -> str | None:
    """Return a checkpointLocation as a path of this machine; None for one with the scheme of another file system."""
    parts = _SCHEME.fullmatch(location)
    if parts is None:
        return location or None
    if parts["scheme"].lower() != "file":
        return None
    rest = parts["rest"]
    return "/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest


def normalised(location: str) -> str:
    """Return one spelling per checkpointLocation, by Hadoop's rules, whatever the working directory.

    `dbfs:/x` and `dbfs:///x` are the same, as are schemes in capitals, doubled slashes and `.` and `..` in the path. A
    path without a scheme is absolute on this machine.
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
    """Return a path without doubled slashes and dots, by its text alone, as Hadoop's Path has it."""
    return posixpath.normpath(_SLASHES.sub("/", path))


def digest_of(note: bytes) -> str:
    """Return what tells a plan from others with its number."""
    return hashlib.sha256(note).hexdigest()[:32]


def digest(notes: Notes, batch_id: int) -> str:
    """Return the digest of a batch's plan. Raises OSError."""
    return digest_of(notes.read("offsets", batch_id))


def done_and_pending(notes: Notes) -> tuple[int | None, int | None]:
    """Return the newest batch that is done, and the one that Spark will run again. Raises OSError."""
    planned = max(notes.numbers("offsets"), default=None)
    done = max(notes.numbers("commits"), default=None)
    pending = None if planned is None or (done is not None and done >= planned) else planned
    return done, pending


def planned_at(notes: Notes, batch_id: int) -> float | None:
    """Return when a batch was planned, in seconds since the epoch; None where the note does not say. Raises OSError."""
    try:
        _, metadata, *_ = notes.read("offsets", batch_id).decode().splitlines()
        return float(json.loads(metadata)["batchTimestampMs"]) / 1000
    except (ValueError, KeyError, TypeError):
        return None


def recent_plans(location: str) -> list[Plan]:
    """Return the newest plans of a checkpoint, newest first; none where they cannot be seen from this process."""
    path = local_path(location)
    if path is None:
        return []
    notes = LocalNotes(path)
    try:
        return [Plan(one, digest(notes, one)) for one in sorted(notes.numbers("offsets"), reverse=True)[:RECENT]]
    except OSError:
        return []


def newest_plan(location: str) -> Plan | None:
    """Return the batch that is about to run; None where that cannot be seen from this process."""
    return next(iter(recent_plans(location)), None)
