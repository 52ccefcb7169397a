"""Keep the bytes that recovery and repair cut off a log, in the folder `removed/` of the data directory.

This module decides the names in this folder, and how long its content is kept:

* `removed/<time>-torn/<partition>/` has the bytes that recovery cut off by itself. With durability "flush", they were
  never acknowledged with acks=all. At most about `MAX_TORN_BYTES` of one cut are kept. The broker removes them at its
  first start after `TORN_RETENTION_MS`.
* `removed/<time>-repair/<partition>/` has the bytes that `oncelog log repair` cut off. They may have been acknowledged,
  so the broker never removes them. An operator has to.

The broker never reads these files.
"""

from __future__ import annotations

import time
from typing import Final

from ..system.ports import FileSystem
from .file_names import REMOVED
from .removal import remove_tree
from .small_files import read_readable

MAX_TORN_BYTES: Final = 256 << 20
"""Approximate number of bytes that are kept of one torn tail; the rest is dropped."""

TORN_RETENTION_MS: Final = 7 * 24 * 3_600_000
"""Time in ms for which a torn tail is kept."""

TORN: Final = "torn"
REPAIR: Final = "repair"
_PIECE: Final = 1 << 20


def keep_directory(partition_path: str, now_ms: int, why: str) -> str:
    """Return the path of the directory for the bytes that are cut off a partition now. `keep` creates the directory.

    `why` is `TORN` or `REPAIR`.
    """
    root, _, partition = partition_path.rpartition("/")
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_ms / 1000))
    return f"{root}/{REMOVED}/{moment}-{why}/{partition}"


def keep(fs: FileSystem, source: str, position: int, directory: str, most: int | None = None) -> int:
    """Copy a file from byte `position` on into `directory`, sync the copy, and return the number of bytes copied.

    The copy is named `<file>.from-<position>`. With `most`, copy at most that many bytes. Zeros take the place of bytes
    that the disk cannot read. Raises OSError.
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
            while piece := read_readable(
                origin, source, _PIECE if most is None else min(_PIECE, most - copied), position + copied
            ):
                copy.write_at([piece], copied)
                copied += len(piece)
            copy.fdatasync()  # the handle that wrote the bytes knows of an earlier failed sync
        finally:
            copy.close()
    finally:
        origin.close()
    fs.sync_directory(directory)
    return copied


def remove_expired(fs: FileSystem, root: str, now_ms: int) -> list[str]:
    """Remove the torn tails older than `TORN_RETENTION_MS` and return their directories. Raises OSError."""
    removed: list[str] = []
    path = f"{root}/{REMOVED}"
    oldest = time.strftime("%Y%m%d-%H%M%S", time.gmtime((now_ms - TORN_RETENTION_MS) / 1000))
    for name in fs.list(path) if fs.is_directory(path) else []:
        if name.endswith(f"-{TORN}") and name < oldest:
            remove_tree(fs, f"{path}/{name}")
            removed.append(f"{path}/{name}")
    return removed
