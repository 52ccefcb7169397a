"""Stores one group's committed offsets in compact form, because a coordinator may store hundreds of thousands of them.

Implements the rule that a partition's newest record is the valid one. Offsets that are committed together usually
differ only in two numbers, the committed offset and the record's offset. These numbers are kept in one array, and
offsets that differ only in them share one tuple of the other fields. An `OffsetAndMetadata` is created on access.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ....protocol.schema import NO_UUID
from ..claim import Claim, TopicPartition


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    `record_offset` is the offset of this commit's record in the log of `__consumer_offsets`. `expire_timestamp_ms` is
    the time in ms since the epoch when the committed offset expires; it is -1 unless an old client requested a
    retention for this offset. `topic_id` is zero if it is unknown. `claim` is the partition's claim when the record was
    written; a later claim does not change it.
    """

    committed_offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = NO_UUID
    claim: Claim | None = None
    record_offset: int = -1


_Rest: TypeAlias = tuple[int, str, int, int, bytes, Claim | None]
"""The fields of an `OffsetAndMetadata` between `committed_offset` and `record_offset`."""


class GroupOffsets(Mapping[TopicPartition, OffsetAndMetadata]):
    """The offsets of a group by partition, iterated in the order in which the partitions were first committed.

    Each partition has an index, its place, in the arrays that hold its committed offset, its record offset and the
    other fields. When an offset is removed, the offset in the last place moves into the free place. The cost of a
    change therefore does not depend on the number of offsets.
    """

    __slots__ = ("_numbers", "_partitions", "_places", "_rests", "insertions")

    def __init__(self) -> None:
        self.insertions = 0
        """How many times an offset was stored on a partition that had no offset."""
        self._places: dict[TopicPartition, int] = {}
        self._partitions: list[TopicPartition] = []
        self._numbers = array("q")
        self._rests: list[_Rest] = []

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._places)

    def __contains__(self, partition: object) -> bool:
        return partition in self._places

    def __getitem__(self, partition: TopicPartition) -> OffsetAndMetadata:
        place = self._places[partition]
        committed_offset, record_offset = self._numbers[2 * place : 2 * place + 2]
        return OffsetAndMetadata._make((committed_offset, *self._rests[place], record_offset))

    def partitions(self) -> dict[TopicPartition, int]:
        """Return a new dict whose keys are the partitions. This costs less than iterating over the mapping."""
        return self._places.copy()

    def listed(self) -> Sequence[TopicPartition]:
        """Return the partitions in the order of their places. Callers must copy the list before an offset changes."""
        return self._partitions

    def claims(self) -> dict[TopicPartition, Claim]:
        """Return the claims of the offsets that have one."""
        rests = zip(self._partitions, self._rests, strict=True)
        return {partition: claim for partition, (*_, claim) in rests if claim is not None}

    def topic_id(self, partition: TopicPartition) -> bytes:
        """Return the topic id of a partition's offset; `NO_UUID` if it is unknown, or if there is no offset."""
        place = self._places.get(partition)
        if place is None:
            return NO_UUID
        *_, topic_id, _ = self._rests[place]
        return topic_id

    def copy(self) -> GroupOffsets:
        """Return an independent copy of the offsets. The copy counts its `insertions` from 0."""
        copy = GroupOffsets()
        copy._places, copy._partitions = self._places.copy(), self._partitions.copy()
        copy._numbers, copy._rests = self._numbers[:], self._rests.copy()
        return copy

    def put(self, partition: TopicPartition, value: OffsetAndMetadata) -> None:
        """Store the offset, unless an offset from a later record is already stored."""
        numbers, rests, rest = self._numbers, self._rests, value[1:-1]
        place = self._places.get(partition)
        if place is None:
            if rests and rests[-1] == rest:
                rest = rests[-1]
            self._places[partition] = len(rests)
            self._partitions.append(partition)
            self.insertions += 1
            rests.append(rest)
            numbers.extend((value[0], value[-1]))
        elif numbers[2 * place + 1] < value[-1]:
            neighbour = rests[place - 1]  # most likely committed together with this partition
            rests[place] = neighbour if neighbour == rest else rest
            numbers[2 * place] = value[0]
            numbers[2 * place + 1] = value[-1]

    def remove(self, partition: TopicPartition, record_offset: int) -> None:
        """Remove the partition's committed offset, unless the record of the commit comes after the tombstone.

        `record_offset` is the offset of the tombstone in the log of `__consumer_offsets`.
        """
        place = self._places.get(partition)
        if place is None or self._numbers[2 * place + 1] > record_offset:
            return
        del self._places[partition]
        last, rest = self._partitions.pop(), self._rests.pop()
        last_record, last_committed = self._numbers.pop(), self._numbers.pop()
        if last != partition:
            self._places[last] = place
            self._partitions[place], self._rests[place] = last, rest
            self._numbers[2 * place], self._numbers[2 * place + 1] = last_committed, last_record
