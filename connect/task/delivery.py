"""`Delivery`: the way of converted records, and of their offsets, into topics."""

from __future__ import annotations

from typing import Protocol

from ...client.values import RecordMetadata
from ..api.records import SourceOffset, SourcePartition, SourceRecord
from ..stores.offset_records import offset_key, offset_value
from .pipeline import ProducerRecord

Acknowledged = list[tuple[SourceRecord, RecordMetadata | None]]
"""Records in their order; the metadata is None for one that was dropped, left out or aborted."""


class Delivery(Protocol):
    """What the runner asks of it. Every call may raise, and then the task has failed."""

    async def start(self) -> None:
        """Connect, and fence whoever did this task's work before."""

    async def send(self, record: SourceRecord, converted: ProducerRecord | None) -> None:
        """Hand over a record, None in place of one that is dropped: its offset counts nevertheless."""

    async def batch_done(self) -> None:
        """Commit what is due; called behind each batch, and after `due_in_s` while there is none."""

    async def finish(self) -> None:
        """Commit what may be committed, as the task is paused or stopped."""

    async def finish_failed(self) -> None:
        """Commit what may be committed, as the task has failed."""

    def due_in_s(self) -> float | None:
        """Return in how many seconds `batch_done` is to be called again; None: with the next batch."""

    async def close(self) -> None:
        """Disconnect; what was not committed is not."""


class PendingOffsets:
    """The newest offset of each source partition since the last commit, as records of the offsets topic."""

    def __init__(self, connector: str) -> None:
        self._connector = connector
        self._values: dict[bytes, SourceOffset | None] = {}
        self._partition: SourcePartition | None = None
        self._key = b""

    def __bool__(self) -> bool:
        return bool(self._values)

    def add(self, partition: SourcePartition | None, offset: SourceOffset | None) -> None:
        """Note the position behind a record, as it is now; raises DataError for what cannot be kept.

        A task may change the same offset for its next records, while this one waits for its commit.
        """
        if partition is None:
            return
        if partition is not self._partition and partition != self._partition:
            self._key = offset_key(self._connector, partition)
            self._partition = dict(partition)
        self._values[self._key] = None if offset is None else dict(offset)

    def take(self) -> list[tuple[bytes, bytes | None]]:
        """Return the records, and begin anew."""
        values, self._values = self._values, {}
        return [(key, offset_value(offset)) for key, offset in values.items()]
