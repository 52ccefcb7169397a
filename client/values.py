"""Values of the clients' API: partitions, offsets, group assignments, results of a send.

All are immutable and hashable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from ..protocol.schema import NO_UUID


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A position to commit. `offset` is the offset of the next record to read. `leader_epoch` is -1 if it is unknown.

    `topic_id` is the 16-byte id of the topic that the records come from, or zeros if the id is unknown. A transaction
    with offsets of a topic that was deleted and created again is refused, because the offsets would skip records of the
    new topic. Apache Kafka does not check this.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    topic_id: bytes = NO_UUID


V = TypeVar("V")
BytesLike: TypeAlias = bytes | bytearray | memoryview
"""A key or value to send. Mutable buffers are copied."""
HeadersLike: TypeAlias = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Headers to send, as pairs or as a mapping. A mapping can contain each name only once."""
ByPartition: TypeAlias = Mapping[TopicPartition, V] | Mapping[tuple[str, int], V]
"""A value for each partition. The keys may be any (topic, partition) pairs. The type names two mappings because
`Mapping` is invariant in its key.
"""
Offsets: TypeAlias = ByPartition[OffsetAndMetadata | int]
"""Positions to commit by partition; a plain int is an offset without metadata."""


class ConsumerGroupMetadata(NamedTuple):
    """The group and member on whose behalf a transaction commits offsets (KIP-447). The coordinator fences an outdated
    member.

    A `generation_id` of -1 and an empty `member_id` stand for a consumer whose partitions are not assigned by the
    group.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The input partitions that a producer works on, and the generation of the group that assigned them (KIP-447).

    Use this class directly for groups whose partitions are not assigned by Kafka's group protocol. For such a group,
    the generation is any number that grows with each assignment, or -1 if the group has no generations. `partitions`
    may contain any (topic, partition) pairs.
    """

    generation_id: int = -1
    partitions: frozenset[TopicPartition] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "partitions", frozenset(TopicPartition(*one) for one in self.partitions))


@dataclass(frozen=True, slots=True)
class ConsumerAssignment(GroupAssignment):
    """The assignment of a member of a consumer group, from `Consumer.group_assignment()`."""

    group_id: str = ""
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """The group and member for which a transaction commits offsets of this assignment."""
        return ConsumerGroupMetadata(self.group_id, self.generation_id, self.member_id, self.group_instance_id)


class RecordMetadata(NamedTuple):
    """The place where a record was written. `offset` is -1 with acks=0, and for a duplicate whose offset the broker no
    longer knows.

    `timestamp` is in milliseconds since the epoch: the record's own, or the broker's if the topic uses LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
