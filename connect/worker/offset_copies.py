"""`OffsetCopies`: copies the offsets of connectors that have their own offsets topic to the worker's topic (KIP-618).

A connector that goes back to the worker's topic continues from the copies. The copies are made in the background, and
each is repeated until it succeeds. A newer offset replaces an older offset that still waits. A copy is dropped only if
the cluster refuses the record itself, for example because it is too large.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ...client.errors import KafkaError, RecordTooLargeError, RetriableError, copy_of
from ...protocol.errors import ErrorCode
from ..stores.offset_records import DELETED, without_tombstones
from ..stores.offset_store import OffsetStore

log = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


class OffsetCopies:
    """The offsets that wait to be copied."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._waiting: dict[bytes, bytes | None] = {}
        self._refused: dict[bytes, KafkaError] = {}
        """Why the last record of a key was dropped."""
        self._task: asyncio.Task[None] | None = None

    def add(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Queue these records of an offsets topic to be copied."""
        for key, value in pairs:
            self._waiting[key] = value
            self._refused.pop(key, None)
        if self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._copy(), name="copy offsets")

    async def write(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write these records after those that are queued, and wait until the worker's topic has them.

        Raises KafkaError for a record that the cluster will never accept, such as RecordTooLargeError.
        """
        wanted = dict(pairs)
        self.add(wanted.items())
        if self._task is not None:
            await asyncio.shield(self._task)
        for key in wanted:
            if key in self._refused:
                raise copy_of(self._refused[key])

    async def before_commit(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> Sequence[tuple[bytes, bytes | None]]:
        """Delete offsets from the worker's topic before a commit deletes them from the connector's own (KAFKA-15018).

        Return the records to commit to the connector's own topic. Raises KafkaError as `write` does.
        """
        deletions = [(key, value) for key, value in pairs if value is None]
        if deletions:
            await self.write(deletions)
        return without_tombstones(pairs)

    def after_commit(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Queue the offsets of a commit, except those that `before_commit` has deleted."""
        self.add((key, value) for key, value in pairs if value != DELETED)

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
            except RetriableError as error:
                await self._again(pairs, error)
            except KafkaError:  # perhaps an error of a single record
                await self._copy_each(pairs)

    async def _copy_each(self, pairs: Mapping[bytes, bytes | None]) -> None:
        left = dict(pairs)
        last_error: KafkaError | None = None
        for key, value in pairs.items():
            try:
                await self._store.write_raw([(key, value)])
            except KafkaError as error:
                if not _of_record(error):
                    last_error = error
                    continue
                log.error(
                    "the offset of %s is not copied to the worker's topic, which keeps an older one: %s",
                    key.decode(errors="replace"),
                    error,
                )
                if key not in self._waiting:  # a newer offset may succeed
                    self._refused[key] = error
            del left[key]
        if last_error is not None:
            await self._again(left, last_error)

    async def _again(self, pairs: Mapping[bytes, bytes | None], error: KafkaError) -> None:
        log.warning("could not copy offsets to the worker's topic; trying again: %s", error)
        self._waiting = {**pairs, **self._waiting}
        await asyncio.sleep(_RETRY_S)


def _of_record(error: KafkaError) -> bool:
    """Return whether the error is about the record itself, so that the cluster would refuse it again."""
    return isinstance(error, RecordTooLargeError) or error.code is ErrorCode.INVALID_RECORD
