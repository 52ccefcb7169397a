"""`StoredOffsets`: the `OffsetReader` of a connector and its tasks, for the event loop and for threads.

If a connector has its own topic, an offset that was deleted there counts as deleted, even if the worker's topic has a
copy: a worker that was suspended may have written this copy after the deletion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from ..api.records import SourceOffset, SourcePartition
from ..stores.offset_records import sorted_key
from ..stores.offset_store import OffsetStore


class StoredOffsets:
    """Reads the offsets of one connector: from its own topic first, if it has one, then from the worker's topic."""

    def __init__(self, connector: str, stores: list[OffsetStore]) -> None:
        self._connector, self._stores = connector, stores
        self._loop = asyncio.get_running_loop()

    async def offset(self, partition: SourcePartition) -> SourceOffset | None:
        """Return the last committed offset of a source partition, or None if there is none."""
        return (await self.offsets([partition]))[0]

    async def offsets(self, partitions: Iterable[SourcePartition]) -> list[SourceOffset | None]:
        """Return, in order, the last committed offset of each source partition, or None for a partition without one."""
        wanted = list(partitions)
        answers: list[dict[str, Any] | None] = []
        for store in reversed(self._stores):
            answers = await store.read(self._connector, wanted, otherwise=answers)
        return list(answers)

    async def partitions(self) -> list[SourcePartition]:
        """Return all source partitions that have a committed offset, in any order."""
        merged: dict[bytes, tuple[SourcePartition, SourceOffset | None]] = {}
        for store in reversed(self._stores):
            for partition, offset in await store.of_connector(self._connector):
                merged[sorted_key(self._connector, partition)] = partition, offset
        return [partition for partition, offset in merged.values() if offset is not None]

    def offset_blocking(self, partition: SourcePartition) -> SourceOffset | None:
        """Return the last committed offset as `offset` does, for calls from a thread."""
        return asyncio.run_coroutine_threadsafe(self.offset(partition), self._loop).result()
