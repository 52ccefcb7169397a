"""Find offsets by timestamp (KIP-33, KIP-79, KIP-734): the first record not older than a timestamp, or the newest one.

A search goes through the indexes, the batch headers and the records of the matching batch. It works in steps, because
it may pass millions of headers. A large batch is decompressed in a worker thread. Only a few batches that expand to a
large size are in memory at a time.

The log may change between two steps. No file is kept open during a pause. If segments have been replaced or removed,
the search starts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import Any, Final, NamedTuple

from ...protocol.batch_header import HEADER_SIZE, BatchBudgetExceeded, BatchHeader, CorruptBatch
from ...protocol.compression import expand
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record_skim import SkimmedRecord, skim
from ..scheduling.steps import SLICE, Steps
from ..system.ports import Lane, Threads
from .at_hand import SideReads
from .batch_inspection import AT_ONCE_BYTES, expands_at_once
from .batch_scan import BrokenBatch
from .segment import LogSegment
from .segments import LogSegments

_HEADERS: Final = 300
"""The number of batch headers that are read in one step, which takes about half a millisecond."""

_RECORDS: Final = 500
"""The number of records that are read in one step, which takes about half a millisecond."""

_ATTEMPTS: Final = 10
"""How many times a search is attempted if the log's segments change during the search."""

_LARGE_AT_A_TIME: Final = 2
"""The maximum number of large decompressed batches that are in this process's memory at a time."""

_large = BoundedSemaphore(_LARGE_AT_A_TIME)


class FoundRecord(NamedTuple):
    """The record that a search has found; `timestamp` is in ms."""

    timestamp: int
    offset: int
    leader_epoch: int


class TimestampSearch:
    """Searches the segments of one log by timestamp.

    `version` returns a number that changes whenever segments are replaced, removed or truncated. If `threads` is None,
    large batches are decompressed in the caller's thread.
    """

    __slots__ = (
        "_segments",
        "_side_reads",
        "_threads",
        "_version",
    )

    def __init__(
        self, segments: LogSegments, version: Callable[[], int], threads: Threads | None, side_reads: SideReads
    ) -> None:
        self._segments = segments
        self._version = version
        self._threads = threads
        self._side_reads = side_reads

    def first_not_older(self, timestamp: int, start: int, limit: int) -> Steps[FoundRecord | None]:
        """Find the first record from offset `start` on whose timestamp is at least `timestamp`.

        Return None if no such record is below offset `limit`. Raises CorruptLog, OSError, and KafkaError
        LEADER_NOT_AVAILABLE if the log's segments keep changing during the search.
        """
        return (yield from self._unchanged(lambda: self._first_not_older(timestamp, start, limit)))

    def newest(self, start: int, limit: int) -> Steps[FoundRecord | None]:
        """Find the first record with the largest timestamp among those with offsets in [`start`, `limit`).

        Return None if no record has a timestamp. Raises CorruptLog, OSError, and KafkaError LEADER_NOT_AVAILABLE if the
        log's segments keep changing during the search.
        """
        return (yield from self._unchanged(lambda: self._newest(start, limit)))

    def _unchanged(self, search: Callable[[], Steps[FoundRecord | None]]) -> Steps[FoundRecord | None]:
        """Run `search`, and start it again if the log's segments have changed; return its result."""
        for _ in range(_ATTEMPTS):
            version = self._version()
            steps = search()
            try:
                while True:
                    try:
                        units = next(steps)
                    except StopIteration as end:
                        result: FoundRecord | None = end.value
                        return result
                    yield units
                    if self._version() != version:
                        break
            finally:
                steps.close()
        raise KafkaError(
            ErrorCode.LEADER_NOT_AVAILABLE, "the segments of the log kept changing during the search; try again"
        )

    def _first_not_older(self, timestamp: int, start: int, limit: int) -> Steps[FoundRecord | None]:
        """Make one attempt at the search of `first_not_older`."""
        for segment in list(self._segments.from_offset(start)):
            if segment.base_offset >= limit:
                return None
            yield 1
            if timestamp > segment.max_timestamp:
                continue
            with _damage(segment, start):
                yield from self._side_reads.load_indexes(segment)
                position = segment.time_position(timestamp, start)
            while position < segment.size:
                with _damage(segment, start):
                    position, candidate = _pass(
                        segment,
                        position,
                        lambda header: header.max_timestamp >= timestamp and header.last_offset >= start,
                    )
                yield _HEADERS
                if candidate is None:
                    continue
                found = yield from _first_in_batch(segment, *candidate, timestamp, start, self._threads)
                if found is not None:
                    return found if found.offset < limit else None
        return None

    def _newest(self, start: int, limit: int) -> Steps[FoundRecord | None]:
        """Make one attempt at the search of `newest`."""
        if start >= limit:
            return None
        best: tuple[LogSegment, int, BatchHeader, int] | None = None
        for segment in list(self._segments.from_offset(start)):
            if segment.base_offset >= limit:
                break
            yield 1
            if segment.max_timestamp < 0 or (best is not None and segment.max_timestamp <= best[3]):
                continue
            with _damage(segment, start):
                yield from self._side_reads.load_indexes(segment)
                known = _known_newest(segment, start, limit)
                position = segment.size if known is not None else segment.position_of(start)
            if known is not None:
                best = (segment, *known, known[1].max_timestamp)
            while position < segment.size:
                largest = -1 if best is None else best[3]
                with _damage(segment, start):
                    position, candidate = _pass(segment, position, _newer_than(largest, limit))
                yield _HEADERS
                if candidate is None:
                    continue
                if candidate[1].base_offset >= limit:
                    break
                newest = candidate[1].max_timestamp
                if candidate[1].base_offset < start:
                    # Some of its records are below the log start offset: only the remaining records count.
                    newest = yield from _newest_in_batch(segment, *candidate, start, self._threads)
                if newest > largest:
                    best = (segment, *candidate, newest)
        if best is None:
            return None
        return (yield from _first_in_batch(*best, start, self._threads))


