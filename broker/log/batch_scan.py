"""Walk through the batches of a log file.

This module reads a file in windows and finds one batch after another. It checks the content of the batches only if
asked to. It never changes a file. At an invalid batch, it raises `BrokenBatch` with the batch's position. The caller
decides whether the batch is a torn tail or damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from crc32c import crc32c

from ...protocol.batch_header import (
    CRC_END,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    read_batch_header,
    verify_crc,
)
from ..system.ports import Buffer, File

_WINDOW: Final = 256 * 1024
_SMALL_WINDOW: Final = 4 * 1024
_SCAN_WINDOW: Final = 64 * 1024
_LENGTH_AT_8: Final = Struct(">8xi")
_unpack_extent: Final = Struct(">qi4xb6xi").unpack_from  # base offset, length, magic, last offset delta
_FRAME: Final = Struct(">8xi4xbI")
"""The fields batch_length, magic and crc of a batch header."""


class BrokenBatch(Exception):
    """A file has no valid batch at byte `position`, because of `reason`."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason


def walk_headers(file: File, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch from byte `start` to byte `end`.

    Both positions must be batch boundaries. The content of the batches is not checked. Raises BrokenBatch at an invalid
    header, and at a batch that extends beyond `end`.
    """
    position = start
    window = b""
    window_start = start
    window_size = _SMALL_WINDOW
    while position < end:
        offset = position - window_start
        if offset + HEADER_SIZE > len(window):
            window = file.read_at(min(window_size, end - position), position)
            window_start, offset = position, 0
        try:
            header = read_batch_header(window, offset, whole=False)
        except CorruptBatch as error:
            raise BrokenBatch(position, error.message) from None
        size = header[1] + LENGTH_END
        if position + size > end:
            raise BrokenBatch(position, f"a batch of {size} bytes begins where only {end - position} bytes are left")
        yield position, header
        position += size
        window_size = _WINDOW if size < _WINDOW // 8 else _SMALL_WINDOW


def first_last_offset(data: Buffer) -> int:
    """Return the last offset that the header of the first batch in `data` states; -1 if the header is cut off."""
    if len(data) < HEADER_SIZE:
        return -1
    base_offset, _, _, last_offset_delta = _unpack_extent(data)
    return int(base_offset + last_offset_delta)


def whole_batches(data: Buffer, start: int, end: int, limit: int) -> tuple[int, int]:
    """Walk through the batches in `data` from byte `start` on, as long as they end by byte `end` and below `limit`.

    `limit` is an offset (exclusive). Return the position and the base offset of the first batch that ends later. If
    there is none, return the length of `data` and the offset after its last batch. `data` must have a batch at `start`.
    Raises BrokenBatch.
    """
    assert start < len(data), "the data has no batch at its start position"
    position, next_offset = start, -1
    while position < len(data):
        if len(data) - position < HEADER_SIZE:
            raise BrokenBatch(position, f"a batch header is cut off: {len(data) - position} of {HEADER_SIZE} bytes")
        base_offset, length, magic, last_offset_delta = _unpack_extent(data, position)
        if magic != MAGIC or length < HEADER_SIZE - LENGTH_END or last_offset_delta < 0:
            raise BrokenBatch(position, _complaint(data, position))
        size = length + LENGTH_END
        if position + size > end or base_offset + last_offset_delta >= limit:
            return position, base_offset
        position += size
        next_offset = base_offset + last_offset_delta + 1
    return position, next_offset


def _complaint(data: Buffer, position: int) -> str:
    """Return what is wrong with the invalid batch header at byte `position`."""
    try:
        read_batch_header(data, position, whole=False)
    except CorruptBatch as error:
        return error.message
    raise AssertionError("the batch header is valid")


def scan_batches(
    file: File, start: int, end: int, *, verify: bool = True
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, whole batch) of each batch from byte `start` to byte `end`.

    Both positions must be batch boundaries. Raises BrokenBatch at the first batch that is cut off or malformed or, if
    `verify` is set, has a wrong checksum.
    """
    position = start
    window = memoryview(b"")
    offset = 0
    while position < end:
        needed = HEADER_SIZE
        if len(window) - offset >= LENGTH_END:
            (length,) = _LENGTH_AT_8.unpack_from(window, offset)
            needed = max(HEADER_SIZE, min(length + LENGTH_END, end - position))
        if len(window) - offset < needed:
            size = min(max(_WINDOW, needed), end - position)
            window, offset = memoryview(file.read_at(size, position)), 0
            if len(window) < HEADER_SIZE:
                raise BrokenBatch(position, f"a batch header is cut off: {len(window)} of {HEADER_SIZE} bytes")
            (length,) = _LENGTH_AT_8.unpack_from(window, 0)
            if window[16] == MAGIC and len(window) < length + LENGTH_END <= end - position:
                window = memoryview(file.read_at(length + LENGTH_END, position))
        try:
            header = read_batch_header(window, offset)
        except CorruptBatch as error:
            raise BrokenBatch(position, error.message) from None
        size = header[1] + LENGTH_END
        if verify and not verify_crc(window, offset, header):
            raise BrokenBatch(position, f"the checksum of a batch of {size} bytes does not match")
        yield position, header, window[offset : offset + size]
        position += size
        offset += size


def scan_windows(file: File, start: int, end: int, size: int = _SCAN_WINDOW) -> Iterator[bytes]:
    """Yield the batches from byte `start` to byte `end`, about `size` bytes of whole batches at a time.

    Raises BrokenBatch at the first batch that is cut off or malformed, or has a wrong checksum.
    """
    position = start
    while position < end:
        window = file.read_at(min(size, end - position), position)
        view, available, at = memoryview(window), len(window), 0
        while at + HEADER_SIZE <= available:
            length, magic, crc = _FRAME.unpack_from(window, at)
            behind = at + LENGTH_END + length
            if not at + HEADER_SIZE <= behind <= available or magic != MAGIC:
                break
            if crc32c(view[at + CRC_END : behind]) != crc:
                break
            at = behind
        if at:
            yield window if at == available else window[:at]
            position += at
        else:  # the next batch is larger than a window, or broken
            _, header, batch = next(scan_batches(file, position, end))
            yield bytes(batch)
            position += header.size
