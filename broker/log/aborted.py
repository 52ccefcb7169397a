"""Find a log's aborted transactions, whose records read_committed readers skip and compaction removes.

This module looks transactions up in the segments' transaction indexes. It rebuilds a damaged index from the batches of
its segment and from the producer state before that segment. A rebuild takes seconds for a large segment, so it runs in
a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog

from .aborted_index import AbortedIndex
from .at_hand import SideReads
from .file_names import TXN_INDEX
from .indexes import CorruptIndex
from .producer_state_manager import ProducerStateManager
from .replay import replay
from .segment import LogSegment
from .segments import LogSegments

MOST_AT_A_TIME: Final = 2_000
"""The maximum number of aborted transactions that end within the records of one read.

A read looks up all of them, and its response lists them. This takes about a microsecond per transaction.
"""

logger = structlog.get_logger(__name__)


class AbortedTransactions:
    """The aborted transactions of the log that consists of `segments`.

    `new_producers` creates an empty producer state for the log.
    """

    __slots__ = (
        "_new_producers",
        "_segments",
        "_side_reads",
    )

    def __init__(
        self, segments: LogSegments, side_reads: SideReads, new_producers: Callable[[], ProducerStateManager]
    ) -> None:
        self._segments = segments
        self._side_reads = side_reads
        self._new_producers = new_producers

    def between(self, offset: int, end: int) -> list[tuple[int, int]]:
        """Return (producer_id, first_offset) of each aborted transaction that may have records in [`offset`, `end`).

        Raises CorruptLog and OSError. Raises NotAtHand if an index must first be loaded in a thread.
        """
        overlapping: list[tuple[int, int]] = []
        for segment in self._segments.from_offset(offset):
            aborted = self.in_segment(segment)
            if aborted.add_between(offset, end, overlapping):
                break
        return overlapping

    def limit(self, segment: LogSegment, offset: int, limit: int) -> int:
        """Return the end offset, at most `limit`, for a read of `segment` that begins at `offset`.

        At most MOST_AT_A_TIME aborted transactions end between `offset` and the returned offset. Raises the same errors
        as `between`.
        """
        end = self.in_segment(segment).end_of(offset, MOST_AT_A_TIME)
        return limit if end is None else min(limit, end)

    def in_segment(self, segment: LogSegment) -> AbortedIndex:
        """Return the aborted transactions whose markers are in `segment`, in the order of the markers.

        Raises CorruptLog and OSError. Raises NotAtHand if an index must first be loaded in a thread.
        """
        if segment.aborted_at_hand():
            try:
                return segment.aborted
            except CorruptIndex:
                self._side_reads.require_indexes(segment)  # all index files are rewritten together
        sources = [source.reopened() for source in self._segments if source.base_offset <= segment.base_offset]
        load = partial(_load, segment, sources, self._new_producers)
        self._side_reads.require(load, lambda loaded: segment.take_aborted(loaded[0], as_written=loaded[1]))
        aborted, as_written = load()
        segment.take_aborted(aborted, as_written=as_written)
        return aborted


def _load(
    segment: LogSegment, sources: Sequence[LogSegment], new_producers: Callable[[], ProducerStateManager]
) -> tuple[AbortedIndex, bool]:
    """Return the aborted transactions of `segment`, and whether they come from its index file.

    If the index file is damaged, rebuild the list from the batches of `sources`, which are all segments up to this one.
    The function does not change `segment` and may be called from any thread. Raises CorruptLog and OSError.
    """
    try:
        return segment.read_aborted(), True
    except CorruptIndex as error:
        logger.warning("index rebuilt", file=segment.path(TXN_INDEX), reason=str(error))
    segment.distrust_indexes()
    return _replayed(sources, new_producers()), False


def _replayed(sources: Sequence[LogSegment], producers: ProducerStateManager) -> AbortedIndex:
    """Return the aborted transactions of the last of `sources`, found by replaying its batches.

    The replay begins at the newest producer snapshot before this segment.
    """
    base_offset = sources[-1].base_offset
    start = producers.load(sources[0].base_offset, base_offset, producers.snapshot_offsets())
    return AbortedIndex(entry for entry in replay(sources, producers, start) if entry.last_offset >= base_offset)
