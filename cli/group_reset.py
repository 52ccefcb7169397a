"""Plan the new offsets of a group for `oncelog group reset`.

An offset outside of its partition is replaced by the nearest offset inside it, as Kafka's kafka-consumer-groups does.
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
    """The position to which a group is reset. A valid target has exactly one field set. `time_ms`: ms since 1970."""

    earliest: bool = False
    latest: bool = False
    offset: int | None = None
    time_ms: int | None = None
    shift_by: int | None = None

    @property
    def count(self) -> int:
        """The number of fields that are set."""
        others = (self.offset, self.time_ms, self.shift_by)
        return self.earliest + self.latest + sum(each is not None for each in others)


class Move(NamedTuple):
    """The planned change of one partition. `wanted` is the requested offset, which may be outside of the partition."""

    committed: int | None
    new_offset: int
    end: int
    wanted: int

    @property
    def clamped(self) -> bool:
        """Whether the requested offset is outside of the partition."""
        return self.wanted != self.new_offset


async def selected_partitions(
    admin: Admin, committed: Mapping[TopicPartition, int], topics: Sequence[TopicSelection]
) -> list[TopicPartition]:
    """Return the partitions that `topics` select. Without `topics`, return those with a committed offset.

    In the latter case, partitions of deleted topics are left out. Raise ClickException if a selected partition does not
    exist, and KafkaError if a selected topic does not exist.
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
                raise click.ClickException(
                    f"topic {topic} has no partition {partition}: its number of partitions is {count}"
                )
        selected |= {TopicPartition(topic, partition) for partition in partitions or range(count)}
    return sorted(selected)


async def plan(
    admin: Admin, committed: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition], target: Target
) -> dict[TopicPartition, Move]:
    """Return the planned move of each partition.

    With the target `shift_by`, partitions without a committed offset are left out.
    """
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
            wanted = end if first < 0 else first  # all records are older
        else:
            wanted = start if target.earliest else end
        moves[partition] = Move(before, min(max(wanted, start), end), end, wanted)
    return moves


def without_offsets(
    group: str, committed: Mapping[TopicPartition, int], topics: Sequence[TopicSelection], target: Target
) -> str:
    """Return the error for a reset that moves no partition, with the remedy for the given topics and target."""
    where = " in these topics" if topics else " in topics that still exist" if committed else ""
    remedies = [] if topics else ["name a topic with --topic"]
    if target.shift_by is not None:
        remedies.append("use a target other than --shift-by")
    return f"group {group} has no committed offsets{where}. To set its first offsets, {' and '.join(remedies)}."
