"""Up to where a partition is known to be on disk: the `flushed-offset` file in its directory.

Owns the file's 12 bytes: offset int64, crc32c uint32 of the offset. It is overwritten in place after each flush and
never synced: after the end of the process alone it is exact, after a loss of power it may be older than the truth, and
never newer. So everything below it was on disk, and what is missing or damaged there was lost, not torn.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from crc32c import crc32c

from ..ports import FileSystem
from .file_names import FLUSHED_OFFSET

_OFFSET: Final = Struct(">q")
_MARK: Final = Struct(">qI")


def write_flushed_offset(fs: FileSystem, directory: str, offset: int) -> None:
    """Note that the partition in `directory` is on disk up to `offset` (exclusive). Raises OSError."""
    file = fs.open(f"{directory}/{FLUSHED_OFFSET}", create=True)
    try:
        file.write_at([_MARK.pack(offset, crc32c(_OFFSET.pack(offset)))], 0)
    finally:
        file.close()


def read_flushed_offset(fs: FileSystem, directory: str) -> int:
    """What was noted last; 0 without a mark, or with a damaged one."""
    try:
        content = fs.read_file(f"{directory}/{FLUSHED_OFFSET}")
    except FileNotFoundError:
        return 0
    if len(content) != _MARK.size:
        return 0
    offset, crc = _MARK.unpack(content)
    return max(offset, 0) if crc == crc32c(content[: _OFFSET.size]) else 0


def remove_flushed_offset(fs: FileSystem, directory: str) -> None:
    """Forget the mark: the partition is cut on purpose. Raises OSError."""
    path = f"{directory}/{FLUSHED_OFFSET}"
    if fs.exists(path):
        fs.unlink(path)
