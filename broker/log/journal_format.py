"""Define the bytes of a journal file: a header, followed by batches of entries.

One fdatasync makes a batch durable. A batch consists of a frame and the bytes of its entries. The frame lists the
entries, with a checksum of the bytes of each entry, and has a checksum of its own. So if the bytes of an entry are
damaged, it is still known to which partition they belong. All integers are big endian, and checksums are CRC-32C:

    header, 512 bytes   magic "OJF1", uint32 checksum of the rest, uint64 number, 8 bytes id, boot id (ASCII), zeros
    batch               magic "OJB1", uint32 checksum of the rest of the frame, 8 bytes id, uint64 sequence,
                        uint32 size of the lists, uint32 size of all bytes that follow the frame, the lists
    lists               uint32 count, then per entry: uint16 size of the name, name of the partition's directory,
                        uint64 base offset of the segment, uint64 position in its `.log` file, uint32 size,
                        uint64 end offset of the partition, uint32 mark of the segment, uint32 checksum of the bytes
                        uint32 count, then per void: uint16 size of the name, name, uint64 base offset

A void names a partition and a base offset. It invalidates the entries in earlier batches for those segments of the
partition that have a lower base offset. The mark of a segment distinguishes it from another segment with the same name
(`segment_mark`), so an entry is redone only in the file for which it was made, even if a void is lost. The id is
random, so that records of a client cannot pass for a batch. Within a file, the sequences of the batches have no gap.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from ...protocol.batch_header import HEADER_SIZE as BATCH_HEADER_SIZE
from ..system.ports import Buffer, File
from .batch_scan import BrokenBatch, scan_windows

HEADER_SIZE: Final = 512
ID_SIZE: Final = 8
EVERYTHING: Final = (1 << 63) - 1
"""The base offset of a void for all segments of a partition."""

KEPT: Final = 0
"""The sequence of a batch of entries copied from other journal files. Such a batch is outside the order of batches."""

_FILE_MAGIC: Final = b"OJF1"
_BATCH_MAGIC: Final = b"OJB1"
_CHECKSUM: Final = Struct(">I")
_FILE: Final = Struct(">Q8s")
_FRAME: Final = Struct(">8sQII")
_COUNT: Final = Struct(">I")
_NAME: Final = Struct(">H")
_ENTRY: Final = Struct(">QQIQII")
_VOID: Final = Struct(">Q")
_LISTS: Final = len(_BATCH_MAGIC) + _CHECKSUM.size + _FRAME.size
FRAME_SIZE: Final = _LISTS + 2 * _COUNT.size
"""Size in bytes of a batch that has neither entries nor voids."""

ENTRY_SIZE: Final = _NAME.size + _ENTRY.size
"""Size in bytes of an entry without its name and its bytes. A void is smaller."""


def segment_mark(file: File) -> int:
    """Return the mark of a segment: the CRC-32C of the header of its first batch. Raises OSError.

    The header of a batch contains a checksum, timestamps and the producer's sequence. If a partition is deleted and
    another one gets its name, their segments therefore have different marks.
    """
    return crc32c(file.read_at(BATCH_HEADER_SIZE, 0))


class Entry(NamedTuple):
    """Bytes in a journal that belong to a partition's segment. `content` is None if the bytes are damaged."""

    name: str
    base_offset: int
    position: int
    size: int
    end_offset: int
    mark: int
    checksum: int
    content: Buffer | None


class Extent(NamedTuple):
    """The bytes of a partition that a flush has to make durable: `size` bytes of `file` from `position` on.

    `name`: the name of the partition's directory. `base_offset`: the base offset of the segment. `end_offset`: the
    offset after the last batch in these bytes.
    """

    name: str
    base_offset: int
    position: int
    size: int
    end_offset: int
    file: File

    def read(self) -> Entry:
        """Return the journal entry for this extent, with the bytes from the page cache.

        Raises OSError if the cache no longer has the appended batches: a file system may drop pages that it could not
        write.
        """
        end = self.position + self.size
        try:
            content = b"".join(scan_windows(self.file, self.position, end, self.size))
        except BrokenBatch as error:
            raise OSError(errno.EIO, f"{self.name}: at byte {error.position}: {error.reason}") from error
        mark = segment_mark(self.file)
        return Entry(
            self.name, self.base_offset, self.position, self.size, self.end_offset, mark, crc32c(content), content
        )


