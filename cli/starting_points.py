"""Where `oncelog consume` begins to read without a group: at a time, or some records before the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..client.consumer import Consumer
    from ..client.values import TopicPartition

POLL_MS: Final = 200
GROWTH: Final = 4
"""By what the distance grows at which records are looked for, while fewer are found than wanted."""


async def seek_to_time(consumer: Consumer, partitions: Sequence[TopicPartition], time_ms: int) -> None:
    """Go to each partition's first record since a time (ms since the epoch), or to its end."""
    at_time = await consumer.offsets_for_times(dict.fromkeys(partitions, max(time_ms, 0)))
    for partition, first in at_time.items():
        if first is None:
            await consumer.seek_to_end(partition)
        else:
            consumer.seek(partition, first.offset)


async def seek_to_last(consumer: Consumer, partitions: Sequence[TopicPartition], count: int) -> None:
    """Go to each partition's record that has `count` - 1 records behind it, or to its first record.

    Offsets alone do not say where that is: transaction markers, aborted records and what compaction has removed take
    offsets, too. So records are read from some distance before the end, and from farther away if there are too few.
    """
    starts = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    positions = dict(ends)
    distance = count
    left = {partition for partition in partitions if starts[partition] < ends[partition]}
    while left:
        begin = {partition: max(starts[partition], ends[partition] - distance) for partition in left}
        offsets = await _offsets_between(consumer, partitions, begin, ends, count)
        for partition in list(left):
            last = offsets[partition]
            if len(last) == count or begin[partition] == starts[partition]:
                positions[partition] = last[0] if last else ends[partition]
                left.remove(partition)
        distance *= GROWTH
    consumer.resume(*partitions)
    for partition, position in positions.items():
        consumer.seek(partition, position)


async def _offsets_between(
    consumer: Consumer,
    partitions: Sequence[TopicPartition],
    begin: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    count: int,
) -> dict[TopicPartition, deque[int]]:
    """Return the offsets of the last `count` records of each partition of `begin`, from there to its end."""
    offsets: dict[TopicPartition, deque[int]] = {partition: deque(maxlen=count) for partition in begin}
    consumer.pause(*(partition for partition in partitions if partition not in begin))
    for partition, offset in begin.items():
        consumer.seek(partition, offset)
    consumer.resume(*begin)
    reading = set(begin)
    while reading:
        for record in await consumer.poll(timeout_ms=POLL_MS):
            partition = record.topic_partition
            if partition in reading and record.offset < ends[partition]:
                offsets[partition].append(record.offset)
        finished = [each for each in reading if await consumer.position(each) >= ends[each]]
        if finished:
            consumer.pause(*finished)
            reading.difference_update(finished)
    return offsets
