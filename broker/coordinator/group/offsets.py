"""Stores committed offsets, and offsets pending in transactions.

The store always equals the result of a replay of the log. Every change is a record in the log: `replay` and
`complete_transaction` are called when a record is appended, and again, in the same order, when the broker starts. Never
appends, and never decides what may be committed.

Invariants

* The offset of a partition is that of the newest record in the log that is either outside of a transaction or in a
  committed transaction. The newest record is the one with the highest `record_offset`, no matter when its transaction
  ended. (Compaction may leave a marker far behind its records.)
* A transaction's offsets are pending from their append until its marker is appended to the same `__consumer_offsets`
  partition. An abort removes them.
* A tombstone removes all offsets with a smaller record offset, including pending offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from ..claim import Claim as Claim
from ..claim import TopicPartition as TopicPartition
from .group_offsets import GroupOffsets
from .group_offsets import OffsetAndMetadata as OffsetAndMetadata

ProducerKey: TypeAlias = tuple[int, int]
"""A (partition of `__consumer_offsets`, producer id) pair: one marker decides all pending offsets of such a pair."""


_NONE: Final[Mapping[TopicPartition, OffsetAndMetadata]] = MappingProxyType({})


class OffsetStore:
    """The committed and pending offsets of all groups of this coordinator."""

    def __init__(self) -> None:
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[ProducerKey, dict[tuple[str, TopicPartition], OffsetAndMetadata]] = {}
        # The producers with pending offsets, by group and partition; OffsetFetch needs them.
        self._pending_by_group: dict[str, dict[TopicPartition, set[ProducerKey]]] = {}

    # ---- lookups

    def get(self, group_id: str, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the committed offset, None if the partition has none."""
        offsets = self._committed.get(group_id)
        return offsets.get(partition) if offsets is not None else None

    def has(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether the group has a committed or a pending offset on the partition."""
        return partition in self._committed.get(group_id, ()) or self.is_pending(group_id, partition)

    def of_group(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of a group, by partition."""
        return self._committed.get(group_id, _NONE)

    def committed(self, group_id: str) -> GroupOffsets | None:
        """Return the object that holds a group's committed offsets, None if the group has none.

        Callers must not change it.
        """
        return self._committed.get(group_id)

    def pending(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions on which open transactions have committed offsets of the group."""
        return self._pending_by_group.get(group_id, {}).keys()

    def snapshot(
        self, group_id: str
    ) -> tuple[Mapping[TopicPartition, OffsetAndMetadata], Mapping[TopicPartition, Any]]:
        """Return a copy of the group's committed offsets, and of the partitions with pending offsets.

        The copy is cheap.
        """
        committed = self._committed.get(group_id)
        return (
            _NONE if committed is None else committed.copy(),
            dict.fromkeys(self._pending_by_group.get(group_id, ())),
        )

    def groups(self) -> Iterator[str]:
        """Yield the ids of the groups with committed or pending offsets."""
        yield from dict.fromkeys((*self._committed, *self._pending_by_group))

    def count(self) -> int:
        """Return the approximate number of offsets. All pending offsets of a group count as one."""
        return sum(map(len, self._committed.values())) + len(self._pending_by_group)

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction has committed an offset on the partition."""
        return partition in self._pending_by_group.get(group_id, ())

    def pending_producers(self, group_id: str, partition: TopicPartition) -> frozenset[int]:
        """Return the ids of the producers that have pending offsets on the partition."""
        pending = self._pending_by_group.get(group_id)
        return frozenset() if pending is None else frozenset(producer for _, producer in pending.get(partition, ()))

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction has committed offsets of the group."""
        return group_id in self._pending_by_group

    def partitions(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions on which the group has a committed or a pending offset."""
        return {*self._pending_by_group.get(group_id, ()), *self.of_group(group_id)}

    # ---- changes: each is one record of the log

    def replay(
        self,
        group_id: str,
        partition: TopicPartition,
        value: OffsetAndMetadata | None,
        record_offset: int,
        producer: ProducerKey | None = None,
    ) -> None:
        """Apply an appended record: an offset (pending if `producer` is given), or a tombstone (None)."""
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
        """Store an offset that is in the log at its `record_offset`. The offset is pending if `producer` is given."""
        if producer is None:
            self._put(group_id, partition, value)
            return
        target = (group_id, partition)
        offsets = self._pending.setdefault(producer, {})
        if target not in offsets:
            self._pending_by_group.setdefault(group_id, {}).setdefault(partition, set()).add(producer)
        offsets[target] = value

    def remove_group(self, group_id: str) -> None:
        """Remove all committed and pending offsets of the group, after their tombstones were appended."""
        self._committed.pop(group_id, None)
        for partition, producers in list(self._pending_by_group.get(group_id, {}).items()):
            for producer in list(producers):
                self._drop_pending(producer, (group_id, partition))

    def complete_transaction(self, producer: ProducerKey, commit: bool, marker_offset: int) -> None:
        """Apply the producer's marker: commit or drop the pending offsets that it wrote before the marker."""
        for target, value in list(self._pending.get(producer, {}).items()):
            if value.record_offset > marker_offset:
                continue
            self._drop_pending(producer, target)
            if commit:
                self._put(*target, value)

    def drop_pending_where(self, is_gone: Callable[[TopicPartition, OffsetAndMetadata], bool]) -> None:
        """Drop the pending offsets for which `is_gone` is true, so that no commit can make them valid."""
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
