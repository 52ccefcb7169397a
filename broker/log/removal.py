"""Removing files that count for nothing any more; large ones take long, so this runs beside the event loop."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ..ports import FileSystem


def unlink_all(fs: FileSystem, paths: Iterable[str]) -> None:
    """Remove files; those that are gone, maybe with their directory, are fine. Raises OSError."""
    for path in paths:
        with suppress(FileNotFoundError):
            fs.unlink(path)


def remove_tree(fs: FileSystem, path: str) -> None:
    """Remove a file, a link (not what it leads to) or a directory with all that is in it. Raises OSError."""
    if fs.is_directory(path):
        for name in fs.list(path):
            remove_tree(fs, f"{path}/{name}")
        fs.remove_directory(path)
    elif fs.exists(path):
        fs.unlink(path)
