"""Looks up offsets at the partitions' leaders with ListOffsets: the start, the end, or the first record since a time.

The consumer and the admin client use these functions. A lookup is repeated after a leader has moved. This module knows
neither groups nor positions.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ..protocol.errors import ErrorCode, KafkaError, error_code
from ..protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from .cluster import MISSING_TOPIC_ATTEMPTS, Cluster
from .errors import KafkaTimeoutError, NetworkError, UnknownTopicError, error_for
from .values import TopicPartition

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
MAX_TIMESTAMP: Final = -3


class ListedOffset(NamedTuple):
    """A leader's response for a partition; offset and timestamp are -1 if no record matches."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    timeout_s: float,
    on_found: Callable[[Mapping[TopicPartition, ListedOffset]], None] = lambda found: None,
) -> dict[TopicPartition, ListedOffset]:
    """Look up one offset in each partition.

    Each value of `wanted` is a time in ms since the epoch, and selects the first record at or after that time. In place
    of a time, -1 selects the end, -2 the start, and -3 the record with the latest timestamp.

    `on_found` is called with the offsets of each response, so that no partition has to wait for another. With
    `read_committed` the end is the last stable offset.

    Raises KafkaTimeoutError, which names the missing partitions. Raises UnknownTopicError if MISSING_TOPIC_ATTEMPTS
    responses say that the same partition or its topic does not exist. Errors that are not retriable are raised at once.
    """
    lookup = _Lookup(cluster, wanted, read_committed, on_found)
    try:
        async with asyncio.timeout(timeout_s):
            while lookup.missing:
                await lookup.ask_leaders()
                for error in lookup.problems.values():
                    if not error.retriable:
                        raise error
                if lookup.missing:
                    await lookup.wait()
    except TimeoutError as late:
        if _is_final(late):
            raise
        raise lookup.timed_out(timeout_s) from lookup.reason
    return lookup.found


async def list_offsets_or_errors(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool, timeout_s: float
) -> dict[TopicPartition, ListedOffset | KafkaError]:
    """Look up offsets like `list_offsets`. If the lookup of a partition fails, return its error as the value.

    The lookup is repeated only if the leader has moved or cannot be reached, or if the topic is unknown. It is not
    repeated for a partition that has no leader, or that its leader cannot read (KAFKA_STORAGE_ERROR). Raises
    UnknownTopicError as `list_offsets` does. Raises the error of a whole request if a retry cannot correct it.
    """
    lookup = _Lookup(cluster, wanted, read_committed)
    failed: dict[TopicPartition, KafkaError] = {}
    try:
        async with asyncio.timeout(timeout_s):
            while lookup.missing:
                await lookup.ask_leaders()
                for one, error in lookup.problems.items():
                    if not _may_pass(error):
                        failed[one] = error
                        del lookup.missing[one]
                if lookup.missing:
                    await lookup.wait()
    except TimeoutError as late:
        if _is_final(late):
            raise
        failed.update(dict.fromkeys(lookup.missing, lookup.timed_out(timeout_s)))
    return {one: lookup.found.get(one) or failed[one] for one in wanted}


def _is_final(late: TimeoutError) -> bool:
    """Return whether `late` is an error that no further round of requests can correct, and not only a timeout."""
    return isinstance(late, UnknownTopicError) or (isinstance(late, KafkaError) and not late.retriable)


def _may_pass(error: KafkaError) -> bool:
    """Return whether the error is temporary, so that a leader may return an offset for the partition soon."""
    return isinstance(error, NetworkError) or error.code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


