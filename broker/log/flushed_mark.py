"""Read and write a partition's `flushed-offset` file: the offset up to which the partition is known to be on disk.

The file contains 12 bytes: the offset (int64) and the crc32c of the offset (uint32). The file is overwritten in place
after each sync of the partition's files, but it is never synced itself. The offset of a flush to the journal is
recorded only in the journal. If only the process crashes, the file and the journal together give the exact offset.
After a loss of power, the file may hold an older offset, but never a newer one. So every record below the offset was on
disk. If such a record is missing or damaged after a restart, the disk has lost it, and the loss cannot be a torn write.
"""

from __future__ import annotations

import errno

from ..system.ports import FileSystem
from .file_names import FLUSHED_OFFSET
from .small_files import decode_offset, encode_offset


def write_flushed_offset(fs: FileSystem, directory: str, offset: int) -> None:
    """Record that the partition in `directory` is on disk up to `offset` (exclusive). Raises OSError."""
    fs.overwrite(f"{directory}/{FLUSHED_OFFSET}", encode_offset(offset))


def read_flushed_offset(fs: FileSystem, directory: str) -> int | None:
    """Return the flushed offset of the partition in `directory`; 0 if the file is missing or damaged.

    Return None if the disk cannot read the file (EIO): then it is not known which records were on disk. Raises OSError
    for all other errors.
    """
    try:
        return decode_offset(fs.read_file(f"{directory}/{FLUSHED_OFFSET}"))
    except FileNotFoundError:
        return 0
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None


def remove_flushed_offset(fs: FileSystem, directory: str) -> None:
    """Remove the `flushed-offset` file of a partition before its log is truncated on purpose. Raises OSError."""
    path = f"{directory}/{FLUSHED_OFFSET}"
    if fs.exists(path):
        fs.unlink(path)