class Void(NamedTuple):
    """Invalidates entries in earlier batches: those for segments of `name` with base offsets below `below`."""

    name: str
    below: int = EVERYTHING


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch whose frame is intact. `is_whole`: whether the bytes of all entries are intact, too. `size`: in bytes."""

    sequence: int
    entries: tuple[Entry, ...]
    voids: tuple[Void, ...]
    size: int

    @property
    def is_whole(self) -> bool:
        return all(entry.content is not None for entry in self.entries)


class Header(NamedTuple):
    """The header of a journal file.

    `boot_id`: the id of the operating system's boot during which the file was written, or "" if it does not matter.
    """

    number: int
    file_id: bytes
    boot_id: str


def encode_header(header: Header) -> bytes:
    """Return the bytes of a header."""
    number, file_id, boot_id = header
    content = (_FILE.pack(number, file_id) + boot_id.encode("ascii")).ljust(HEADER_SIZE - 8, b"\0")
    return _FILE_MAGIC + _CHECKSUM.pack(crc32c(content)) + content


def decode_header(content: Buffer) -> Header | None:
    """Return the header of a journal file; None if it is damaged or missing."""
    data = bytes(content[:HEADER_SIZE])
    if len(data) < HEADER_SIZE or data[:4] != _FILE_MAGIC or _CHECKSUM.unpack_from(data, 4)[0] != crc32c(data[8:]):
        return None
    number, file_id = _FILE.unpack_from(data, 8)
    return Header(number, file_id, data[8 + _FILE.size :].rstrip(b"\0").decode("ascii"))


def encode_batch(
    file_id: bytes,
    sequence: int,
    entries: Sequence[Entry],
    voids: Iterable[Void] = (),
) -> bytes:
    """Return the bytes of a batch. Zeros, which do not match the checksum, take the place of damaged bytes."""
    lists = [_COUNT.pack(len(entries))]
    size = 0
    for entry in entries:
        encoded = entry.name.encode()
        numbers = (entry.base_offset, entry.position, entry.size, entry.end_offset, entry.mark, entry.checksum)
        lists += (_NAME.pack(len(encoded)), encoded, _ENTRY.pack(*numbers))
        size += entry.size
    voided = [_NAME.pack(len(name.encode())) + name.encode() + _VOID.pack(below) for name, below in voids]
    listed = b"".join((*lists, _COUNT.pack(len(voided)), *voided))
    frame = _FRAME.pack(file_id, sequence, len(listed), size) + listed
    contents = (bytes(entry.size) if entry.content is None else entry.content for entry in entries)
    return b"".join((_BATCH_MAGIC, _CHECKSUM.pack(crc32c(frame)), frame, *contents))


def decode_batch(content: memoryview, position: int, file_id: bytes | None) -> tuple[bytes, Batch] | None:
    """Return (file id, batch) of the batch at byte `position`; None if there is no intact frame of this file."""
    if bytes(content[position : position + 4]) != _BATCH_MAGIC or len(content) - position < FRAME_SIZE:
        return None
    found_id, sequence, lists_size, bytes_size = _FRAME.unpack_from(content, position + 8)
    start = position + _LISTS
    data = start + lists_size
    if data > len(content) or (file_id is not None and found_id != file_id):
        return None
    if _CHECKSUM.unpack_from(content, position + 4)[0] != crc32c(content[position + 8 : data]):
        return None
    entries, voids = _decode_lists(content, start, data)
    return found_id, Batch(sequence, entries, voids, data + bytes_size - position)


def _decode_lists(content: memoryview, at: int, data: int) -> tuple[tuple[Entry, ...], tuple[Void, ...]]:
    """Return the entries and voids of a frame with a valid checksum. The bytes of the entries begin at `data`."""
    entries = []
    (count,) = _COUNT.unpack_from(content, at)
    at += _COUNT.size
    for _ in range(count):
        name, at = _decode_name(content, at)
        base_offset, position, size, end_offset, mark, checksum = _ENTRY.unpack_from(content, at)
        at += _ENTRY.size
        found = content[data : data + size]
        data += size
        whole = len(found) == size and crc32c(found) == checksum
        bytes_found = found if whole else None
        entries.append(Entry(name, base_offset, position, size, end_offset, mark, checksum, bytes_found))
    voids = []
    (count,) = _COUNT.unpack_from(content, at)
    at += _COUNT.size
    for _ in range(count):
        name, at = _decode_name(content, at)
        voids.append(Void(name, *_VOID.unpack_from(content, at)))
        at += _VOID.size
    return tuple(entries), tuple(voids)


def _decode_name(content: memoryview, at: int) -> tuple[str, int]:
    """Return a name and the position after it."""
    (size,) = _NAME.unpack_from(content, at)
    at += _NAME.size
    return str(content[at : at + size], "utf-8"), at + size


@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of a journal file. `header` is None if it is damaged.

    `batches`: in the order in which they were written. `damage`: the position of the damaged frame of a batch that was
    acknowledged, or None. `may_be_torn`: whether the last batch, if it is not whole, may be a torn write that was never
    acknowledged.
    """

    header: Header | None
    batches: tuple[Batch, ...]
    damage: int | None = None
    may_be_torn: bool = True


def decode_file(content: Buffer, unreadable: Iterable[range] = ()) -> FileContent:
    """Read a journal file. `unreadable`: the bytes that the disk could not read; zeros take their place in `content`.

    Only the last batch can be torn, because each batch is written only after the one before it is on disk. So a frame
    that is not intact is damage if intact frames follow it, or if the disk could not read it. If the header is damaged,
    the id of the file is taken from the first batch. If that batch is damaged, too, the id is unknown. Without it, a
    later batch cannot be distinguished from a client's record that looks like a batch. So nothing more is read, and any
    bytes other than zeros count as damage.
    """
    view = memoryview(content)
    header = decode_header(view)
    file_id = None if header is None else header.file_id
    batches: list[Batch] = []
    damage: int | None = None
    position = HEADER_SIZE
    while True:
        found = decode_batch(view, position, file_id)
        if found is not None:
            file_id, batch = found
            batches.append(batch)
            position += batch.size
            continue
        later = None if file_id is None else _next_batch(view, position, file_id)
        if damage is None and (later is not None or (file_id is None and bytes(view[position:]).strip(b"\0"))):
            damage = position
        if later is None:
            break
        position = later
    unreadable = list(unreadable)
    if damage is None and any(part.stop > position for part in unreadable):
        damage = position
    return FileContent(header, tuple(batches), damage, not unreadable)


def _next_batch(content: memoryview, position: int, file_id: bytes) -> int | None:
    """Return the position of the first intact frame after `position`, or None if there is none."""
    data = bytes(content[position:])
    at = 0
    while (at := data.find(_BATCH_MAGIC, at + 1)) >= 0:
        if decode_batch(content, position + at, file_id) is not None:
            return position + at
    return None
