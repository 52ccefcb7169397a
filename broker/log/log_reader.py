"""Reading a log: ranges of whole batches. Aborted transactions are `aborted.py`, offsets by timestamp
`timestamp_search.py`.

Owns: finding positions and the memory of where readers will continue. Never decides up to where a reader may see: the
caller passes the limit. A read in sequence costs one pread: what it got beyond the last whole batch that it may return
is cut off in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ...protocol.batch_header import HEADER_SIZE, BatchHeader
from ..ports import Buffer, Threads
from .aborted import AbortedTransactions
from .at_hand import SideReads
from .batch_scan import BrokenBatch, whole_batches
from .producer_state_manager import ProducerStateManager
from .results import CorruptLog
from .segment import LogSegment
from .segments import LogSegments
from .timestamp_search import TimestampSearch

_REMEMBERED: Final = 64

_LEAST: Final = 4 * 1024
"""Bytes that are read at least, so that a small first batch comes with its header."""


class LogReader:
    """Reads the segments that the log owns. Raises CorruptLog where the files are not what was written."""

    def __init__(
        self, segments: LogSegments, threads: Threads | None, new_producers: Callable[[], ProducerStateManager]
    ) -> None:
        """`new_producers` makes a producer state of the log that knows nothing yet."""
        self._segments = segments
        # Offset → (segment, byte) where it begins: a consumer continues where its last fetch ended.
        self._continuations: dict[int, tuple[LogSegment, int]] = {}
        self._version = 0
        self.side_reads = SideReads(threads, lambda: self._version)
        self.aborted = AbortedTransactions(segments, self.side_reads, new_producers)
        self.timestamps = TimestampSearch(segments, lambda: self._version, threads, self.side_reads)

    def forget(self) -> None:
        """Positions have changed (truncation, compaction, deletion), or the log is closed."""
        self._version += 1
        self._continuations.clear()

    def read(self, offset: int, limit: int, end_offset: int, max_bytes: int, min_one: bool) -> tuple[Buffer, int]:
        """(whole batches from the one holding `offset`, all below `limit`; the offset behind them).

        `end_offset` is the log's. Up to `max_bytes` of one segment; `min_one`: the first batch comes whatever its size.
        Raises CorruptLog, OSError, and NotAtHand where `side_reads` should get something first.
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
                outcome = self._read(segment, start, limit, end_offset, max_bytes)
                if outcome is not None:
                    records, next_offset = outcome
                    if records or not min_one:
                        return records or b"", next_offset if records else offset
                    return self._first(segment, start)
            except BrokenBatch as error:
                raise CorruptLog(segment.path(), error.position, offset, error.reason) from None
            # Nothing here at or behind `offset` (compaction, or the segment ends just there): look in the next one.
            segment, start = self._segments.after(segment), -1
        return b"", offset

    def bytes_between(self, offset: int, limit: int, end_offset: int, wanted: int) -> int:
        """How many bytes the batches from the one holding `offset` up to offset `limit` have, at most `wanted`.

        `end_offset` is the log's.
        """
        if offset >= limit:
            return 0
        segment: LogSegment | None
        segment, start = self._continuations.get(offset) or (self._segments.floor(offset), -1)
        counted = 0
        while segment is not None and segment.base_offset < limit and counted < wanted:
            try:
                if not segment.indexes_at_hand():
                    return wanted  # it is finished, and so has data to give; how much is not worth waiting for
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
                raise CorruptLog(segment.path(), error.position, offset, error.reason) from None
            counted += max(end - start, 0)
            segment, start = self._segments.after(segment), 0
        return min(counted, wanted)

    def _read(
        self, segment: LogSegment, start: int, limit: int, end_offset: int, max_bytes: int
    ) -> tuple[Buffer, int] | None:
        """(the whole batches from byte `start` on that fit, the offset behind them); None if none lies below `limit`.

        There are no records where the first batch is larger than `max_bytes`.
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
            self._remember(limit, segment, end)
            return records, limit
        self.side_reads.require_indexes(segment)
        if data is None:
            data = self._bytes(segment, start, min(available, max(max_bytes + HEADER_SIZE, _LEAST)))
        # The walk begins no further than at the batch that holds the last offset, so that it passes one at least.
        index = segment.offset_index
        within = min(max_bytes, len(data) - 1)
        known = min(index.floor(start + within), index.lookup(limit - 1)) if max_bytes > _LEAST else start
        try:
            cut, next_offset = whole_batches(data, max(known - start, 0), max_bytes, limit)
        except BrokenBatch as error:
            raise BrokenBatch(start + error.position, error.reason) from None
        if not cut and next_offset >= limit:
            return None
        self._remember(next_offset, segment, start + cut)
        # A view of a much larger piece would keep all of it in memory until the answer has left.
        return (memoryview(data)[:cut] if 2 * cut > len(data) else data[:cut]), next_offset

    def _end(self, segment: LogSegment, limit: int) -> tuple[int, bool]:
        """(a batch boundary at or behind the batch that holds `limit`, whether it is exactly where that one begins)."""
        continuation = self._continuations.get(limit)
        if continuation is not None and continuation[0] is segment:
            return continuation[1], True
        self.side_reads.require_indexes(segment)
        return segment.offset_index.ceiling(limit, segment.size), False

    def _first(self, segment: LogSegment, start: int) -> tuple[Buffer, int]:
        """The batch at byte `start`, whatever its size, and the offset behind it."""
        header = segment.batch_at(start)
        data = self.side_reads.piece(segment, start)
        if data is None or len(data) != header.size:
            data = self._bytes(segment, start, header.size)
        self._remember(header.next_offset, segment, start + header.size)
        return data, header.next_offset

    def _bytes(self, segment: LogSegment, start: int, size: int) -> bytes:
        self.side_reads.require_bytes(segment, start, size)
        data = segment.file.read_at(size, start)
        if len(data) != size:
            raise BrokenBatch(start + len(data), f"the file ends early, {segment.size} bytes were written")
        return data

    def _remember(self, offset: int, segment: LogSegment, position: int) -> None:
        continuations = self._continuations
        if offset not in continuations and len(continuations) >= _REMEMBERED:
            del continuations[next(iter(continuations))]
        continuations[offset] = (segment, position)

    def batches(self, start: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """(header, whole batch) of everything from the batch that holds `start` up to `end`, checksums verified."""
        segment: LogSegment | None = self._segments.floor(start)
        offset = start
        while segment is not None and segment.base_offset < end:
            try:
                for _, header, batch in segment.batches(segment.position_of(offset)):
                    if header.base_offset >= end:
                        return
                    offset = header.next_offset
                    yield header, batch
            except BrokenBatch as error:
                raise CorruptLog(segment.path(), error.position, offset, error.reason) from None
            segment = self._segments.after(segment)

    def windows(self, start: int) -> Iterator[bytes]:
        """Everything from the batch that holds `start` on: whole batches, a portion at a time, checksums verified."""
        segment: LogSegment | None = self._segments.floor(start)
        while segment is not None:
            try:
                yield from segment.windows(segment.position_of(max(start, segment.base_offset)))
            except BrokenBatch as error:
                raise CorruptLog(segment.path(), error.position, segment.base_offset, error.reason) from None
            segment = self._segments.after(segment)
