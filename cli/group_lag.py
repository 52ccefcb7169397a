"""Compute the lag of consumer groups from their committed offsets and the ends of the partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from ..client.errors import KafkaError
from ..client.values import TopicPartition
from .progress import Progress

if TYPE_CHECKING:
    from ..client.admin import Admin

AT_ONCE: Final = 16
"""The largest number of groups whose offsets are read at the same time."""


class PartitionLag(NamedTuple):
    """A group's committed offset in a partition, the partition's end offset, and the lag.

    The lag is the difference of the two offsets, or 0 if the committed offset is beyond the end. `end` and `lag` are
    None if the topic does not exist any more, or the partition is damaged or has no leader.
    """

    committed: int
    end: int | None
    lag: int | None


async def lag_of_groups(admin: Admin, group_ids: Iterable[str]) -> dict[str, dict[TopicPartition, PartitionLag]]:
    """Return {group id: {partition: lag}} for all partitions in which the groups have committed offsets.

    Raise KafkaError if the offsets of a group cannot be read.
    """
    wanted = list(dict.fromkeys(group_ids))
    room = asyncio.Semaphore(AT_ONCE)
    committed: dict[str, dict[TopicPartition, int]] = {}

    async def read(group_id: str, progress: Progress) -> None:
        async with room:
            offsets = await admin.group_offsets(group_id)
        committed[group_id] = {partition: position.offset for partition, position in offsets.items()}
        progress.show(len(committed), len(wanted))

    with Progress("groups read") as progress:
        try:
            async with asyncio.TaskGroup() as tasks:
                for group_id in wanted:
                    tasks.create_task(read(group_id, progress))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        ends = await end_offsets(admin, {partition for offsets in committed.values() for partition in offsets})
    return {
        group_id: {
            partition: _lag(offset, ends.get(partition)) for partition, offset in sorted(committed[group_id].items())
        }
        for group_id in wanted
    }


async def end_offsets(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offsets of partitions, except those whose topic does not exist or whose end is not known."""
    wanted = list(partitions)
    if not wanted:
        return {}
    topics = set(await admin.list_topics(internal=True))
    listed = await admin.list_offsets_or_errors(dict.fromkeys((each for each in wanted if each.topic in topics), -1))
    return {partition: end.offset for partition, end in listed.items() if not isinstance(end, KafkaError)}


def _lag(committed: int, end: int | None) -> PartitionLag:
    return PartitionLag(committed, end, None if end is None else max(0, end - committed))
