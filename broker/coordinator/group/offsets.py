"""Committed offsets, and those that wait for the end of a transaction: exactly what a replay of the log gives.

Every change is a record that was appended: `replay` and `complete_transaction` are called for records as they are
appended and again, in the same order, at start. Never appends, never decides what may be committed.

Invariants

* The offset of a partition is that of the newest record in the log which is outside of a transaction, or in one that
  was committed. Newest means by `record_offset`, not by when a transaction ended: compaction may leave a marker far
  behind its records.
* A transaction's offsets are pending from its append to its marker in the same `__consumer_offsets` partition; an
  aborted one leaves no trace.
* A tombstone removes everything with a smaller record offset, pending ones included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from ..claims import Claim as Claim
from ..claims import TopicPartition as TopicPartition
from .group_offsets import GroupOffsets
from .group_offsets import OffsetAndMetadata as OffsetAndMetadata

ProducerKey: TypeAlias = tuple[int, int]
"""(partition of `__consumer_offsets`, producer id): what one marker settles."""


_NONE: Final[Mapping[TopicPartition, OffsetAndMetadata]] = MappingProxyType({})


class OffsetStore:
    """The offsets of all groups of this coordinator."""

    def __init__(self) -> None:
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[ProducerKey, dict[tuple[str, TopicPartition], OffsetAndMetadata]] = {}
        # By group, which producers have something pending on a partition: what OffsetFetch asks for.
        self._pending_by_group: dict[str, dict[TopicPartition, set[ProducerKey]]] = {}

    # ---- lookups

    def get(self, group_id: str, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The committed offset."""
        offsets = self._committed.get(group_id)
        return offsets.get(partition) if offsets is not None else None

    def of_group(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """All committed offsets of a group."""
        return self._committed.get(group_id, _NONE)

    def groups(self) -> Iterator[str]:
        """Groups with committed or pending offsets."""
        yield from dict.fromkeys((*self._committed, *self._pending_by_group))

    def count(self) -> int:
        """How many offsets there are, about: a pending one counts for its group."""
        return sum(map(len, self._committed.values())) + len(self._pending_by_group)

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether a transaction that is not decided has committed on the partition."""
        return partition in self._pending_by_group.get(group_id, ())

    def pending_producers(self, group_id: str, partition: TopicPartition) -> frozenset[int]:
        """The producers with pending offsets on the partition."""
        pending = self._pending_by_group.get(group_id)
        return frozenset() if pending is None else frozenset(producer for _, producer in pending.get(partition, ()))

    def has_pending(self, group_id: str) -> bool:
        """Whether any transaction that is not decided has committed offsets of the group."""
        return group_id in self._pending_by_group

    def partitions(self, group_id: str) -> set[TopicPartition]:
        """Partitions with a committed or a pending offset of the group."""
        return {*self._pending_by_group.get(group_id, ()), *self.of_group(group_id)}

    # ---- changes, each one record of the log

    def replay(
        self,
        group_id: str,
        partition: TopicPartition,
        value: OffsetAndMetadata | None,
        record_offset: int,
        producer: ProducerKey | None = None,
    ) -> None:
        """A record was appended: an offset (pending where `producer` is given), or a tombstone."""
        if value is not None:
            self.put(group_id, partition, value._replace(record_offset=record_offset), producer)
            return
        self._remove(group_id, partition, record_offset)
        target = (group_id, partition)
        for key in list(self._pending_by_group.get(group_id, {}).get(partition, ())):
            if self._pending[key][target].record_offset < record_offset:
                self._drop_pending(key, target)

    def put(
        self, group_id: str, partition: TopicPartition, value: OffsetAndMetadata, producer: ProducerKey | None = None
    ) -> None:
        """An offset is in the log at its `record_offset`; pending where `producer` is given."""
        if producer is None:
            self._put(group_id, partition, value)
            return
        target = (group_id, partition)
        offsets = self._pending.setdefault(producer, {})
        if target not in offsets:
            self._pending_by_group.setdefault(group_id, {}).setdefault(partition, set()).add(producer)
        offsets[target] = value

    def complete_transaction(self, producer: ProducerKey, commit: bool, marker_offset: int) -> None:
        """The producer's marker is in the log: its offsets pending from before become committed, or go."""
        for target, value in list(self._pending.get(producer, {}).items()):
            if value.record_offset > marker_offset:
                continue
            self._drop_pending(producer, target)
            if commit:
                self._put(*target, value)

    def drop_pending_where(self, is_gone: Callable[[TopicPartition, OffsetAndMetadata], bool]) -> None:
        """Forget pending offsets that must never count, whatever becomes of their transactions."""
        for producer, offsets in list(self._pending.items()):
            for target, value in list(offsets.items()):
                if is_gone(target[1], value):
                    self._drop_pending(producer, target)

    def _put(self, group_id: str, partition: TopicPartition, value: OffsetAndMetadata) -> None:
        offsets = self._committed.get(group_id)
        if offsets is None:
            offsets = self._committed[group_id] = GroupOffsets()
        offsets.put(partition, value)

    def _remove(self, group_id: str, partition: TopicPartition, record_offset: int) -> None:
        offsets = self._committed.get(group_id)
        if offsets is not None:
            offsets.remove(partition, record_offset)
            if not offsets:
                del self._committed[group_id]

    def _drop_pending(self, producer: ProducerKey, target: tuple[str, TopicPartition]) -> None:
        offsets = self._pending[producer]
        del offsets[target]
        if not offsets:
            del self._pending[producer]
        group_id, partition = target
        pending = self._pending_by_group[group_id]
        pending[partition].remove(producer)
        if not pending[partition]:
            del pending[partition]
        if not pending:
            del self._pending_by_group[group_id]
