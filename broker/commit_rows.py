"""Reads the rows of OffsetCommit and TxnOffsetCommit as commits: the two requests name offsets in the same fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..protocol.messages.offset_commit import OffsetCommitRequestTopic
from ..protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic
from .coordinator.group.coordinator import Commit
from .steps import Steps

FEW: Final = 100
"""A request for at most this many partitions is committed in one turn, without preparation."""


def commits_of(
    topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic],
) -> Steps[list[Commit]]:
    """Return the commits of a request, in its order."""
    commits: list[Commit] = []
    for topic in topics:
        for start in range(0, len(topic.partitions), FEW):
            rows = topic.partitions[start : start + FEW]
            commits += [
                Commit(
                    (topic.name, p.partition_index), p.committed_offset, p.committed_leader_epoch, p.committed_metadata
                )
                for p in rows
            ]
            yield len(rows)
        yield 1
    return commits
