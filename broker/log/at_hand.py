"""Load in a thread the data that a read needs and that would block the event loop for too long.

Three kinds of data are read in a thread: unloaded indexes of a large finished segment, indexes that have to be rebuilt,
and ranges of many megabytes. A read that needs such data raises `NotAtHand`. The log then lets `SideReads` load the
data, and repeats the read. Smaller amounts of data are read immediately in the caller's thread, because handing the
read to another thread costs more than the read itself.

While a thread reads, segments may be replaced, removed, or closed with their log. Another log may then have files with
the same names. So an index that a thread has rebuilt is used and written only if none of this has happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

from ..scheduling.steps import Steps, waited
from ..system.ports import Lane, Threads
from .batch_scan import BrokenBatch
from .results import CorruptLog
from .segment import LogSegment, SegmentIndexes

ResultT = TypeVar("ResultT")

AT_ONCE_BYTES: Final = 4 << 20
"""The largest range, in bytes, that is read in the caller's thread. The page cache returns it in half a millisecond."""


class NotAtHand(Exception):
    """A read needs data that must first be loaded in a thread.

    `get` returns the steps that load the data. The steps may raise BrokenBatch, CorruptLog or OSError.
    """

    def __init__(self, get: Callable[[], Steps[None]]) -> None:
        super().__init__()
        self.get = get


class SideReads:
    """The reads of one log that run in threads. Without `threads`, all data is read in the caller's thread.

    `version` returns a number that changes whenever segments are replaced, removed or closed.
    """

    __slots__ = (
        "_loading",
        "_piece",
        "_threads",
        "_version",
    )

    def __init__(self, threads: Threads | None, version: Callable[[], int]) -> None:
        self._threads = threads
        self._version = version
        self._loading: dict[LogSegment, asyncio.Future[SegmentIndexes]] = {}
        self._piece: tuple[LogSegment, int, bytes] | None = None

    def require_indexes(self, segment: LogSegment) -> None:
        """Raise NotAtHand unless the offset and time indexes of `segment` are loaded or can be loaded quickly."""
        if self._threads is not None and not segment.indexes_at_hand():
            raise NotAtHand(partial(self.load_indexes, segment))

    def require_bytes(self, segment: LogSegment, start: int, size: int) -> None:
        """Raise NotAtHand if the `size` bytes from byte `start` on are too many to read in the caller's thread."""
        if self._threads is not None and size > AT_ONCE_BYTES:
            raise NotAtHand(partial(self._get_piece, segment, start, size))

    def require(self, job: Callable[[], ResultT], take: Callable[[ResultT], None]) -> None:
        """Raise NotAtHand with steps that run `job` and pass its result to `take`. Without threads, do nothing."""
        if self._threads is not None:
            raise NotAtHand(partial(self._run, job, take))

    def piece(self, segment: LogSegment, start: int) -> bytes | None:
        """Return the bytes of `segment` from byte `start` on if `get` has just read them, else None."""
        piece = self._piece
        return piece[2] if piece is not None and piece[:2] == (segment, start) else None

    def drop_piece(self) -> None:
        """Free the memory of the range that `get` has read."""
        self._piece = None

    def get(self, missing: NotAtHand) -> Steps[bool]:
        """Load the data that a read has requested with `missing`; return whether that succeeded.

        The caller must use the data before it yields again, and then call `drop_piece`. If the result is False, loading
        has failed, and the caller must repeat the read without threads (`at_once`). The repeated read raises the error
        of the failure, or shows that the data is no longer needed. Raises CorruptLog.
        """
        try:
            yield from missing.get()
        except (BrokenBatch, OSError):
            return False
        return True

    def _run(self, job: Callable[[], ResultT], take: Callable[[ResultT], None]) -> Steps[None]:
        """Run `job` in a thread and pass its result to `take`, unless the log's segments have changed meanwhile.

        After such a change, the result and any error of `job` are discarded, and the caller repeats its read.
        """
        assert self._threads is not None
        version = self._version()
        try:
            result = yield from waited(self._threads.run(Lane.READ, job))
        except (CorruptLog, OSError):
            if self._version() == version:
                raise
            return  # the error concerns files that do not belong to the log any more
        if self._version() == version:
            take(result)

    def _get_piece(self, segment: LogSegment, start: int, size: int) -> Steps[None]:
        """Read a range in a thread, so that `piece` can return it."""
        assert self._threads is not None
        file = segment.file
        data = yield from waited(self._threads.run(Lane.READ, lambda: file.read_at(size, start)))
        if len(data) == size:  # otherwise the segment was truncated or removed meanwhile, or is damaged
            self._piece = (segment, start, data)

    def load_indexes(self, segment: LogSegment) -> Steps[None]:
        """Load the offset and time indexes of a segment, in a thread if that is slow. Raises BrokenBatch, OSError."""
        if self._threads is None or segment.indexes_at_hand():
            return
        version = self._version()
        loading = self._loading.get(segment)
        if loading is None:
            file = segment.file
            loading = self._loading[segment] = self._threads.run(Lane.READ, lambda: segment.read_indexes(file))
            loading.add_done_callback(lambda _: self._loading.pop(segment))
        indexes = yield from waited(loading)
        if not segment.has_indexes and self._version() == version:
            segment.take_indexes(indexes)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within this context, read all data immediately in the caller's thread, and never raise NotAtHand."""
        threads, self._threads = self._threads, None
        try:
            yield
        finally:
            self._threads = threads
