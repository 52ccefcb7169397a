"""Remove files that are no longer needed. This runs in threads, because removing large files takes a long time."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ..system.ports import FileSystem


def unlink_all(fs: FileSystem, paths: Iterable[str]) -> None:
    """Remove the files at `paths`; ignore files that are already gone. Raises OSError."""
    for path in paths:
        with suppress(FileNotFoundError):
            fs.unlink(path)


def remove_tree(fs: FileSystem, path: str) -> None:
    """Remove a file, a symbolic link (not its target), or a directory with its content. Raises OSError."""
    if fs.is_directory(path):
        remove_content(fs, path)
        fs.remove_directory(path)
    elif fs.exists(path):
        fs.unlink(path)


def remove_content(fs: FileSystem, path: str) -> None:
    """Remove everything in a directory, but not the directory itself. Raises OSError."""
    for name in fs.list(path) if fs.is_directory(path) else []:
        remove_tree(fs, f"{path}/{name}")
