"""`OffsetCopies`: copies the offsets of connectors that have their own offsets topic to the worker's topic (KIP-618).

A connector that goes back to the worker's topic continues from the copies. They are made in the background and repeated
until they succeed; a newer offset replaces an older offset that still waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from ...client.errors import KafkaError
from ..stores.offset_store import OffsetStore

log = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


class OffsetCopies:
    """The offsets that wait to be copied."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._waiting: dict[bytes, bytes | None] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Queue these records of an offsets topic to be copied."""
        self._waiting.update(pairs)
        if self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._copy(), name="copy offsets")

    async def write(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write these records after those that are queued, and wait until the worker's topic has them."""
        self.add(pairs)
        if self._task is not None:
            await asyncio.shield(self._task)

    async def before_commit(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Delete offsets from the worker's topic before a commit deletes them from the own topic (KAFKA-15018)."""
        deletions = [(key, value) for key, value in pairs if value is None]
        if deletions:
            await self.write(deletions)

    def after_commit(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Queue the offsets of a commit, except those that `before_commit` has deleted."""
        self.add((key, value) for key, value in pairs if value is not None)

    async def close(self) -> None:
        """Wait up to one second for the queued copies, then give up."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_RETRY_S)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _copy(self) -> None:
        while self._waiting:
            pairs, self._waiting = self._waiting, {}
            try:
                await self._store.write_raw(pairs.items())
            except KafkaError as error:
                log.warning("could not copy offsets to the worker's topic, trying again: %s", error)
                self._waiting = {**pairs, **self._waiting}
                await asyncio.sleep(_RETRY_S)
