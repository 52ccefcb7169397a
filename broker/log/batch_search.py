"""Search for valid batches after a broken one, to distinguish a torn write from damaged data.

A killed process leaves a prefix of its last write. After a torn write, only content of this write can follow, so a
valid batch at a later position proves damage. If the length field of the broken batch exceeds the rest of the file, the
batch looks like a torn write. Valid batches inside it prove nothing, because they may be the values of its records (a
client may store segments as values). The exception is a batch whose length field alone is damaged. Its checksum does
not cover the length, so the checksum shows where the batch really ends, and another batch begins there.

Any bytes may look like a batch header, and clients choose the bytes of records. So the work is limited. Only headers
that fit this place of the log are checked further, beginning with the header directly after the broken batch. The
search computes checksums over at most `CHECKSUMMED` times as many bytes as follow the damage. If that does not suffice,
a client must have crafted the bytes, and the search raises `SearchGivenUp`. The caller must then assume damage, because
any bytes that the caller cuts off are lost.
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
from ..system.ports import File
from .segment import MAX_RELATIVE_OFFSET

CHECKSUMMED: Final = 4
"""How many times, on average, each byte after the damage may be checksummed.

This is enough for bytes that nobody has crafted, because few of them look like batches by chance.
"""

LEAST_CHECKSUMMED: Final = 64 << 20
"""The number of bytes that may be checksummed even if few follow the damage. This takes a few hundredths of a second.
"""

_SEARCHED: Final = 1 << 20
_MAGIC_POSITION: Final = 16
_MAGIC_BYTE: Final = bytes((MAGIC,))
_EXTENT: Final = Struct(">qi11xi30xi").unpack_from
"""The fields base_offset, batch_length, last_offset_delta and record_count of a batch header."""


class SearchGivenUp(Exception):
    """More bytes look like batches than the search may check. Valid batches may be among them."""


class BatchSearch:
    """One search for valid batches; `checksummed` counts the bytes that were checksummed."""

    def __init__(self, file: File, broken: int, end: int, offset: int) -> None:
        """Prepare a search from the broken batch at byte `broken` to byte `end`.

        `offset` is the end offset (exclusive) of the valid batches before the broken one.
        """
        self._file = file
        self._broken = broken
        self._end = end
        self._offset = offset
        self._budget = max(LEAST_CHECKSUMMED, CHECKSUMMED * (end - broken))
        self._searched_to = 0
        self.checksummed = 0

    def find(self) -> int | None:
        """Return the position of a valid batch that proves that the broken batch is not a torn write, else None.

        Every byte is tried as the start of a batch. A batch with an older offset proves nothing, because it is a
        record's content or was left behind by a failed write. A batch whose offset is too large for its segment proves
        nothing, either. If the broken batch is complete and has the right checksum, its own position is returned: then
        only its offset, or that of an earlier batch, is damaged. Raises SearchGivenUp.
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

    def whole_batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of each valid batch at or after byte `broken`, except batches inside another batch.

        Every byte is tried as the start of a batch. Raises SearchGivenUp.
        """
        for position, header in self._plausible_headers(self._broken, self._end):
            if self._is_whole(position, header):
                self._searched_to = position + header.size
                yield position, header

    def _find_end_by_checksum(self, header: BatchHeader) -> int | None:
        """Return the position at which the broken batch ends by its checksum, if a valid batch begins there.

        Return None if there is no such position. The length in `header` is assumed to be damaged, so each position with
        a plausible batch is tried as the end.
        """
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
        """Yield (position, header) of each header between byte `start` and byte `end` that fits this place of the log.

        The batch must end within the file, and its offsets must follow those of the valid batches. Its content is not
        checked. Bytes below `_searched_to` are skipped.
        """
        position = start
        while position + HEADER_SIZE <= end:
            window = self._file.read_at(min(_SEARCHED, end - position), position)
            at = -1
            while (at := window.find(_MAGIC_BYTE, max(at + 1, self._searched_to + _MAGIC_POSITION - position))) >= 0:
                candidate = at - _MAGIC_POSITION
                if candidate < 0 or candidate + HEADER_SIZE > len(window):
                    continue  # the previous or the next window contains the whole header
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
        """Whether the batch at byte `position` is complete and has the right checksum."""
        self._count(header.size)
        batch = self._file.read_at(header.size, position)
        return len(batch) == header.size and verify_crc(batch, 0, header)

    def _count(self, size: int) -> None:
        """Count `size` bytes as checksummed; raise SearchGivenUp if the budget is exceeded."""
        self.checksummed += size
        if self.checksummed > self._budget:
            raise SearchGivenUp(
                f"the {self._end - self._broken} bytes from this position on look like more batches than can be checked"
                f" (at most {self._budget} bytes), so valid batches may follow"
            )
