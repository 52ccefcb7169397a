"""Looking for valid batches behind one that is broken: they tell a write that a kill tore from bytes that have rotted.

A process that is killed leaves a prefix of its last write, so nothing but that write's own content can follow. Where
the broken batch claims more bytes than the file has, it looks like such a prefix, and batches inside of it are content
of its records (someone stores segments as values): they prove nothing. The exception is a batch whose length alone is
damaged. Its checksum, which does not cover the length, says where it really ends, and a batch begins there.

Any bytes may look like the header of a batch, and those of records are chosen by clients. So the work is bounded: only
a header that can belong to this place of the log is checked any further, the batch right behind the broken one first,
and at most `CHECKSUMMED` times the bytes behind the damage are checksummed. Where that does not suffice, the bytes have
been crafted, and `SearchGivenUp` says so: the caller must take them for damage, because what is cut is lost.
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
from ..ports import File
from .segment import MAX_RELATIVE_OFFSET

CHECKSUMMED: Final = 4
"""How often the bytes behind the damage are checksummed at most, on average. Few look like batches by chance."""

LEAST_CHECKSUMMED: Final = 64 << 20
"""Bytes that may be checksummed however few there are behind the damage: a few hundredths of a second."""

_SEARCHED: Final = 1 << 20
_MAGIC_POSITION: Final = 16
_MAGIC_BYTE: Final = bytes((MAGIC,))
_EXTENT: Final = Struct(">qi11xi30xi").unpack_from
"""base_offset, batch_length, last_offset_delta and record_count."""


class SearchGivenUp(Exception):
    """So many bytes look like batches that it cannot be told whether a valid one is among them."""


class BatchSearch:
    """One search; `checksummed` counts the bytes whose checksum was computed."""

    def __init__(self, file: File, broken: int, end: int, offset: int) -> None:
        """Search behind the broken batch at byte `broken`, up to byte `end`. The valid batches end at `offset`."""
        self._file = file
        self._broken = broken
        self._end = end
        self._offset = offset
        self._budget = max(LEAST_CHECKSUMMED, CHECKSUMMED * (end - broken))
        self.checksummed = 0

    def find(self) -> int | None:
        """The position of a valid batch that shows that the broken one is no torn write; None without one.

        Every byte is tried. A batch of an older offset does not count: it is a record's content, or was left behind by
        a write that failed. Neither does one too far ahead for its segment. The position is that of the broken batch
        itself if that is whole, so that only its offset is damaged, or the offset of one before it. Raises
        SearchGivenUp.
        """
        file, broken, end = self._file, self._broken, self._end
        try:
            header = read_batch_header(file.read_at(HEADER_SIZE, broken), whole=False)
        except CorruptBatch:
            header = None
        if header is not None:
            behind = broken + header.size
            if behind <= end and self._is_whole(broken, header):
                return broken
            if header.base_offset == self._offset and behind > end:
                return self._find_end_by_checksum(header)
            for position, candidate in self._plausible_headers(behind, min(behind + HEADER_SIZE, end)):
                if self._is_whole(position, candidate):
                    return position
        for position, candidate in self._plausible_headers(broken + 1, end):
            if self._is_whole(position, candidate):
                return position
        return None

    def _find_end_by_checksum(self, header: BatchHeader) -> int | None:
        """Where the broken batch ends if another length than `header` says is right, and a batch follows there."""
        checked = self._broken + CRC_END
        checksum = 0
        for position, candidate in self._plausible_headers(self._broken + HEADER_SIZE, self._end):
            self._count(position - checked)
            checksum = crc32c(self._file.read_at(position - checked, checked), checksum)
            checked = position
            if checksum == header.crc and self._is_whole(position, candidate):
                return position
        return None

    def _plausible_headers(self, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of what can be a batch of this place in the log, within the file, by its header alone."""
        position = start
        while position + HEADER_SIZE <= end:
            window = self._file.read_at(min(_SEARCHED, end - position), position)
            at = -1
            while (at := window.find(_MAGIC_BYTE, at + 1)) >= 0:
                candidate = at - _MAGIC_POSITION
                if candidate < 0 or candidate + HEADER_SIZE > len(window):
                    continue  # the window before or the next one has it, if any
                base_offset, length, last_offset_delta, records = _EXTENT(window, candidate)
                if (
                    HEADER_SIZE - LENGTH_END <= length <= self._end - position - candidate - LENGTH_END
                    and 0 <= base_offset - self._offset <= MAX_RELATIVE_OFFSET - last_offset_delta
                    and 0 <= records <= last_offset_delta + 1
                    and last_offset_delta >= 0
                ):
                    yield position + candidate, read_batch_header(window, candidate, whole=False)
            if position + len(window) >= end:
                return
            position += len(window) - HEADER_SIZE + 1

    def _is_whole(self, position: int, header: BatchHeader) -> bool:
        self._count(header.size)
        batch = self._file.read_at(header.size, position)
        return len(batch) == header.size and verify_crc(batch, 0, header)

    def _count(self, size: int) -> None:
        self.checksummed += size
        if self.checksummed > self._budget:
            raise SearchGivenUp(
                f"the {self._end - self._broken} bytes from there on look like more batches than can be checked"
                f" ({self._budget} bytes), so valid ones may follow"
            )
