"""Replay the batches of segments to rebuild the state of a partition's producers. May run in any thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter

from ...protocol.control_records import read_control_record
from ...protocol.records import decode_batch
from .batch_scan import BrokenBatch
from .producer_state_manager import ProducerStateManager
from .results import AbortedTxn, CorruptLog
from .segment import LogSegment


def replay(sources: Sequence[LogSegment], producers: ProducerStateManager, start: int) -> Iterator[AbortedTxn]:
    """Apply the batches in `sources` from offset `start` on to `producers`; yield the transactions that they abort.

    `sources` are adjacent segments, opened for this call alone (`LogSegment.reopened`). Raises CorruptLog, OSError.
    """
    first = max(bisect_left(sources, start + 1, key=attrgetter("base_offset")) - 1, 0)
    for source in sources[first:]:
        offset = source.base_offset
        try:
            for _, header, batch in source.batches():
                offset = header.next_offset
                if header.last_offset < start or header.producer_id < 0:
                    continue
                records = decode_batch(batch, 0, header) if header.is_control else ()
                marker = read_control_record(records[0]) if records else None
                aborted = producers.update(header, marker, header.base_offset)
                if aborted is not None:
                    yield aborted
        except BrokenBatch as error:
            raise CorruptLog(source.path(), error.position, offset, error.reason) from None
        finally:
            source.release()