@contextmanager
def _damage(segment: LogSegment, offset: int) -> Iterator[None]:
    """Turn a BrokenBatch in `segment` into a CorruptLog. `offset` is where the search began."""
    try:
        yield
    except BrokenBatch as error:
        raise segment.damage(error, offset) from None


def _newer_than(timestamp: int, limit: int) -> Callable[[BatchHeader], bool]:
    """Return a test for batches with a timestamp above `timestamp` or a base offset at or above `limit`."""
    return lambda header: header.max_timestamp > timestamp or header.base_offset >= limit


def _known_newest(segment: LogSegment, start: int, limit: int) -> tuple[int, BatchHeader] | None:
    """Return (position, header) of the batch with the segment's largest timestamp if it is visible as a whole.

    Return None if the batch is not found or reaches outside of [`start`, `limit`).
    """
    offset = segment.offset_of_max_timestamp
    if not start <= offset < limit:
        return None
    position = segment.position_of(offset)
    if position >= segment.size:
        return None
    header = segment.batch_at(position)
    visible = header.base_offset >= start and header.last_offset < limit
    return (position, header) if visible and header.max_timestamp == segment.max_timestamp else None


def _pass(
    segment: LogSegment, position: int, wanted: Callable[[BatchHeader], bool]
) -> tuple[int, tuple[int, BatchHeader] | None]:
    """Read headers from the batch at byte `position` on, until one is `wanted`, but only about `_HEADERS` of them.

    Return the position from which to continue, and (position, header) of the wanted batch or None. Raises BrokenBatch.
    """
    for number, (at, header) in enumerate(segment.headers(position)):
        position = at + header.size
        if wanted(header):
            return position, (at, header)
        if number >= _HEADERS:
            break
    return position, None


def _first_in_batch(
    segment: LogSegment, position: int, header: BatchHeader, timestamp: int, start: int, threads: Threads | None
) -> Steps[FoundRecord | None]:
    """Find, in one batch, the first record that is not older than `timestamp` and not before offset `start`.

    An older version may have accepted a batch whose records cannot be read. Such a batch is treated as one record at
    its first offset, or at `start` if that is higher. A consumer that reads from there gets the error.
    """
    epoch = header.partition_leader_epoch
    if not header.record_count:
        return None
    whole = header.record_count == header.last_offset_delta + 1
    if whole and (header.record_count == 1 or header.timestamp_type):
        return FoundRecord(header.max_timestamp, max(header.base_offset, start), epoch)
    records = _records(segment, position, header, threads)
    try:
        while True:
            try:
                passed = next(records)
            except StopIteration:
                return None
            if not isinstance(passed, list):
                yield passed
                continue
            for record in passed:
                if record.timestamp >= timestamp and record.offset >= start:
                    return FoundRecord(record.timestamp, record.offset, epoch)
            yield SLICE
    except CorruptBatch:
        return FoundRecord(header.max_timestamp, max(header.base_offset, start), epoch)
    finally:
        records.close()


def _newest_in_batch(
    segment: LogSegment, position: int, header: BatchHeader, start: int, threads: Threads | None
) -> Steps[int]:
    """Find the largest timestamp among a batch's records from offset `start` on, or -1 if there are none."""
    newest = -1
    records = _records(segment, position, header, threads)
    try:
        for passed in records:
            if not isinstance(passed, list):
                yield passed
                continue
            newest = max([newest, *(record.timestamp for record in passed if record.offset >= start)])
            yield SLICE
    except CorruptBatch:
        return header.max_timestamp
    finally:
        records.close()
    return newest


def _records(
    segment: LogSegment, position: int, header: BatchHeader, threads: Threads | None
) -> Generator[list[SkimmedRecord] | asyncio.Future[Any], None, None]:
    """Yield the records of a batch in portions (lists), and futures to wait for before the next portion.

    Raises CorruptBatch if the records cannot be read, and CorruptLog if the batch is damaged.
    """
    with _damage(segment, header.base_offset):
        _, _, batch = next(segment.batches(position, verify=False))
    data = bytes(batch[HEADER_SIZE:])
    del batch
    if threads is None:
        yield from _portions(expand(header.compression, data), header)
        return
    try:
        if expands_at_once(header.compression, len(data)):
            records = expand(header.compression, data, AT_ONCE_BYTES)
        else:
            job = threads.run(Lane.SEARCH, lambda: expand(header.compression, data, AT_ONCE_BYTES))
            while not job.done():
                yield job
            records = job.result()
        yield from _portions(records, header)
        return
    except BatchBudgetExceeded:
        pass
    while not _large.acquire(blocking=False):
        yield []
    try:
        job = threads.run(Lane.SEARCH, lambda: expand(header.compression, data))
        while not job.done():
            yield job
        yield from _portions(job.result(), header)
    finally:
        _large.release()


def _portions(data: bytes | bytearray, header: BatchHeader) -> Iterator[list[SkimmedRecord]]:
    """Yield the records in the decompressed `data` in lists of at most `_RECORDS`; the last list may be empty."""
    portion: list[SkimmedRecord] = []
    for record in skim(data, header):
        portion.append(record)
        if len(portion) == _RECORDS:
            yield portion
            portion = []
    yield portion
