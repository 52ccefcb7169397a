"""Looks up offsets at the partitions' leaders with ListOffsets: the start, the end, or the first record since a time.

The consumer and the admin client use it. It retries after a leader has moved, and knows no groups or positions.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ..protocol.errors import ErrorCode, KafkaError, error_code
from ..protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from .cluster import MISSING_TOPIC_ATTEMPTS, Cluster
from .errors import KafkaTimeoutError, UnknownTopicError, error_for
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

    The values of `wanted` are times in ms since the epoch, for the first record at or after them, or -1 for the end, -2
    for the start, -3 for the record with the latest timestamp.

    `on_found` is called with the offsets of each response, so that no partition has to wait for another. With
    `read_committed` the end is the last stable offset.

    Raises KafkaTimeoutError, which names the missing partitions. Raises UnknownTopicError if MISSING_TOPIC_ATTEMPTS
    responses say that a topic does not exist. Raises at once an error that is not retriable.
    """
    found: dict[TopicPartition, ListedOffset] = {}
    missing = dict(wanted)
    why: KafkaError | None = None
    attempt = absent = 0

    async def ask(node_id: int, part: Mapping[TopicPartition, int]) -> KafkaError | None:
        offsets, problem = await _ask(cluster, node_id, part, read_committed)
        found.update(offsets)
        on_found(offsets)
        return problem

    try:
        async with asyncio.timeout(timeout_s):
            while missing:
                groups, why = await _by_leader(cluster, missing)
                absent += why is not None and why.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if absent >= MISSING_TOPIC_ATTEMPTS:
                    assert why is not None
                    raise UnknownTopicError(why.code, why.message)
                answers = await asyncio.gather(
                    *(ask(node_id, part) for node_id, part in groups.items()), return_exceptions=True
                )
                for answer in answers:
                    if isinstance(answer, KafkaError):
                        why = answer
                        if not answer.retriable:
                            raise answer
                    elif isinstance(answer, BaseException):
                        raise answer
                missing = {one: timestamp for one, timestamp in wanted.items() if one not in found}
                if missing:
                    cluster.request_refresh()
                    await asyncio.sleep(cluster.retry_backoff(attempt))
                    attempt += 1
    except TimeoutError as late:
        if isinstance(late, UnknownTopicError) or (isinstance(late, KafkaError) and not late.retriable):
            raise
        names = ", ".join(map(str, sorted(missing)[:10]))
        reason = f": {why.message}" if why is not None else ""
        raise KafkaTimeoutError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"could not look up offsets of {names} within {timeout_s * 1000:.0f} ms{reason}",
        ) from why
    return found


async def _by_leader(
    cluster: Cluster, wanted: Mapping[TopicPartition, int]
) -> tuple[dict[int, dict[TopicPartition, int]], KafkaError | None]:
    """Return the partitions and timestamps by leader, and the error of a partition without a leader."""
    why: KafkaError | None = None
    unknown = {one.topic for one in wanted if cluster.leader_of(one) is None}
    if unknown:
        try:
            await cluster.refresh(unknown)
        except KafkaError as error:
            if not error.retriable and error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                raise
            return {}, error
    groups: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for one, timestamp in wanted.items():
        leader = cluster.leader_of(one)
        if leader is not None:
            groups[leader][one] = timestamp
            continue
        topic = cluster.metadata.topics.get(one.topic)
        code = topic.error_code if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            why = error_for(code, f"topic {one.topic!r} does not exist")
        elif code:
            why = error_for(code, f"topic {one.topic!r}: {code.text}")
            if not code.retriable:
                raise why
        elif topic is not None and one.partition >= len(topic.partitions):
            count = len(topic.partitions)
            why = error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {one.topic!r} has {count} partitions, but no partition {one[1]}",
            )
        else:
            why = error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{one} has no leader")
    return groups, why


async def _ask(
    cluster: Cluster, node_id: int, wanted: Mapping[TopicPartition, int], read_committed: bool
) -> tuple[dict[TopicPartition, ListedOffset], KafkaError | None]:
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
    problem: KafkaError | None = None
    for answered in answer.topics:
        for data in answered.partitions:
            tp = TopicPartition(answered.name, data.partition_index)
            if data.error_code:
                code = error_code(data.error_code)
                if problem is None or problem.retriable:
                    problem = error_for(code, f"{tp}: {code.text}")
            else:
                found[tp] = ListedOffset(data.offset, data.timestamp, data.leader_epoch)
    return found, problem