class _Lookup:
    """One lookup of offsets, in as many rounds of requests as it needs.

    `missing` contains the partitions that are requested in the next round, with their timestamps. `problems` contains
    the reasons why partitions got no offset in the last round.
    """

    def __init__(
        self,
        cluster: Cluster,
        wanted: Mapping[TopicPartition, int],
        read_committed: bool,
        on_found: Callable[[Mapping[TopicPartition, ListedOffset]], None] = lambda found: None,
    ) -> None:
        self.found: dict[TopicPartition, ListedOffset] = {}
        self.missing = dict(wanted)
        self.problems: dict[TopicPartition, KafkaError] = {}
        self._cluster = cluster
        self._read_committed = read_committed
        self._on_found = on_found
        self._attempt = 0
        self._absent: Counter[TopicPartition] = Counter()
        """The number of rounds in which a partition or its topic was missing."""

    async def ask_leaders(self) -> None:
        """Ask the leader of each missing partition once.

        Raises UnknownTopicError if the same partition was missing in MISSING_TOPIC_ATTEMPTS rounds. Raises an error of
        a whole request if the error is not retriable; errors of single partitions are only added to `problems`.
        """
        groups, self.problems = await _by_leader(self._cluster, self.missing)
        for one, error in self.problems.items():
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._absent[one] += 1
                if self._absent[one] >= MISSING_TOPIC_ATTEMPTS:
                    raise UnknownTopicError(error.code, error.message)
        asked = [self._ask(node_id, part) for node_id, part in groups.items()]
        for part, answer in zip(groups.values(), await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(answer, KafkaError) and answer.retriable:
                self.problems.update(dict.fromkeys(part, answer))
            elif answer is not None:
                raise answer

    async def _ask(self, node_id: int, part: Mapping[TopicPartition, int]) -> None:
        offsets, problems = await _ask(self._cluster, node_id, part, self._read_committed)
        self.found.update(offsets)
        self.problems.update(problems)
        for one in offsets:
            self.missing.pop(one, None)
        self._on_found(offsets)

    async def wait(self) -> None:
        """Ask for new metadata, and wait before the next round."""
        self._cluster.request_refresh()
        await asyncio.sleep(self._cluster.retry_backoff(self._attempt))
        self._attempt += 1

    @property
    def reason(self) -> KafkaError | None:
        """The last problem of a partition, if there was one."""
        return next(reversed(self.problems.values()), None)

    def timed_out(self, timeout_s: float) -> KafkaTimeoutError:
        """Return the error that names the missing partitions and the last problem."""
        names = ", ".join(map(str, sorted(self.missing)[:10]))
        reason = f": {self.reason.message}" if self.reason is not None else ""
        return KafkaTimeoutError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"could not look up offsets of {names} within {timeout_s * 1000:.0f} ms{reason}",
        )


async def _by_leader(
    cluster: Cluster, wanted: Mapping[TopicPartition, int]
) -> tuple[dict[int, dict[TopicPartition, int]], dict[TopicPartition, KafkaError]]:
    """Return the partitions and timestamps by leader, and the errors of the partitions without a leader."""
    problems: dict[TopicPartition, KafkaError] = {}
    unknown = {one.topic for one in wanted if cluster.leader_of(one) is None}
    if unknown:
        try:
            await cluster.refresh(unknown)
        except KafkaError as error:
            if not error.retriable and error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                raise
            return {}, dict.fromkeys(wanted, error)
    groups: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for one, timestamp in wanted.items():
        leader = cluster.leader_of(one)
        if leader is not None:
            groups[leader][one] = timestamp
            continue
        topic = cluster.metadata.topics.get(one.topic)
        code = topic.error_code if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            problems[one] = error_for(code, f"topic {one.topic!r} does not exist")
        elif code:
            problems[one] = error_for(code, f"topic {one.topic!r}: {code.text}")
        elif topic is not None and one.partition >= len(topic.partitions):
            count = len(topic.partitions)
            problems[one] = error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {one.topic!r} has {count} partitions, but no partition {one[1]}",
            )
        else:
            problems[one] = error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{one} has no leader")
    return groups, problems


async def _ask(
    cluster: Cluster, node_id: int, wanted: Mapping[TopicPartition, int], read_committed: bool
) -> tuple[dict[TopicPartition, ListedOffset], dict[TopicPartition, KafkaError]]:
    """Ask one leader; return the offsets, and the errors of partitions without an offset."""
    topics: dict[str, ListOffsetsTopic] = {}
    epochs = {
        (name, one.index): one.leader_epoch
        for name in {tp.topic for tp in wanted}
        if (topic := cluster.metadata.topics.get(name)) is not None
        for one in topic.partitions
    }
    for tp, timestamp in wanted.items():
        topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic)).partitions.append(
            ListOffsetsPartition(
                partition_index=tp.partition, current_leader_epoch=epochs.get(tp, -1), timestamp=timestamp
            )
        )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if read_committed else 0,
        topics=list(topics.values()),
        timeout_ms=cluster.config.request_timeout_ms,
    )
    answer = await cluster.call(node_id, request)
    found: dict[TopicPartition, ListedOffset] = {}
    problems: dict[TopicPartition, KafkaError] = {}
    for answered in answer.topics:
        for data in answered.partitions:
            tp = TopicPartition(answered.name, data.partition_index)
            if data.error_code:
                code = error_code(data.error_code)
                problems[tp] = error_for(code, f"{tp}: {code.text}")
            else:
                found[tp] = ListedOffset(data.offset, data.timestamp, data.leader_epoch)
    return found, problems
