"""What a read needs and is not at hand: read in a thread, while the event loop serves others.

That is the indexes of a large finished segment which nobody used lately, indexes that have to be made again, and
ranges of many megabytes. A read that meets one of these raises `NotAtHand`; the log then has `SideReads` get it, and
reads anew. Everything smaller is read at once: a turn of the event loop costs more.

While something is read in a thread, segments may be replaced, removed, or closed with their log, and files of their
names may be those of another log by then. So what a thread has made again is taken, and written, only where nothing
of that has happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

from ..ports import Lane, Threads
from ..steps import Steps, waited
from .batch_scan import BrokenBatch
from .results import CorruptLog
from .segment import LogSegment, SegmentIndexes

ResultT = TypeVar("ResultT")

AT_ONCE_BYTES: Final = 4 << 20
"""A range of at most so many bytes is read at once: half a millisecond, if it is in the page cache."""


class NotAtHand(Exception):
    """A read needs something first, which the steps of `get` read in a thread. They may raise BrokenBatch, OSError."""

    def __init__(self, get: Callable[[], Steps[None]]) -> None:
        super().__init__()
        self.get = get


class SideReads:
    """What one log reads in threads; without `threads` everything is at hand.

    `version` changes whenever segments are replaced, removed or closed.
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
        """Raise NotAtHand unless the indexes of `segment` can be used at once."""
        if self._threads is not None and not segment.indexes_at_hand():
            raise NotAtHand(partial(self.load_indexes, segment))

    def require_bytes(self, segment: LogSegment, start: int, size: int) -> None:
        """Raise NotAtHand unless that range can be read at once."""
        if self._threads is not None and size > AT_ONCE_BYTES:
            raise NotAtHand(partial(self._get_piece, segment, start, size))

    def require(self, job: Callable[[], ResultT], take: Callable[[ResultT], None]) -> None:
        """Raise NotAtHand, to have `job` run in a thread and its result taken, unless everything is at hand."""
        if self._threads is not None:
            raise NotAtHand(partial(self._run, job, take))

    def piece(self, segment: LogSegment, start: int) -> bytes | None:
        """The bytes that `get` has just read from `start` on."""
        piece = self._piece
        return piece[2] if piece is not None and piece[:2] == (segment, start) else None

    def drop_piece(self) -> None:
        """Let the memory of what `get` has read go."""
        self._piece = None

    def get(self, missing: NotAtHand) -> Steps[bool]:
        """Read what was missing. The caller uses it in the step in which this returns, and then drops it.

        False when it could not be read: reading it at once will show why, or that it is not needed any more. Raises
        CorruptLog.
        """
        try:
            yield from missing.get()
        except (BrokenBatch, OSError):
            return False
        return True

    def _run(self, job: Callable[[], ResultT], take: Callable[[ResultT], None]) -> Steps[None]:
        """Run `job` in a thread and take its result, unless the log has changed; then the caller looks anew."""
        assert self._threads is not None
        version = self._version()
        try:
            result = yield from waited(self._threads.run(Lane.READ, job))
        except (CorruptLog, OSError):
            if self._version() == version:
                raise
            return  # of files that are not the log's any more
        if self._version() == version:
            take(result)

    def _get_piece(self, segment: LogSegment, start: int, size: int) -> Steps[None]:
        assert self._threads is not None
        file = segment.file
        data = yield from waited(self._threads.run(Lane.READ, lambda: file.read_at(size, start)))
        if len(data) == size:  # else the segment was cut or removed meanwhile, or is damaged
            self._piece = (segment, start, data)

    def load_indexes(self, segment: LogSegment) -> Steps[None]:
        """Load the indexes of a segment if they are not at hand. Raises BrokenBatch, OSError."""
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
        """Take everything to be at hand."""
        threads, self._threads = self._threads, None
        try:
            yield
        finally:
            self._threads = threads
