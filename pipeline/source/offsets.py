"""Find the offsets at which a read begins and ends in each partition, and divide them into Spark tasks.

The module finds the partitions of a subscription and the offsets of positions such as "earliest", applies the rate
limit, and splits ranges. Offsets are `{TopicPartition: offset}`. In Spark's checkpoint they are
`{"topic": {"0": 23}}`, as in Spark's Kafka source. An end offset is exclusive. Under read_committed, the latest offset
is the last stable offset.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from ...client.cluster import Cluster
from ...client.errors import ConfigError, InvalidTopicError
from ...client.offset_lookup import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from ...client.values import TopicPartition
from ...protocol.errors import ErrorCode, KafkaError
from ..options import EARLIEST, LATEST, Position, Subscription

log = logging.getLogger(__name__)

Offsets: TypeAlias = dict[TopicPartition, int]


class OffsetRange(NamedTuple):
    """The offsets that one Spark task reads: start <= offset < end of one partition."""

    topic: str
    partition: int
    start: int
    end: int


class DataLossError(KafkaError):
    """Records that the query should read, or a partition from which it should continue, no longer exist."""

    def __init__(self, what: str) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f'{what}. To continue with the records that exist, set .option("failOnDataLoss", "false")',
        )


def lost(what: str, fail: bool) -> None:
    """Raise DataLossError if `fail` is true, else log a warning. `what` says what cannot be read, and why."""
    if fail:
        raise DataLossError(what)
    log.warning("%s. The query continues with the records that exist, because failOnDataLoss is false", what)


def deleted(partition: TopicPartition, start: int, end: int) -> str:
    """Return the text for `lost` about the offsets from `start` to `end` (exclusive), which no longer exist."""
    which = f"Offsets {start} to {end - 1} of {partition} cannot be read"
    return f"{which}: they were deleted (retention, DeleteRecords) or truncated, or the topic was deleted"


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets in the form of Spark's checkpoint."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(parsed: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return offsets that are given in the form of Spark's checkpoint."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in parsed.items()
        for partition, offset in partitions.items()
    }


async def find_partitions(cluster: Cluster, subscription: Subscription, timeout_s: float) -> set[TopicPartition]:
    """Return the partitions that a subscription selects.

    Raises InvalidTopicError if an assigned partition does not exist. A subscribed topic that does not exist has no
    partitions yet. A stream begins to read such a topic when it appears.
    """
    if subscription.pattern is not None:
        cluster.track_all()
        metadata = await cluster.refresh()
        topics = {
            name
            for name, topic in metadata.topics.items()
            if subscription.pattern.fullmatch(name) and not topic.is_internal and not topic.error_code
        }
    else:
        named = subscription.topics or frozenset(topic for topic, _ in subscription.partitions or ())
        metadata = await cluster.refresh(named)
        for name in named:
            code = metadata.topics[name].error_code if name in metadata.topics else ErrorCode.NONE
            if code and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                await cluster.topic(name, timeout_s)  # waits for temporary errors, raises permanent ones
        metadata = cluster.metadata
        topics = {name for name in named if name in metadata.topics and not metadata.topics[name].error_code}
    found = {TopicPartition(name, one.index) for name in topics for one in metadata.topics[name].partitions}
    if subscription.partitions is None:
        return found
    missing = sorted(f"{topic}-{index}" for topic, index in subscription.partitions - found)
    if missing:
        raise InvalidTopicError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"assign names partitions that do not exist: {', '.join(missing)}"
        )
    return {TopicPartition(*one) for one in subscription.partitions}


class OffsetFinder:
    """A client that asks leaders for offsets. Under read_committed, the latest offset is the last stable offset."""

    def __init__(self, cluster: Cluster, *, read_committed: bool, timeout_s: float) -> None:
        self._cluster = cluster
        self._read_committed = read_committed
        self._timeout_s = timeout_s

    async def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the first offset of each partition."""
        return await self._ask(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))

    async def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the end of each partition at this isolation level."""
        return await self._ask(dict.fromkeys(partitions, LATEST_TIMESTAMP))

    async def resolve(self, position: Position, partitions: Collection[TopicPartition], name: str) -> Offsets:
        """Return the offset of each partition at a position. `name` is the option's name, for error messages.

        Raises ConfigError, for instance if a timestamp is after the last record.
        """
        if position.timestamp is not None:
            option = f"{name.removesuffix('Offsets')}Timestamp"
            return await self._at_times(dict.fromkeys(partitions, position.timestamp), position.or_latest, option)
        if position.timestamps is not None:
            option = f"{name}ByTimestamp"
            _check_complete(position.timestamps, partitions, option)
            times = {one: position.timestamps[one] for one in partitions}
            return await self._at_times(times, position.or_latest, option)
        if position.offsets is None:
            wanted = dict.fromkeys(partitions, position.offset if position.offset is not None else LATEST)
        else:
            _check_complete(position.offsets, partitions, name)
            wanted = {one: position.offsets[one] for one in partitions}
        found = {one: offset for one, offset in wanted.items() if offset >= 0}
        found |= await self.earliest([one for one, offset in wanted.items() if offset == EARLIEST])
        found |= await self.latest([one for one, offset in wanted.items() if offset == LATEST])
        return found

    async def _at_times(self, times: Mapping[TopicPartition, int], or_latest: bool, option: str) -> Offsets:
        """Return each partition's first offset at or after its time, which is in ms since the epoch.

        If a partition has no such record, return its end if `or_latest` is true, else raise ConfigError. The
        error names the `option` that gave the times.
        """
        found = await self._ask(times)
        late = [one for one, offset in found.items() if offset < 0]
        if late and not or_latest:
            raise ConfigError(
                option,
                f"{min(late)} has no record at or after the timestamp {times[min(late)]}: to begin at its end, set "
                "startingOffsetsByTimestampStrategy to latest",
            )
        return found | await self.latest(late)

    async def _ask(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """Return the first offset at or after each partition's time, or -1 if the partition has no such record."""
        if not times:
            return {}
        listed = await list_offsets(
            self._cluster, times, read_committed=self._read_committed, timeout_s=self._timeout_s
        )
        return {one: found.offset for one, found in listed.items()}


