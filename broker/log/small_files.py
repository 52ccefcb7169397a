"""Replace small files as a whole: write under a temporary name, sync if asked, then rename.

This module also reads and writes Kafka's checkpoint format: a version line, a count line, and one line of words per
entry. Checkpoints of offsets end with an entry that has an impossible topic name, `#crc32c 0 <checksum of the entries
before it>`. Other readers of the format take it for one more partition. This module's reader uses it to detect flipped
bits.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Final

import structlog
from crc32c import crc32c

from ..system.ports import File, FileSystem
from .file_names import TEMPORARY

logger = structlog.get_logger(__name__)

_OFFSET: Final = Struct(">q")
_MARK: Final = Struct(">qI")
_CHECKSUM: Final = "#crc32c"
_BLOCK: Final = 4096
"""The number of bytes that are read at a time around bytes that the disk cannot read."""


def write_file(fs: FileSystem, path: str, content: bytes, *, sync: bool = False) -> None:
    """Replace the file at `path` atomically: a reader sees the old or the new content, even if the process is killed.

    With `sync`, the content and the new name are on disk when this returns. Without `sync`, a power failure may leave a
    mixture of old and new bytes, so the content must contain its own checksum. If OSError is raised, the file has
    the old or the new content.
    """
    replace_file(fs, path, content, sync=sync)
    if sync:
        fs.sync_directory(path.rpartition("/")[0])


def replace_file(fs: FileSystem, path: str, content: bytes, *, sync: bool = False) -> None:
    """Do the work of `write_file`, but do not sync the directory. The caller syncs it once for several files."""
    with replacing(fs, path) as file:
        if content:
            file.write_at([content], 0)
        file.truncate(len(content))
        if sync:
            file.fdatasync()


@contextmanager
def replacing(fs: FileSystem, path: str) -> Iterator[File]:
    """Open a file under a temporary name; when the block ends without an error, give it the name `path`.

    The block must truncate the file to the size of its content. Raises OSError.
    """
    temporary = path + TEMPORARY
    file = fs.open(temporary, create=True)
    try:
        yield file
    finally:
        file.close()
    fs.rename(temporary, path)


def renew_file(fs: FileSystem, path: str) -> None:
    """Write the content of a small file to a new file of the same name, and sync the file and its directory.

    If a sync of the file has failed before, another sync alone would not put the content on disk. Raises OSError.
    """
    write_file(fs, path, fs.read_file(path), sync=True)


def encode_offset(offset: int) -> bytes:
    """Return the content of a file with one offset: the offset (int64), and the crc32c of the offset (uint32)."""
    return _MARK.pack(offset, crc32c(_OFFSET.pack(offset)))


def decode_offset(content: bytes) -> int:
    """Return the offset that `encode_offset` encoded; 0 if the content is damaged."""
    if len(content) != _MARK.size:
        return 0
    offset, crc = _MARK.unpack(content)
    return max(offset, 0) if crc == crc32c(content[: _OFFSET.size]) else 0


def read_derived(fs: FileSystem, path: str) -> bytes | None:
    """Return the content of a file that can be rebuilt; None if it is missing, or if the disk cannot read it (EIO).

    Raises OSError for all other errors.
    """
    try:
        return fs.read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        logger.warning("file cannot be read", file=path, error=str(error), remedy="none needed: it is rebuilt")
        return None


def read_readable(file: File, path: str, size: int, position: int, unreadable: list[range] | None = None) -> bytes:
    """Return `size` bytes from `position` of the open file at `path` on, or fewer if the file ends earlier.

    Zeros take the place of blocks that the disk cannot read (EIO). These blocks are logged, and added to `unreadable`.
    Raises OSError for all other errors.
    """
    try:
        return file.read_at(size, position)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    content = bytearray()
    end = min(position + size, file.size())
    for start in range(position, end, _BLOCK):
        block = range(start, min(start + _BLOCK, end))
        try:
            content += file.read_at(len(block), start)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            remedy = "check the disk"
            logger.warning("bytes cannot be read", file=path, position=start, error=str(error), remedy=remedy)
            content += bytes(len(block))
            if unreadable is not None:
                unreadable.append(block)
    return bytes(content)


def encode_checkpoint(entries: Iterable[Iterable[object]]) -> bytes:
    """Return the content of a checkpoint file of version 0; each entry becomes a line of words."""
    lines = [" ".join(str(word) for word in entry) for entry in entries]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def decode_checkpoint(content: bytes, words: int) -> list[list[str]]:
    """Return the entries of a checkpoint file as lists of words.

    Raises ValueError if the content is cut off, has a version other than 0, or has an entry with more or fewer than
    `words` words.
    """
    lines = content.decode().splitlines()
    if len(lines) < 2 or lines[0] != "0" or not lines[1].isdigit() or len(lines) != 2 + int(lines[1]):
        raise ValueError("the content is not a complete checkpoint file of version 0")
    entries = [line.split(" ") for line in lines[2:]]
    if any(len(entry) != words for entry in entries):
        raise ValueError(f"an entry of the checkpoint file does not consist of {words} words")
    return entries


def encode_offsets(offsets: Iterable[tuple[str, int, int]]) -> bytes:
    """Return the content of a checkpoint file with (topic, partition, offset) entries and a checksum."""
    entries = list(offsets)
    return encode_checkpoint([*entries, (_CHECKSUM, 0, _checksum(entries))])


def decode_offsets(content: bytes) -> dict[tuple[str, int], int]:
    """Return the offsets of a checkpoint file by (topic, partition).

    Raises ValueError if the content is damaged. Files of older versions and of Kafka have no checksum.
    """
    entries = [(topic, int(partition), int(offset)) for topic, partition, offset in decode_checkpoint(content, 3)]
    if entries and entries[-1][0] == _CHECKSUM:
        checksum = entries.pop()[2]
        if _checksum(entries) != checksum:
            raise ValueError("the checksum does not match the entries")
    return {(topic, partition): offset for topic, partition, offset in entries}


def _checksum(entries: Iterable[tuple[str, int, int]]) -> int:
    """Return the crc32c of the entries as text lines."""
    return crc32c("\n".join(f"{topic} {partition} {offset}" for topic, partition, offset in entries).encode())
