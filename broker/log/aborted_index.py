"""The aborted transactions of one segment in memory, in the order of their markers.

A segment may contain up to a million aborted transactions, and a read looks up the few that overlap its range. If one
transaction was open for a long time, a read of a range after its beginning would have to examine all transactions that
were aborted meanwhile, because each of them may overlap the range. To avoid this, the index records two offsets for
each block of entries. They show whether any entry of the block can overlap a range.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from .results import AbortedTxn

BLOCK: Final = 256
"""The number of entries in a block."""

_last_offset = attrgetter("last_offset")


class AbortedIndex(list[AbortedTxn]):
    """A list of aborted transactions with rising last offsets. Use only `append` to change it.

    For each full block of entries, `_first` contains the smallest first offset, and `_stable` contains the largest last
    stable offset.
    """

    __slots__ = ("_first", "_stable")

    def __init__(self, entries: Iterable[AbortedTxn] = ()) -> None:
        super().__init__(entries)
        self._first: list[int] = []
        self._stable: list[int] = []
        for start in range(0, len(self) - BLOCK + 1, BLOCK):
            self._close_block(start)

    def append(self, entry: AbortedTxn) -> None:
        """Add a transaction. Its marker must follow the markers of all earlier entries."""
        super().append(entry)
        if len(self) % BLOCK == 0:
            self._close_block(len(self) - BLOCK)

    def _close_block(self, start: int) -> None:
        block = self[start : start + BLOCK]
        self._first.append(min(entry.first_offset for entry in block))
        self._stable.append(max(entry.last_stable_offset for entry in block))

    def end_of(self, offset: int, count: int) -> int | None:
        """Return the offset after the `count`-th marker from `offset` on; None if the segment has no later marker."""
        last = bisect_left(self, offset, key=_last_offset) + count
        return self[last - 1].last_offset + 1 if last < len(self) else None

    def add_between(self, offset: int, end: int, found: list[tuple[int, int]]) -> bool:
        """Add each transaction that may have records in [`offset`, `end`) to `found`, as (producer_id, first_offset).

        Return True if no later entry, in this segment or a later one, can have records in this range.
        """
        position, count = bisect_left(self, offset, key=_last_offset), len(self)
        first, stable = self._first, self._stable
        block, full = position // BLOCK, len(first)
        while position < count:
            while block < full and first[block] >= end > stable[block]:
                block += 1
            for at in range(max(position, block * BLOCK), min((block + 1) * BLOCK, count)):
                entry = self[at]
                if entry.first_offset < end:
                    found.append((entry.producer_id, entry.first_offset))
                if entry.last_stable_offset >= end:
                    return True
            block += 1
            position = block * BLOCK
        return False