def _check_complete(offsets: Mapping[tuple[str, int], int], partitions: Collection[TopicPartition], name: str) -> None:
    """Raise ConfigError unless the JSON names exactly these partitions, so that none gets a default silently."""
    missing = sorted(str(one) for one in partitions if one not in offsets)
    other = sorted(f"{topic}-{index}" for topic, index in offsets if (topic, index) not in partitions)
    if missing or other:
        what = [f"leaves out {', '.join(missing)}"] if missing else []
        what += [f"names partitions that are not read ({', '.join(other)})"] if other else []
        raise ConfigError(name, f"{' and '.join(what)}: name each partition, with -2 for earliest and -1 for latest")


def limited(start: Offsets, end: Offsets, most: int) -> Offsets:
    """Return ends for a read of at most `most` offsets. Each partition's share is proportional to its unread offsets.

    Each partition with unread offsets gets at least one offset until `most` is used up. The partitions with the most
    unread offsets come first. Partitions with equally many are sorted by name.
    """
    waiting = {one: end[one] - start.get(one, end[one]) for one in end}
    total = sum(size for size in waiting.values() if size > 0)
    if total <= most:
        return end
    found = {}
    left = most
    for one, size in sorted(waiting.items(), key=lambda item: (-item[1], item[0])):
        begin = start.get(one, end[one])
        share = min(max(most * size // total, 1), left) if size > 0 else 0
        found[one] = begin + share if size > 0 else end[one]
        left -= share
    return found


def split(ranges: list[OffsetRange], least: int | None, most_records: int | None) -> list[OffsetRange]:
    """Divide ranges into tasks of at most `most_records` offsets each.

    There are at least `least` tasks, if there are enough offsets.
    """
    total = sum(one.end - one.start for one in ranges)
    found = []
    for one in ranges:
        size = one.end - one.start
        parts = 1
        if least is not None and least > len(ranges) and total:
            parts = -(-size * least // total)
        if most_records is not None:
            parts = max(parts, -(-size // most_records))
        parts = min(parts, size)
        bounds = [one.start + size * part // parts for part in range(parts + 1)]
        found += [one._replace(start=low, end=high) for low, high in itertools.pairwise(bounds)]
    return found
