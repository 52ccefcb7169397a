"""Stores committed offsets, and offsets pending in transactions.

The store always equals the result of a replay of the log. Every change is a record in the log: `replay` and
`complete_transaction` are called when a record is appended. When the broker starts, `put` restores the offsets from the
last record of each key. Never appends, and never decides what may be committed.

Invariants

* A partition's offset comes from the newest record in the log that is either outside of a transaction or in a committed
  transaction. The newest record is the one with the highest `record_offset`, no matter when its transaction ended.
* A transaction's offsets are pending from their append until its marker is appended to the same `__consumer_offsets`
  partition. An abort removes them.
* A tombstone removes all offsets with a smaller record offset, including pending offsets.

The marker of a large transaction takes effect immediately, but the event loop must not wait until thousands of offsets
are moved. So each of these offsets is settled, which means moved or dropped, when it is next needed: a method for one
partition settles the partition's offsets, and a method for a group settles the group's offsets. A caller that needs a
whole group runs the steps of `settle` first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from ....protocol.schema import NO_UUID
from ...scheduling.steps import Steps
from ..claim import Claim as Claim
from ..claim import TopicPartition as TopicPartition
from .group_offsets import GroupOffsets
from .group_offsets import OffsetAndMetadata as OffsetAndMetadata

ProducerKey: TypeAlias = tuple[int, int]
"""A (partition of `__consumer_offsets`, producer id) pair. One marker commits or aborts all of its pending offsets."""


MOVED_AT_ONCE: Final = 500
"""A marker moves its transaction's offsets immediately if there are at most this many. Moving one takes about 4 µs."""

_SETTLED_AT_ONCE: Final = 50
"""How many offsets are moved or dropped before other tasks may run."""

_UNITS_PER_OFFSET: Final = 5
"""The cost of moving or dropping an offset, in units of work (`steps.py`)."""

NO_OFFSETS: Final[Mapping[TopicPartition, OffsetAndMetadata]] = MappingProxyType({})

_Decided: TypeAlias = tuple[ProducerKey, bool]
"""A producer whose transaction has ended, and whether the transaction was committed."""


