"""`by_leader`: groups partitions by leader, for requests that must be sent to the partitions' leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...protocol.errors import ErrorCode, KafkaError
from ..errors import error_for
from ..values import TopicPartition
from .calls import AdminCalls


async def by_leader(
    calls: AdminCalls,
    partitions: Iterable[TopicPartition],
    is_missing: Callable[[TopicPartition], None] | None = None,
) -> dict[int, list[TopicPartition]]:
    """Group partitions by the id of their leader. If a partition has no leader, raise its error.

    `is_missing` is called with each partition that does not exist. Without `is_missing`, the error of such a partition
    is raised.
    """
    wanted = list(partitions)
    if wanted:
        await calls.cluster.refresh({one.topic for one in wanted})
    leaders: dict[int, list[TopicPartition]] = {}
    for one in wanted:
        node_id = calls.cluster.leader_of(one)
        if node_id is not None:
            leaders.setdefault(node_id, []).append(one)
            continue
        error = _why_without_leader(calls, one)
        if is_missing is None or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
        is_missing(one)
    return leaders


def _why_without_leader(calls: AdminCalls, one: TopicPartition) -> KafkaError:
    topic = calls.cluster.metadata.topics.get(one.topic)
    if topic is None or topic.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {one.topic!r} does not exist")
    if topic.error_code:
        return error_for(topic.error_code, f"topic {one.topic!r}: {topic.error_code.text}")
    if all(partition.index != one.partition for partition in topic.partitions):
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {one.topic!r} has no partition {one.partition}")
    return error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{one} has no leader")
