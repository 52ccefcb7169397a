"""Small files that are replaced as a whole: written under a temporary name, synced if asked, then renamed.

Also Kafka's checkpoint format: a version line, a count line, and one line of words per entry. Checkpoints of offsets
end with an entry of a topic that cannot be, `#crc32c 0 <checksum of the entries before it>`: other readers of the
format take it for one more partition, ours finds a flipped bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from ..ports import FileSystem
from .file_names import TEMPORARY

_CHECKSUM: Final = "#crc32c"


def write_file(fs: FileSystem, path: str, content: bytes, *, sync: bool = False) -> None:
    """Replace `path` at once: a reader, also after a crash, sees the old content or the new.

    With `sync` the content and the name are on disk when this returns; without, a power failure may leave any mixture,
    so the content must carry its own checksum. Raises OSError, leaving the old file.
    """
    temporary = path + TEMPORARY
    file = fs.open(temporary, create=True)
    try:
        if content:
            file.write_at([content], 0)
        file.truncate(len(content))
        if sync:
            file.fdatasync()
    finally:
        file.close()
    fs.rename(temporary, path)
    if sync:
        fs.sync_directory(path.rpartition("/")[0])


def encode_checkpoint(entries: Iterable[Iterable[object]]) -> bytes:
    """A checkpoint file of version 0."""
    lines = [" ".join(str(word) for word in entry) for entry in entries]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def decode_checkpoint(content: bytes, words: int) -> list[list[str]]:
    """The entries of a checkpoint file, each of `words` words; ValueError when it is cut off or of another version."""
    lines = content.decode().splitlines()
    if len(lines) < 2 or lines[0] != "0" or not lines[1].isdigit() or len(lines) != 2 + int(lines[1]):
        raise ValueError("not a whole checkpoint file of version 0")
    entries = [line.split(" ") for line in lines[2:]]
    if any(len(entry) != words for entry in entries):
        raise ValueError(f"checkpoint entries should have {words} words")
    return entries


def encode_offsets(offsets: Iterable[tuple[str, int, int]]) -> bytes:
    """A checkpoint file of (topic, partition, offset)."""
    entries = list(offsets)
    return encode_checkpoint([*entries, (_CHECKSUM, 0, _checksum(entries))])


def decode_offsets(content: bytes) -> dict[tuple[str, int], int]:
    """Offsets by (topic, partition); ValueError when the file is damaged. Files without a checksum are older."""
    entries = [(topic, int(partition), int(offset)) for topic, partition, offset in decode_checkpoint(content, 3)]
    if entries and entries[-1][0] == _CHECKSUM:
        checksum = entries.pop()[2]
        if _checksum(entries) != checksum:
            raise ValueError("the checksum does not match")
    return {(topic, partition): offset for topic, partition, offset in entries}


def _checksum(entries: Iterable[tuple[str, int, int]]) -> int:
    return crc32c("\n".join(f"{topic} {partition} {offset}" for topic, partition, offset in entries).encode())
