"""What a read needs and is not at hand: read in a thread, while the event loop serves others.

That is the indexes of a large finished segment which nobody used lately, and ranges of many megabytes. A read that
meets one of these raises `NotAtHand`; the log then has `SideReads` get it, and reads anew. Everything smaller is read
at once: a turn of the event loop costs more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..ports import Lane, Threads
from ..steps import Steps, waited
from .batch_scan import BrokenBatch
from .segment import LogSegment, SegmentIndexes

AT_ONCE_BYTES: Final = 4 << 20
"""A range of at most so many bytes is read at once: half a millisecond, if it is in the page cache."""


class NotAtHand(Exception):
    """A read needs the indexes of `segment` or, with a `size`, the bytes of its file from `start` on."""

    def __init__(self, segment: LogSegment, start: int = 0, size: int = 0) -> None:
        super().__init__(segment.base_offset, start, size)
        self.segment = segment
        self.start = start
        self.size = size


class SideReads:
    """What one log reads in threads; without `threads` everything is at hand."""

    __slots__ = (
        "_loading",
        "_piece",
        "_threads",
    )

    def __init__(self, threads: Threads | None) -> None:
        self._threads = threads
        self._loading: dict[LogSegment, asyncio.Future[SegmentIndexes]] = {}
        self._piece: tuple[LogSegment, int, bytes] | None = None

    def require_indexes(self, segment: LogSegment) -> None:
        """Raise NotAtHand unless the indexes of `segment` can be used at once."""
        if self._threads is not None and segment.is_cold:
            raise NotAtHand(segment)

    def require_bytes(self, segment: LogSegment, start: int, size: int) -> None:
        """Raise NotAtHand unless that range can be read at once."""
        if self._threads is not None and size > AT_ONCE_BYTES:
            raise NotAtHand(segment, start, size)

    def piece(self, segment: LogSegment, start: int) -> bytes | None:
        """The bytes that `get` has just read from `start` on."""
        piece = self._piece
        return piece[2] if piece is not None and piece[:2] == (segment, start) else None

    def drop_piece(self) -> None:
        """Let the memory of what `get` has read go."""
        self._piece = None

    def get(self, missing: NotAtHand) -> Steps[bool]:
        """Read what was missing. The caller uses it in the step in which this returns, and then drops it.

        False when it could not be read: reading it at once will show why, or that it is not needed any more.
        """
        try:
            if missing.size:
                yield from self._get_piece(missing)
            else:
                yield from self.load_indexes(missing.segment)
        except (BrokenBatch, OSError):
            return False
        return True

    def _get_piece(self, missing: NotAtHand) -> Steps[None]:
        assert self._threads is not None
        segment, start, size = missing.segment, missing.start, missing.size
        file = segment.file
        data = yield from waited(self._threads.run(Lane.READ, lambda: file.read_at(size, start)))
        if len(data) == size:  # else the segment was cut or removed meanwhile, or is damaged
            self._piece = (segment, start, data)

    def load_indexes(self, segment: LogSegment) -> Steps[None]:
        """Load the indexes of a segment if they are cold. Raises BrokenBatch, OSError."""
        if self._threads is None or not segment.is_cold:
            return
        loading = self._loading.get(segment)
        if loading is None:
            file = segment.file
            loading = self._loading[segment] = self._threads.run(Lane.READ, lambda: segment.read_indexes(file))
            loading.add_done_callback(lambda _: self._loading.pop(segment))
        indexes = yield from waited(loading)
        if segment.is_cold:
            segment.take_indexes(indexes)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Take everything to be at hand."""
        threads, self._threads = self._threads, None
        try:
            yield
        finally:
            self._threads = threads
