"""Keep the segments of one log in order: find the segment of an offset, and record which segment is active.

This module registers every finished segment (all but the active one) with the index cache. It never creates or deletes
files by itself. Invariants: the list is never empty, base offsets rise, and the last segment is the active one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence

from .index_cache import IndexCache
from .segment import LogSegment


class LogSegments:
    """The segments of one log; `cache` limits the memory of the loaded indexes of all logs.

    `in_memory`: segments whose indexes exist in memory only, so that the cache must not drop them.
    """

    __slots__ = ("_bases", "_cache", "_segments", "active")

    def __init__(
        self, segments: Sequence[LogSegment], cache: IndexCache | None = None, in_memory: Container[LogSegment] = ()
    ) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        self._cache = cache
        self.active = self._segments[-1]
        for segment in self._segments[:-1]:
            segment.finished(None if segment in in_memory else cache)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, position: int) -> LogSegment:
        return self._segments[position]

    @property
    def size(self) -> int:
        """The size of all segments without their indexes, in bytes."""
        return sum(segment.size for segment in self._segments)

    @property
    def first(self) -> LogSegment:
        """The oldest segment."""
        return self._segments[0]

    def add(self, segment: LogSegment) -> None:
        """Make `segment` the active one. The caller has written the index files of the previous active segment."""
        finished, self.active = self.active, segment
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        finished.finished(self._cache)

    def floor(self, offset: int) -> LogSegment:
        """Return the last segment with a base offset at or below `offset`; the first segment if all are above it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def after(self, segment: LogSegment) -> LogSegment | None:
        """Return the segment that follows `segment`, or None if `segment` is the active one."""
        position = bisect_right(self._bases, segment.base_offset)
        return self._segments[position] if position < len(self._segments) else None

    def end_offset(self, segment: LogSegment, log_end_offset: int) -> int:
        """Return the end offset (exclusive) of `segment`, which is `log_end_offset` for the active segment."""
        position = bisect_right(self._bases, segment.base_offset)
        return self._bases[position] if position < len(self._bases) else log_end_offset

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Return the segment that holds `offset` and all segments after it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def finished_below(self, offset: int) -> list[LogSegment]:
        """Return the finished segments whose end offsets are at or below `offset`."""
        return self._segments[: bisect_right(self._bases, offset, lo=1) - 1]

    def remove_first(self, count: int) -> None:
        """Remove the `count` oldest segments from the list. The active one cannot be removed."""
        assert count < len(self._segments), "the active segment cannot be removed"
        del self._segments[:count], self._bases[:count]

    def replace(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Replace the adjacent finished segments `old` with `new`, and drop the loaded indexes of `old`."""
        start = self._segments.index(old[0])
        assert self._segments[start : start + len(old)] == list(old)
        assert self.active not in old
        self._segments[start : start + len(old)] = [new]
        self._bases[start : start + len(old)] = [new.base_offset]
        new.finished(self._cache)
        for segment in old:
            segment.drop_indexes()
