"""`OffsetReader`: reads the committed offsets from which a task continues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from .records import SourceOffset, SourcePartition


class OffsetReader(Protocol):
    """Reads the offsets of a connector.

    The result of a call includes all offsets that were committed before the call.
    """

    async def offset(self, partition: SourcePartition) -> SourceOffset | None:
        """Return the last committed offset of a source partition, or None if there is none."""

    async def offsets(self, partitions: Iterable[SourcePartition]) -> list[SourceOffset | None]:
        """Return, in order, the last committed offset of each source partition, or None for a partition without one."""

    async def partitions(self) -> list[SourcePartition]:
        """Return all source partitions of the connector that have a committed offset, in any order."""

    def offset_blocking(self, partition: SourcePartition) -> SourceOffset | None:
        """Return the last committed offset as `offset` does, for tasks whose methods run in a thread."""