class OffsetStore:
    """The committed and pending offsets of all groups of this coordinator."""

    def __init__(self) -> None:
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[ProducerKey, dict[str, dict[TopicPartition, OffsetAndMetadata]]] = {}
        self._newest: dict[ProducerKey, int] = {}
        """The highest record offset among a producer's pending offsets, including those already dropped."""
        self._pending_by_group: dict[str, dict[TopicPartition, set[ProducerKey]]] = {}
        """The producers with offsets that are pending or not settled yet, by group and partition."""
        self._decided: dict[str, dict[_Decided, dict[TopicPartition, OffsetAndMetadata]]] = {}
        """The offsets to settle, by group and ended transaction. A producer has at most one of them on a partition."""
        self._unmoved = 0
        """The number of offsets that are pending or not settled yet."""

    # ---- lookups

    def get(self, group_id: str, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the committed offset, or None if the partition has none."""
        self._settle_one(group_id, partition)
        offsets = self._committed.get(group_id)
        return offsets.get(partition) if offsets is not None else None

    def has(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether the group has a committed or a pending offset on the partition."""
        self._settle_one(group_id, partition)
        return partition in self._committed.get(group_id, ()) or self.is_pending(group_id, partition)

    def of_group(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of a group, by partition."""
        self._settle(group_id)
        return self._committed.get(group_id, NO_OFFSETS)

    def claims(self, group_id: str) -> dict[TopicPartition, Claim]:
        """Return the claims that the committed offsets of a group contain."""
        self._settle(group_id)
        offsets = self._committed.get(group_id)
        return {} if offsets is None else offsets.claims()

    def topic_id(self, group_id: str, partition: TopicPartition) -> bytes:
        """Return the topic id of a committed offset; `NO_UUID` if it is unknown, or if there is no offset."""
        self._settle_one(group_id, partition)
        offsets = self._committed.get(group_id)
        return NO_UUID if offsets is None else offsets.topic_id(partition)

    def may_have_any(self, group_id: str) -> bool:
        """Whether the group has a committed or a pending offset, without settling the group (`settle`).

        If its only offsets were aborted, the result may be True until the group is settled.
        """
        return group_id in self._committed or group_id in self._pending_by_group

    def moved(self, group_id: str) -> GroupOffsets | None:
        """Return the object that holds a group's committed offsets, or None if the group has none.

        Until the group is settled (`settle`), the object may lack offsets of committed transactions. Callers must not
        change the object.
        """
        return self._committed.get(group_id)

    def unmoved(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions with offsets that are pending or not settled yet (`settle`)."""
        return self._pending_by_group.get(group_id, {}).keys()

    def pending(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions for which open transactions contain offset commits of the group."""
        self._settle(group_id)
        return self._pending_by_group.get(group_id, {}).keys()

    def snapshot(
        self, group_id: str
    ) -> tuple[Mapping[TopicPartition, OffsetAndMetadata], Mapping[TopicPartition, Any]]:
        """Return a copy of the group's committed offsets, and of the partitions with pending offsets.

        The copy is cheap.
        """
        self._settle(group_id)
        committed = self._committed.get(group_id)
        return (
            NO_OFFSETS if committed is None else committed.copy(),
            dict.fromkeys(self._pending_by_group.get(group_id, ())),
        )

    def groups(self) -> list[str]:
        """Return the ids of the groups with committed or pending offsets.

        A group whose only offsets were aborted may be among them until it is settled (`settle`).
        """
        return [*self._committed, *(group_id for group_id in self._pending_by_group if group_id not in self._committed)]

    def count(self) -> int:
        """Return the number of offsets. Those of an ended transaction may count twice until `settle` is called.

        The cost grows with the number of groups.
        """
        return sum(map(len, self._committed.values())) + self._unmoved

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction contains an offset commit of the group for the partition."""
        self._settle_one(group_id, partition)
        return partition in self._pending_by_group.get(group_id, ())

    def pending_producers(self, group_id: str, partition: TopicPartition) -> frozenset[int]:
        """Return the ids of the producers that have pending offsets on the partition."""
        self._settle_one(group_id, partition)
        pending = self._pending_by_group.get(group_id)
        return frozenset() if pending is None else frozenset(producer for _, producer in pending.get(partition, ()))

    def known(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions on which the group has a committed or a pending offset, without calling `settle`.

        A partition with both occurs twice. A partition whose only offset was aborted may be among them. The cost
        is about 10 ns per partition.
        """
        committed = self._committed.get(group_id)
        return [*(() if committed is None else committed.listed()), *self._pending_by_group.get(group_id, ())]

    def partitions(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions on which the group has a committed or a pending offset."""
        return {*self.pending(group_id), *self.of_group(group_id)}

    # ---- changes: each is one record of the log

    def replay(
        self,
        group_id: str,
        partition: TopicPartition,
        value: OffsetAndMetadata | None,
        record_offset: int,
        producer: ProducerKey | None = None,
    ) -> None:
        """Apply an appended record: an offset or, if `value` is None, a tombstone.

        If `producer` is given, the offset is pending.
        """
        if value is not None:
            self.put(group_id, partition, value._replace(record_offset=record_offset), producer)
            return
        self._settle_one(group_id, partition)
        self._remove(group_id, partition, record_offset)
        for key in list(self._pending_by_group.get(group_id, {}).get(partition, ())):
            if self._pending[key][group_id][partition].record_offset < record_offset:
                self._drop_pending(key, group_id, partition)

    def put(
        self, group_id: str, partition: TopicPartition, value: OffsetAndMetadata, producer: ProducerKey | None = None
    ) -> None:
        """Store an offset that is in the log at its `record_offset`. The offset is pending if `producer` is given."""
        if producer is None:
            self._put(group_id, partition, value)
            return
        self._settle_one(group_id, partition)
        offsets = self._pending.setdefault(producer, {}).setdefault(group_id, {})
        if partition not in offsets:
            self._pending_by_group.setdefault(group_id, {}).setdefault(partition, set()).add(producer)
            self._unmoved += 1
        offsets[partition] = value
        self._newest[producer] = max(self._newest.get(producer, -1), value.record_offset)

    def remove_group(self, group_id: str) -> None:
        """Remove all committed and pending offsets of the group. The caller has already appended their tombstones."""
        self._committed.pop(group_id, None)
        self._pending_by_group.pop(group_id, None)
        for offsets in self._decided.pop(group_id, {}).values():
            self._unmoved -= len(offsets)
        for producer in [producer for producer, groups in self._pending.items() if group_id in groups]:
            self._unmoved -= len(self._pending[producer].pop(group_id))
            if not self._pending[producer]:
                del self._pending[producer], self._newest[producer]

    def complete_transaction(self, producer: ProducerKey, commit: bool, marker_offset: int) -> None:
        """Apply the producer's marker: commit or drop the pending offsets that precede the marker in the log."""
        groups = self._pending.get(producer)
        if groups is None:
            return
        if self._newest[producer] > marker_offset:  # some were written after the marker, and stay pending
            for group_id, offsets in list(groups.items()):
                for partition, value in list(offsets.items()):
                    if value.record_offset <= marker_offset:
                        self._drop_pending(producer, group_id, partition)
                        if commit:
                            self._put(group_id, partition, value)
            return
        del self._pending[producer], self._newest[producer]
        if sum(map(len, groups.values())) <= MOVED_AT_ONCE:
            for group_id, offsets in groups.items():
                for partition, value in offsets.items():
                    self._move((producer, commit), group_id, partition, value)
            return
        for group_id, offsets in groups.items():
            decided = self._decided.setdefault(group_id, {})
            earlier = decided.get((producer, commit), {})
            if len(earlier) > len(offsets):
                earlier, offsets = offsets, earlier
            offsets.update(earlier)
            decided[producer, commit] = offsets

    def settle(self, group_id: str) -> Steps[None]:
        """Settle a group's offsets in steps: move or drop those of ended transactions.

        Afterwards, all methods for the group are cheap. Offsets of transactions that end meanwhile are settled, too.
        """
        while group_id in self._decided:
            partitions = list(next(iter(self._decided[group_id].values())))
            for start in range(0, len(partitions), _SETTLED_AT_ONCE):
                portion = partitions[start : start + _SETTLED_AT_ONCE]
                for partition in portion:
                    self._settle_one(group_id, partition)
                yield _UNITS_PER_OFFSET * len(portion)

    def settle_some(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Settle a group's offsets on these partitions."""
        if group_id in self._decided:
            for partition in partitions:
                self._settle_one(group_id, partition)

    def drop_pending_where(self, is_gone: Callable[[TopicPartition, OffsetAndMetadata], bool]) -> None:
        """Drop the pending offsets for which `is_gone` is true, so that no transaction can commit them."""
        for group_id in list(self._decided):
            self._settle(group_id)
        for producer, groups in list(self._pending.items()):
            for group_id, offsets in list(groups.items()):
                for partition, value in list(offsets.items()):
                    if is_gone(partition, value):
                        self._drop_pending(producer, group_id, partition)

    def _settle(self, group_id: str) -> None:
        """Settle a group's offsets: move or drop those of ended transactions."""
        for decided, offsets in self._decided.pop(group_id, {}).items():
            for partition, value in offsets.items():
                self._move(decided, group_id, partition, value)

    def _settle_one(self, group_id: str, partition: TopicPartition) -> None:
        """Settle a group's offsets on one partition."""
        of_group = self._decided.get(group_id)
        if of_group is None:
            return
        for producer in list(self._pending_by_group.get(group_id, {}).get(partition, ())):
            for decided in ((producer, True), (producer, False)):
                offsets = of_group.get(decided)
                value = None if offsets is None else offsets.pop(partition, None)
                if value is not None:
                    self._move(decided, group_id, partition, value)
                    if not offsets:
                        del of_group[decided]
        if not of_group:
            del self._decided[group_id]

    def _move(self, decided: _Decided, group_id: str, partition: TopicPartition, value: OffsetAndMetadata) -> None:
        producer, commit = decided
        self._forget_producer(producer, group_id, partition)
        if commit:
            self._put(group_id, partition, value)

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

    def _drop_pending(self, producer: ProducerKey, group_id: str, partition: TopicPartition) -> None:
        groups = self._pending[producer]
        offsets = groups[group_id]
        del offsets[partition]
        if not offsets:
            del groups[group_id]
        if not groups:
            del self._pending[producer], self._newest[producer]
        self._forget_producer(producer, group_id, partition)

    def _forget_producer(self, producer: ProducerKey, group_id: str, partition: TopicPartition) -> None:
        self._unmoved -= 1
        pending = self._pending_by_group[group_id]
        producers = pending[partition]
        producers.remove(producer)
        if not producers:
            del pending[partition]
        if not pending:
            del self._pending_by_group[group_id]
