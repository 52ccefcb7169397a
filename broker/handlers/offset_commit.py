"""OffsetCommit v2-9: how far a group has read, from a member or from a consumer outside of any group.

v2-4 carry a retention time. v7: static members. v9: an unknown group is told as such (KIP-848).
"""

from __future__ import annotations

from typing import Final

from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ..coordinator.group.coordinator import Commit, Committer
from ..handling import Deferred, Reply, RequestContext, handles

MISSING_GROUP_FROM = 9

LONGEST_RETENTION_MS: Final = 1 << 62
"""A longer retention is taken for this one: what is stored is the time at which the offset expires, 64 bits of it."""


@handles(OffsetCommitRequest)
def handle(context: RequestContext, request: OffsetCommitRequest) -> Reply:
    """Answered when the offsets are durable."""
    coordinator = context.broker.group_coordinator
    codes = iter(
        coordinator.commit_offsets(
            request.group_id,
            Committer(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch),
            [
                Commit(
                    (topic.name, p.partition_index), p.committed_offset, p.committed_leader_epoch, p.committed_metadata
                )
                for topic in request.topics
                for p in topic.partitions
            ],
            retention_ms=min(request.retention_time_ms, LONGEST_RETENTION_MS),
            knows_missing_groups=context.api_version >= MISSING_GROUP_FROM,
        )
    )
    response = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition.partition_index, int(next(codes)))
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    settled = coordinator.settled(request.group_id)
    return response if settled is None else Deferred(settled, lambda _: response)
