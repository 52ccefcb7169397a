"""Seek to the start position of `oncelog consume` without a group: a time, or a number of records before the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..client.consumer import Consumer
    from ..client.values import TopicPartition

POLL_MS: Final = 200
GROWTH: Final = 4
"""Factor by which the distance from the end grows while too few records are found."""


async def seek_to_time(consumer: Consumer, partitions: Sequence[TopicPartition], time_ms: int) -> None:
    """Seek each partition to its first record at or after a time, in ms since 1970, or to its end if there is none."""
    at_time = await consumer.offsets_for_times(dict.fromkeys(partitions, time_ms))
    for partition, first in at_time.items():
        if first is None:
            await consumer.seek_to_end(partition)
        else:
            consumer.seek(partition, first.offset)


async def seek_to_last(
    consumer: Consumer, partitions: Sequence[TopicPartition], count: int, settings: Mapping[str, object]
) -> None:
    """Seek each partition to the first of its last `count` records, or to its first record if it has fewer.

    Offsets alone do not determine this position, because transaction markers, aborted records and compacted records use
    offsets as well. The function therefore reads from `count` offsets before the end, and repeats the read from farther
    away while it finds too few records. It reads with a consumer of its own, made from `settings`, whose fetches do not
    wait at the ends of partitions. After such a wait, `consumer` would be late.
    """
    from ..client.consumer import Consumer

    async with Consumer({**settings, "fetch_max_wait_ms": 0}) as reader:
        reader.assign(partitions)
        positions = await _first_of_last(reader, partitions, count)
    for partition, position in positions.items():
        consumer.seek(partition, position)


async def _first_of_last(
    consumer: Consumer, partitions: Sequence[TopicPartition], count: int
) -> dict[TopicPartition, int]:
    """Return the offset of the first of the last `count` records of each partition."""
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
    return positions


async def _offsets_between(
    consumer: Consumer,
    partitions: Sequence[TopicPartition],
    begin: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    count: int,
) -> dict[TopicPartition, deque[int]]:
    """Read each partition from its offset in `begin` to its offset in `ends`. Return the offsets of the last records.

    The result contains at most `count` offsets per partition.
    """
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
