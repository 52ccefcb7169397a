"""The `OffsetReader` of a connector and its tasks, in the loop and from a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from ..api.records import SourceOffset, SourcePartition
from ..stores.offset_store import OffsetStore


class StoredOffsets:
    """Reads the offsets of one connector: its own topic's first, where it has one, then the worker's."""

    def __init__(self, connector: str, stores: list[OffsetStore]) -> None:
        self._connector, self._stores = connector, stores
        self._loop = asyncio.get_running_loop()

    async def offset(self, partition: SourcePartition) -> SourceOffset | None:
        """Return the last committed offset of a source partition, or None."""
        return (await self.offsets([partition]))[0]

    async def offsets(self, partitions: Iterable[SourcePartition]) -> list[SourceOffset | None]:
        """Return the last committed offset of each source partition, in the same order."""
        wanted = list(partitions)
        answers: list[dict[str, Any] | None] = [None] * len(wanted)
        for store in self._stores:
            read = await store.read(self._connector, wanted)
            answers = [before if before is not None else value for before, value in zip(answers, read, strict=True)]
        return list(answers)

    def offset_blocking(self, partition: SourcePartition) -> SourceOffset | None:
        """Return what `offset` returns, to a thread."""
        return asyncio.run_coroutine_threadsafe(self.offset(partition), self._loop).result()
