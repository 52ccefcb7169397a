"""Reading a log: ranges of whole batches, aborted transactions. Offsets by timestamp are `timestamp_search.py`.

Owns: finding positions and the memory of where readers will continue. Never decides up to where a reader may see: the
caller passes the limit. Costs of a read in sequence: one pread, two small ones for the boundaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...protocol.batch_header import LENGTH_END, BatchHeader
from .batch_scan import BrokenBatch
from .results import CorruptLog
from .segment import LogSegment
from .segments import LogSegments
from .timestamp_search import TimestampSearch

_REMEMBERED: Final = 64


class LogReader:
    """Reads the segments that the log owns. Raises CorruptLog where the files are not what was written."""

    def __init__(self, segments: LogSegments) -> None:
        self._segments = segments
        # Offset → (segment, byte) where it begins: a consumer continues where its last fetch ended.
        self._continuations: dict[int, tuple[LogSegment, int]] = {}
        self._version = 0
        self.timestamps = TimestampSearch(segments, lambda: self._version)

    def forget(self) -> None:
        """Positions have changed (truncation, compaction, deletion)."""
        self._version += 1
        self._continuations.clear()

    def read(self, offset: int, limit: int, end_offset: int, max_bytes: int, min_one: bool) -> tuple[bytes, int]:
        """(whole batches from the one holding `offset`, all below `limit`; the offset behind them).

        `end_offset` is the log's. Up to `max_bytes` of one segment; `min_one`: the first batch comes whatever its size.
        """
        if offset >= limit:
            return b"", offset
        found = self._continuations.get(offset)
        segment: LogSegment | None
        segment, start = found if found is not None else (self._segments.floor(offset), -1)
        while segment is not None and segment.base_offset < limit:
            try:
                if start < 0:
                    start = segment.position_of(offset)
                segment_end = self._segments.end_offset(segment, end_offset)
                end = segment.size if limit >= segment_end else self._position(segment, limit)
                if start < end:
                    return self._read(segment, start, end, min(limit, segment_end), max_bytes, min_one, offset)
            except BrokenBatch as error:
                raise CorruptLog(segment.path(), error.position, offset, error.reason) from None
            # Nothing here at or behind `offset` (compaction, or the segment ends just there): look in the next one.
            segment, start = self._segments.after(segment), -1
        return b"", offset

    def _read(
        self, segment: LogSegment, start: int, end: int, end_offset: int, max_bytes: int, min_one: bool, offset: int
    ) -> tuple[bytes, int]:
        next_offset = end_offset
        if end - start > max_bytes:
            boundary = segment.last_boundary(start, start + max_bytes)
            if boundary <= start:
                if not min_one:
                    return b"", offset
                boundary = start + segment.batch_at(start)[1] + LENGTH_END
            if boundary < end:
                end = boundary
                next_offset = segment.batch_at(end).base_offset
        data = segment.file.read_at(end - start, start)
        if len(data) != end - start:
            raise BrokenBatch(start + len(data), f"the file ends early, {segment.size} bytes were written")
        self._remember(next_offset, segment, end)
        return data, next_offset

    def _position(self, segment: LogSegment, offset: int) -> int:
        """Where the batch of `offset` begins; remembered, because the limit of many reads is the same."""
        found = self._continuations.get(offset)
        if found is not None and found[0] is segment:
            return found[1]
        position = segment.position_of(offset)
        self._remember(offset, segment, position)
        return position

    def _remember(self, offset: int, segment: LogSegment, position: int) -> None:
        continuations = self._continuations
        if offset not in continuations and len(continuations) >= _REMEMBERED:
            del continuations[next(iter(continuations))]
        continuations[offset] = (segment, position)

    def aborted(self, offset: int, end: int) -> list[tuple[int, int]]:
        """(producer_id, first_offset) of the aborted transactions that may have records from `offset` up to `end`."""
        found: list[tuple[int, int]] = []
        for segment in self._segments.from_offset(offset):
            for entry in segment.aborted:
                if entry.last_offset >= offset and entry.first_offset < end:
                    found.append((entry.producer_id, entry.first_offset))
                if entry.last_stable_offset >= end:
                    return found
        return found

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
