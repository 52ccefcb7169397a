"""What recovery and repair cut off a log: kept in `removed/` of the data directory, beside the partitions.

Owns the names and how long they are kept. `removed/<time>-torn/<partition>/` has what recovery cut off by itself, which
was never acknowledged: at most `MAX_TORN_BYTES` of one cut, and only until `TORN_RETENTION_MS` have passed, looked at
when a broker starts. `removed/<time>-repair/<partition>/` has what `oncelog log repair` cut off: it may have been
acknowledged, so only a person deletes it. Nothing here is ever read by the broker.
"""

from __future__ import annotations

import time
from typing import Final

from ..ports import FileSystem
from .file_names import REMOVED
from .flusher import sync_path
from .removal import remove_tree

MAX_TORN_BYTES: Final = 256 << 20
"""Bytes that are kept of one torn tail, about; the rest of it goes."""

TORN_RETENTION_MS: Final = 7 * 24 * 3_600_000
"""How long a torn tail is kept."""

TORN: Final = "torn"
REPAIR: Final = "repair"
_PIECE: Final = 1 << 20


def keep_directory(partition_path: str, now_ms: int, why: str) -> str:
    """Where to put what is cut off the partition at this moment: a path, not made yet."""
    root, _, partition = partition_path.rpartition("/")
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_ms / 1000))
    return f"{root}/{REMOVED}/{moment}-{why}/{partition}"


def keep(fs: FileSystem, source: str, position: int, directory: str, most: int | None = None) -> int:
    """Copy a file from byte `position` on into `directory`, on disk when this returns; returns how many bytes.

    The copy is named `<file>.from-<position>`. `most`: no more bytes than that. Raises OSError.
    """
    made = [directory]
    while not fs.exists(made[-1].rpartition("/")[0]):
        made.append(made[-1].rpartition("/")[0])
    fs.make_directory(directory)
    for path in made:
        fs.sync_directory(path.rpartition("/")[0])
    target = f"{directory}/{source.rpartition('/')[2]}.from-{position}"
    origin = fs.open(source)
    try:
        copy = fs.open(target, create=True)
        try:
            copy.truncate(0)
            copied = 0
            while piece := origin.read_at(_PIECE if most is None else min(_PIECE, most - copied), position + copied):
                copy.write_at([piece], copied)
                copied += len(piece)
        finally:
            copy.close()
    finally:
        origin.close()
    sync_path(fs, target)
    fs.sync_directory(directory)
    return copied


def remove_expired(fs: FileSystem, root: str, now_ms: int) -> list[str]:
    """Remove the torn tails that were kept long enough; returns their directories. Raises OSError."""
    removed: list[str] = []
    path = f"{root}/{REMOVED}"
    oldest = time.strftime("%Y%m%d-%H%M%S", time.gmtime((now_ms - TORN_RETENTION_MS) / 1000))
    for name in fs.list(path) if fs.is_directory(path) else []:
        if name.endswith(f"-{TORN}") and name < oldest:
            remove_tree(fs, f"{path}/{name}")
            removed.append(f"{path}/{name}")
    return removed
