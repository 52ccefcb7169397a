"""`OffsetReader`: where a task goes on, from the offsets that were committed with its records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from .records import SourceOffset, SourcePartition


class OffsetReader(Protocol):
    """Reads the offsets of a connector. Both calls wait until all offsets that are committed now have been read."""

    async def offset(self, partition: SourcePartition) -> SourceOffset | None:
        """Return the last committed offset of a source partition, or None."""

    async def offsets(self, partitions: Iterable[SourcePartition]) -> list[SourceOffset | None]:
        """Return the last committed offset of each source partition, in the same order."""

    def offset_blocking(self, partition: SourcePartition) -> SourceOffset | None:
        """Return what `offset` returns, for tasks whose methods run in a thread."""
