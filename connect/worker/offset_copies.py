"""`OffsetCopies`: copies committed offsets of connectors with a topic of their own to the worker's topic (KIP-618).

The copy is what remains where a connector goes back to the worker's topic. It is made in the background, and repeated
until it succeeds; a newer offset takes the place of an older one that waits.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ...client.errors import KafkaError
from ..stores.offset_store import OffsetStore

log = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


class OffsetCopies:
    """The copies that are still to be made."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._waiting: dict[bytes, bytes | None] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, pairs: list[tuple[bytes, bytes | None]]) -> None:
        """Copy these records of the offsets topic."""
        self._waiting.update(pairs)
        if self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._copy(), name="copy offsets")

    async def close(self) -> None:
        """Make the copies that wait, for a moment; then give up."""
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
                log.warning("offsets could not be copied to the worker's topic, and are copied again: %s", error)
                self._waiting = {**pairs, **self._waiting}
                await asyncio.sleep(_RETRY_S)
