"""Process, in slices, the rows of requests that list partitions by topic.

OffsetCommit and TxnOffsetCommit requests have the same fields for offsets. The responses of both APIs and of
OffsetDelete have the same fields for results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.messages.offset_commit import OffsetCommitRequestTopic
from ...protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic
from ..coordinator.group.coordinator import Commit
from ..scheduling.steps import Steps

FEW: Final = 100
"""A request for at most this many partitions is checked and committed in one turn of the event loop."""

ROWS_AT_ONCE: Final = 100
"""The number of rows that are processed in one step."""

TopicT = TypeVar("TopicT")


class _Row(Protocol):
    @property
    def partition_index(self) -> int: ...


class _Topic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> Sequence[_Row]: ...


def partitions_of(topics: Iterable[tuple[str, Sequence[int]]]) -> Steps[frozenset[tuple[str, int]]]:
    """Return a (topic, index) for each partition. `topics` are pairs of a topic and its partition indexes."""
    partitions: set[tuple[str, int]] = set()
    for name, indexes in topics:
        for start in range(0, len(indexes), ROWS_AT_ONCE):
            piece = indexes[start : start + ROWS_AT_ONCE]
            partitions.update([(name, index) for index in piece])
            yield len(piece)
        yield 1
    return frozenset(partitions)


def commits_of(
    topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic],
) -> Steps[list[Commit]]:
    """Return the offset commits that a request contains, in the order of its rows."""
    commits: list[Commit] = []
    for topic in topics:
        for start in range(0, len(topic.partitions), ROWS_AT_ONCE):
            rows = topic.partitions[start : start + ROWS_AT_ONCE]
            commits += [
                Commit(
                    (topic.name, p.partition_index),
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.committed_metadata,
                    topic.topic_id,
                )
                for p in rows
            ]
            yield len(rows)
        yield 1
    return commits


def results_of(
    topics: Iterable[_Topic],
    codes: Iterable[ErrorCode],
    new_topic: Callable[..., TopicT],
    new_partition: Callable[[int, int], object],
) -> Steps[list[TopicT]]:
    """Return the results for a request's topics; `codes` has one code for each of its rows, in order.

    `new_topic(name=..., partitions=...)` and `new_partition(index, code)` create the results.
    """
    remaining = iter(codes)
    results: list[TopicT] = []
    for topic in topics:
        partitions: list[object] = []
        for start in range(0, len(topic.partitions), ROWS_AT_ONCE):
            rows = topic.partitions[start : start + ROWS_AT_ONCE]
            partitions += [new_partition(row.partition_index, int(next(remaining))) for row in rows]
            yield len(rows)
        results.append(new_topic(name=topic.name, partitions=partitions))
        yield 1
    return results
