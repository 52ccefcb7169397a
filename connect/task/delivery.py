"""`Delivery`: the interface that delivers converted records and their offsets to topics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ...client.values import RecordMetadata
from ..api.records import SourceOffset, SourcePartition, SourceRecord
from ..stores.offset_records import offset_key, offset_value
from .pipeline import ProducerRecord

Acknowledged = list[tuple[SourceRecord, RecordMetadata | None]]
"""Records in order, each with its metadata; the metadata is None if the record was dropped, skipped or aborted."""


class Copies(Protocol):
    """Copies offsets to the worker's topic, for a connector that has its own offsets topic."""

    async def before_commit(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> Sequence[tuple[bytes, bytes | None]]:
        """Delete from the worker's topic the offsets whose new value is None. Return the records for the connector's
        topic.
        """

    def after_commit(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Queue the offsets in these records to be copied, except those that `before_commit` has deleted."""


class Delivery(Protocol):
    """Delivers the records and offsets of one task to topics. If a method raises an error, the task has failed."""

    async def start(self) -> None:
        """Connect, and fence the previous instance of the task."""

    async def send(self, record: SourceRecord, converted: ProducerRecord | None) -> None:
        """Deliver a record. `converted` is None for a dropped record, whose offset is still committed."""

    async def batch_done(self) -> None:
        """Commit if a commit is due; called after each batch, and after `due_in_s` seconds without a batch."""

    async def finish(self) -> None:
        """Commit what may be committed, because the task is paused or stopped."""

    async def finish_failed(self, unsent: Iterable[SourceRecord]) -> None:
        """Commit what may be committed after the task has failed.

        `unsent` are the records that the task has returned, beginning with the one whose conversion or
        `send` failed.
        """

    def due_in_s(self) -> float | None:
        """Return the seconds until `batch_done` must be called again if no batch arrives; None for no limit."""

    async def close(self) -> None:
        """Disconnect without committing."""


class PendingOffsets:
    """The newest offset of each source partition since the last commit, as records of the offsets topic."""

    def __init__(self, connector: str) -> None:
        self._connector = connector
        self._values: dict[bytes, SourceOffset | None] = {}
        self._previous: dict[bytes, SourceOffset | None] = {}
        """The last offset of each source partition before the newest one, if the two differ."""
        self._partition: SourcePartition | None = None
        self._text: str | None = None
        """Distinguishes partitions that are equal in Python only, as 1 and True are; None if all values are text."""
        self._key = b""

    def __bool__(self) -> bool:
        return bool(self._values)

    def add(self, partition: SourcePartition | None, offset: SourceOffset | None) -> None:
        """Keep a copy of the position after a record. Raises DataError for a partition that cannot be stored.

        The copy is needed because a task may change the same offset object for its next records before this offset
        is committed.
        """
        if partition is None:
            return
        key, offset = self._key_of(partition), None if offset is None else dict(offset)
        if key in self._values and self._values[key] != offset:
            self._previous[key] = self._values[key]
        self._values[key] = offset

    def withdraw(self, partition: SourcePartition | None, offset: SourceOffset | None) -> None:
        """Go back to a partition's previous offset if the newest is `offset`, the offset of a record that was not sent.

        Raises DataError for a partition that cannot be stored.
        """
        if partition is None:
            return
        key = self._key_of(partition)
        if key in self._values and self._values[key] == offset:
            del self._values[key]
            if key in self._previous:
                self._values[key] = self._previous.pop(key)

    def _key_of(self, partition: SourcePartition) -> bytes:
        if partition != self._partition or (self._text is not None and self._text != repr(partition)):
            self._key = offset_key(self._connector, partition)
            self._partition = dict(partition)
            self._text = None if all(type(value) is str for value in partition.values()) else repr(self._partition)
        return self._key

    def records(self) -> list[tuple[bytes, bytes | None]]:
        """Return the newest offsets as records of the offsets topic."""
        return [(key, offset_value(offset)) for key, offset in self._values.items()]

    def clear(self) -> None:
        """Forget all offsets."""
        self._values, self._previous = {}, {}

    def take(self) -> list[tuple[bytes, bytes | None]]:
        """Return the newest offsets as records of the offsets topic, and clear them."""
        records = self.records()
        self.clear()
        return records
