"""Looking for valid batches behind one that is broken: they tell a write that a kill tore from bytes that have rotted.

A process that is killed leaves a prefix of its last write, so nothing but that write's own content can follow. Where
the broken batch claims more bytes than the file has, it looks like such a prefix, and batches inside of it are content
of its records (someone stores segments as values): they prove nothing. The exception is a batch whose length alone is
damaged. Its checksum, which does not cover the length, says where it really ends, and a batch begins there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from ...protocol.batch_header import (
    CRC_END,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    read_batch_header,
    verify_crc,
)
from ..ports import File

_SEARCHED: Final = 1 << 20
_MAGIC_POSITION: Final = 16
_MAGIC_BYTE: Final = bytes((MAGIC,))


def find_batch_behind(file: File, broken: int, end: int, offset: int) -> int | None:
    """The position of a valid batch that shows that the broken one at byte `broken` is no torn write; None without one.

    `offset`: the log ends there, by what is valid. Every byte is tried. A batch of an older offset does not count: it
    is a record's content, or was left behind by a write that failed. It is `broken` itself where that batch is whole,
    so that only its offset is damaged, or the offset of one before it.
    """
    try:
        header = read_batch_header(file.read_at(HEADER_SIZE, broken), whole=False)
    except CorruptBatch:
        header = None
    if header is not None:
        if _is_whole(file, broken, end, header):
            return broken
        if header.base_offset == offset and broken + header.size > end:
            return _find_end_by_checksum(file, broken, end, header)
    for position, candidate in _plausible_headers(file, broken + 1, end):
        if candidate.base_offset >= offset and _is_whole(file, position, end, candidate):
            return position
    return None


def _find_end_by_checksum(file: File, broken: int, end: int, header: BatchHeader) -> int | None:
    """Where the batch at `broken` ends if another length than `header` says is right, and a batch follows there."""
    checked = broken + CRC_END
    checksum = 0
    for position, candidate in _plausible_headers(file, broken + HEADER_SIZE, end):
        checksum = crc32c(file.read_at(position - checked, checked), checksum)
        checked = position
        if checksum == header.crc and _is_whole(file, position, end, candidate):
            return position
    return None


def _plausible_headers(file: File, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) wherever the bytes from `start` on could be a batch header."""
    position = start
    while position + HEADER_SIZE <= end:
        window = file.read_at(min(_SEARCHED, end - position), position)
        at = -1
        while (at := window.find(_MAGIC_BYTE, at + 1)) >= 0:
            candidate = at - _MAGIC_POSITION
            if candidate < 0 or candidate + HEADER_SIZE > len(window):
                continue  # the window before or the next one has it, if any
            try:
                header = read_batch_header(window, candidate, whole=False)
            except CorruptBatch:
                continue
            yield position + candidate, header
        if position + len(window) >= end:
            return
        position += len(window) - HEADER_SIZE + 1


def _is_whole(file: File, position: int, end: int, header: BatchHeader) -> bool:
    if position + header.size > end:
        return False
    batch = file.read_at(header.size, position)
    return len(batch) == header.size and verify_crc(batch, 0, header)
