"""Read ranges of whole batches from a log.

This module searches for the positions of batches, and caches those at which readers will continue. It never decides how
far a reader may see: the caller passes the limit. A sequential read costs one pread: bytes after the last whole batch
that it may return are cut off in memory. Aborted transactions are found in `aborted.py`, offsets by timestamp in
`timestamp_search.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ...protocol.batch_header import HEADER_SIZE, BatchHeader
from ..system.ports import Buffer, Threads
from .aborted import AbortedTransactions
from .at_hand import SideReads
from .batch_scan import BrokenBatch, first_last_offset, whole_batches
from .producer_state_manager import ProducerStateManager
from .results import CorruptLog
from .segment import LogSegment
from .segments import LogSegments
from .timestamp_search import TimestampSearch

_ANY_OFFSET: Final = 1 << 63
"""An offset above all offsets."""

_REMEMBERED: Final = 64

_LEAST: Final = 4 * 1024
"""Minimum number of bytes per read, so that one read gets a small first batch instead of only its header."""


class LogReader:
    """Reads the segments of one log. The methods raise CorruptLog if a file is damaged."""

    def __init__(
        self, segments: LogSegments, threads: Threads | None, new_producers: Callable[[], ProducerStateManager]
    ) -> None:
        """Prepare reads of `segments`. `new_producers` creates an empty producer state for the log.

        Without `threads`, all data is read in the caller's thread.
        """
        self._segments = segments
        # Offset → (segment, byte position of the offset): a consumer continues where its last fetch ended.
        self._continuations: dict[int, tuple[LogSegment, int]] = {}
        self._version = 0
        self.side_reads = SideReads(threads, lambda: self._version)
        self.aborted = AbortedTransactions(segments, self.side_reads, new_producers)
        self.timestamps = TimestampSearch(segments, lambda: self._version, threads, self.side_reads)

    def forget(self) -> None:
        """Drop all cached positions, because the segments have changed or the log is closed.

        Call this after each truncation, compaction or deletion of segments.
        """
        self._version += 1
        self._continuations.clear()

    def read(
        self, offset: int, limit: int, end_offset: int, max_bytes: int, min_one: bool, committed: bool
    ) -> tuple[Buffer, int]:
        """Return whole batches from the one that holds `offset` up to offset `limit`, and the offset after them.

        At most `max_bytes` of one segment are returned. With `min_one`, the first batch is returned whatever its size.
        `end_offset` is the log end offset. If `committed` is true, the read ends early if its range would contain very
        many aborted transactions. Raises CorruptLog and OSError. Raises NotAtHand if data must first be loaded in a
        thread.
        """
        if offset >= limit or (max_bytes <= 0 and not min_one):
            return b"", offset
        continuation = self._continuations.get(offset)
        segment: LogSegment | None
        segment, start = continuation if continuation is not None else (self._segments.floor(offset), -1)
        while segment is not None and segment.base_offset < limit:
            try:
                if start < 0:
                    self.side_reads.require_indexes(segment)
                    start = segment.position_of(offset)
                    self._remember(offset, segment, start)
                end = self.aborted.limit(segment, offset, limit) if committed else limit
                outcome = self._read(segment, start, end, end_offset, max_bytes)
                if outcome is None and end < limit:  # compaction has removed the batches before the next marker
                    outcome = self._read(segment, start, limit, end_offset, max_bytes)
                if outcome is not None:
                    records, next_offset = outcome
                    if records or not min_one:
                        return records or b"", next_offset if records else offset
                    return self._first(segment, start, end_offset)
            except BrokenBatch as error:
                raise segment.damage(error, offset) from None
            # No batch of this segment is at or after `offset` (it was compacted, or ends there): use the next segment.
            segment, start = self._segments.after(segment), -1
        return b"", offset

    def bytes_between(self, offset: int, limit: int, end_offset: int, wanted: int) -> int:
        """Return the size in bytes of the batches from the one with `offset` up to offset `limit`, at most `wanted`.

        Return `wanted` if the size cannot be found without slow reads. `end_offset` is the log end offset. Raises
        CorruptLog, OSError.
        """
        if offset >= limit:
            return 0
        segment: LogSegment | None
        segment, start = self._continuations.get(offset) or (self._segments.floor(offset), -1)
        counted = 0
        while segment is not None and segment.base_offset < limit and counted < wanted:
            try:
                if not segment.indexes_at_hand():
                    return wanted  # the segment is finished, so it has data; loading its indexes would take too long
                if start < 0:
                    start = segment.position_of(offset)
                    self._remember(offset, segment, start)
                if limit >= self._segments.end_offset(segment, end_offset):
                    end = segment.size
                else:
                    end, exact = self._end(segment, limit)
                    if not exact and start < end:
                        end = segment.position_of(limit)
                        self._remember(limit, segment, end)
            except BrokenBatch as error:
                raise segment.damage(error, offset) from None
            counted += max(end - start, 0)
            segment, start = self._segments.after(segment), 0
        return min(counted, wanted)

    def _read(
        self, segment: LogSegment, start: int, limit: int, end_offset: int, max_bytes: int
    ) -> tuple[Buffer, int] | None:
        """Return whole batches of a segment from byte `start` on, within `max_bytes`, and the offset after them.

        Return None if the segment has no batch below offset `limit`. The result has no batches if the first batch is
        larger than `max_bytes`. Raises BrokenBatch, NotAtHand and OSError. A first batch whose offset does not
        belong to the segment counts as broken.
        """
        segment_end = self._segments.end_offset(segment, end_offset)
        if limit >= segment_end:
            end, exact, limit = segment.size, True, segment_end
        else:
            end, exact = self._end(segment, limit)
        available = end - start
        if available <= 0:
            return None
        data = self.side_reads.piece(segment, start)
        if exact and available <= max_bytes and (data is None or len(data) == available):
            records = data or self._bytes(segment, start, available)
            # Only the first batch is checked: checking all of them would cost more than the read.
            if (last_offset := first_last_offset(records)) >= segment_end:
                raise _beyond_segment(start, last_offset, segment_end)
            self._remember(limit, segment, end)
            return records, limit
        self.side_reads.require_indexes(segment)
        if data is None:
            data = self._bytes(segment, start, min(available, max(max_bytes + HEADER_SIZE, _LEAST)))
        # The walk begins at the latest at the batch with the last offset, so that it passes at least one batch.
        index = segment.offset_index
        within = min(max_bytes, len(data) - 1)
        known = min(index.floor(start + within), index.lookup(limit - 1)) if max_bytes > _LEAST else start
        try:
            cut, next_offset = whole_batches(data, max(known - start, 0), max_bytes, limit)
        except BrokenBatch as error:
            raise BrokenBatch(start + error.position, error.reason) from None
        if not cut and next_offset >= limit:
            if next_offset >= segment_end:
                raise _beyond_segment(start, next_offset, segment_end)
            return None
        if next_offset < segment_end or start + cut == segment.size:
            self._remember(next_offset, segment, start + cut)
        # A view of a much larger piece would keep the whole piece in memory until the response is sent.
        return (memoryview(data)[:cut] if 2 * cut > len(data) else data[:cut]), next_offset

    def _end(self, segment: LogSegment, limit: int) -> tuple[int, bool]:
        """Return a batch boundary at or after the start of the batch with offset `limit`.

        Also return whether the boundary is exactly this start. Raises NotAtHand, OSError.
        """
        continuation = self._continuations.get(limit)
        if continuation is not None and continuation[0] is segment:
            return continuation[1], True
        self.side_reads.require_indexes(segment)
        return segment.offset_index.ceiling(limit, segment.size), False

    def _first(self, segment: LogSegment, start: int, end_offset: int) -> tuple[Buffer, int]:
        """Return the batch at byte `start`, whatever its size, and the offset after it.

        Raises BrokenBatch, NotAtHand and OSError.
        """
        header = segment.batch_at(start)
        segment_end = self._segments.end_offset(segment, end_offset)
        if header.next_offset > segment_end:
            raise _beyond_segment(start, header.last_offset, segment_end)
        data = self.side_reads.piece(segment, start)
        if data is None or len(data) != header.size:
            data = self._bytes(segment, start, header.size)
        self._remember(header.next_offset, segment, start + header.size)
        return data, header.next_offset

    def _bytes(self, segment: LogSegment, start: int, size: int) -> bytes:
        """Read exactly `size` bytes from byte `start` on; raise BrokenBatch if the file is shorter."""
        self.side_reads.require_bytes(segment, start, size)
        data = segment.file.read_at(size, start)
        if len(data) != size:
            raise BrokenBatch(start + len(data), f"the file ends here, but {segment.size} bytes were written to it")
        return data

    def _remember(self, offset: int, segment: LogSegment, position: int) -> None:
        """Cache the position of `offset`, in place of the oldest entry if the cache is full."""
        continuations = self._continuations
        if offset not in continuations and len(continuations) >= _REMEMBERED:
            del continuations[next(iter(continuations))]
        continuations[offset] = (segment, position)

    def batches(self, start: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield (header, whole batch) from the batch with offset `start` up to offset `end`; checksums are verified.

        Raises CorruptLog, OSError.
        """
        segment: LogSegment | None = self._segments.floor(start)
        offset = start
        while segment is not None and segment.base_offset < end:
            try:
                for position, header, batch in segment.batches(segment.position_of(offset)):
                    if header.base_offset >= end:
                        segment_end = self._segments.end_offset(segment, _ANY_OFFSET)
                        if header.base_offset >= segment_end:
                            raise _beyond_segment(position, header.base_offset, segment_end)
                        return
                    offset = header.next_offset
                    yield header, batch
            except BrokenBatch as error:
                raise segment.damage(error, offset) from None
            segment = self._segments.after(segment)

    def windows(self, start: int) -> Iterator[bytes]:
        """Yield portions of whole batches with verified checksums, from the batch with offset `start` on.

        The caller may pause between two portions. If segments have been replaced or removed meanwhile, the rest comes
        from the segments that are in their place. Raises CorruptLog, OSError.
        """
        offset = start
        segment: LogSegment | None = self._segments.floor(offset)
        while segment is not None:
            version = self._version
            begin, window = max(offset, segment.base_offset), b""
            try:
                for window in segment.windows(segment.position_of(begin)):
                    yield window
                    if self._version != version:
                        offset = _end_of(window, begin)
                        break
            except BrokenBatch as error:
                raise CorruptLog(segment.path(), error.position, _end_of(window, begin), error.reason) from None
            segment = self._segments.after(segment) if self._version == version else self._segments.floor(offset)


def _end_of(window: bytes, offset: int) -> int:
    """Return the offset after the batches of a window, or `offset` if it has none."""
    return whole_batches(window, 0, len(window), _ANY_OFFSET)[1] if window else offset


def _beyond_segment(position: int, offset: int, segment_end: int) -> BrokenBatch:
    """Return the error for a batch whose offset, which no checksum covers, is not below the end of its segment."""
    return BrokenBatch(position, f"a batch has offset {offset}, but its segment ends before offset {segment_end}")
