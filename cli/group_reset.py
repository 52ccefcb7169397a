"""Where a group is to go on reading: the plan of `oncelog group reset`.

A plan covers partitions of one group. Offsets outside a partition are moved to its nearest end, as Kafka's
kafka-consumer-groups does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from ..client.values import TopicPartition
from .parameters import TopicSelection

if TYPE_CHECKING:
    from ..client.admin import Admin


@dataclass(frozen=True, slots=True)
class Target:
    """Where to go: exactly one of these is given. `time_ms` is in milliseconds since the epoch."""

    earliest: bool = False
    latest: bool = False
    offset: int | None = None
    time_ms: int | None = None
    shift_by: int | None = None

    @property
    def count(self) -> int:
        """How many of the targets are given."""
        others = (self.offset, self.time_ms, self.shift_by)
        return self.earliest + self.latest + sum(each is not None for each in others)


class Move(NamedTuple):
    """The planned change of one partition; `clamped` says that `wanted` lies outside of the partition."""

    committed: int | None
    new_offset: int
    end: int
    wanted: int

    @property
    def clamped(self) -> bool:
        """Whether the offset asked for is outside of the partition."""
        return self.wanted != self.new_offset


async def selected_partitions(
    admin: Admin, committed: Mapping[TopicPartition, int], topics: Sequence[TopicSelection]
) -> list[TopicPartition]:
    """Return the partitions that `topics` name, or without any all that the group has committed.

    Raises ClickException for a partition that does not exist, KafkaError for a topic that does not.
    """
    if not topics:
        existing = set(await admin.list_topics(internal=True))
        return sorted(partition for partition in committed if partition.topic in existing)
    described = await admin.describe_topics([topic.topic for topic in topics])
    selected = set()
    for topic, partitions in topics:
        count = len(described[topic].partitions)
        for partition in partitions:
            if partition >= count:
                raise click.ClickException(f"topic {topic} has no partition {partition}: it has {count}")
        selected |= {TopicPartition(topic, partition) for partition in partitions or range(count)}
    return sorted(selected)


async def plan(
    admin: Admin, committed: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition], target: Target
) -> dict[TopicPartition, Move]:
    """Return where each partition goes. With `shift_by`, partitions without a committed offset are left out."""
    starts = await admin.list_offsets(dict.fromkeys(partitions, -2))
    ends = await admin.list_offsets(dict.fromkeys(partitions, -1))
    at_time = {} if target.time_ms is None else await admin.list_offsets(dict.fromkeys(partitions, target.time_ms))
    moves = {}
    for partition in partitions:
        start, end, before = starts[partition].offset, ends[partition].offset, committed.get(partition)
        if target.shift_by is not None:
            if before is None:
                continue
            wanted = before + target.shift_by
        elif target.offset is not None:
            wanted = target.offset
        elif target.time_ms is not None:
            first = at_time[partition].offset
            wanted = end if first < 0 else first  # no record is that young
        else:
            wanted = start if target.earliest else end
        moves[partition] = Move(before, min(max(wanted, start), end), end, wanted)
    return moves
