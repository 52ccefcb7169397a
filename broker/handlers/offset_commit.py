"""Handle OffsetCommit v2-9: commit a group's offsets, for a member or for a consumer without group membership.

v2-4: a retention time. v7: static members. v9: an unknown group gets GROUP_ID_NOT_FOUND (KIP-848).
"""

from __future__ import annotations

from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ..api.handling import Answer, Deferred, RequestContext, handles
from ..api.partition_rows import FEW, commits_of, results_of
from ..coordinator.group.coordinator import Commit, Committer
from ..coordinator.group.prepared_commit import PreparedCommit
from ..scheduling.steps import Steps

MISSING_GROUP_FROM = 9

LONGEST_RETENTION_MS: Final = 1 << 62
"""The longest retention time in ms. A longer time is reduced to this one, so that the expiry fits into 64 bits."""

MAX_PREPARATIONS: Final = 20
"""The maximum number of times that the same commits are prepared.

They are prepared again if topics or claims have changed meanwhile.
"""


@handles(OffsetCommitRequest, carried_out=True)
def handle(context: RequestContext, request: OffsetCommitRequest) -> Steps[Answer]:
    """Append the offsets in one turn of the event loop; send the response when they are durable.

    The offsets of a large request are checked in slices before that turn. They are appended even if the client
    disconnects meanwhile, because a consumer may commit and close without awaiting the response.
    """
    coordinator = context.broker.group_coordinator
    commits = yield from commits_of(request.topics)
    committer = Committer(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    retention_ms = min(request.retention_time_ms, LONGEST_RETENTION_MS)
    knows_missing_groups = context.api_version >= MISSING_GROUP_FROM
    if len(commits) <= FEW:
        made = coordinator.commit_offsets(
            request.group_id, committer, commits, retention_ms=retention_ms, knows_missing_groups=knows_missing_groups
        )
    else:
        prepared = yield from _prepared(context, request, commits, retention_ms)
        made = coordinator.commit_prepared(prepared, committer, knows_missing_groups=knows_missing_groups)
    settled = coordinator.settled(request.group_id)
    results = results_of(request.topics, made, OffsetCommitResponseTopic, OffsetCommitResponsePartition)
    response = OffsetCommitResponse(topics=(yield from results))
    return response if settled is None else Deferred(settled, lambda _: response)


def _prepared(
    context: RequestContext, request: OffsetCommitRequest, commits: list[Commit], retention_ms: int
) -> Steps[PreparedCommit]:
    """Check and encode many commits in steps. The caller must append the result without another yield.

    Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS if topics or claims change too often meanwhile.
    """
    coordinator = context.broker.group_coordinator
    for _ in range(MAX_PREPARATIONS):
        prepared = yield from coordinator.prepare_commit(request.group_id, commits, retention_ms=retention_ms)
        if coordinator.is_current(prepared):
            return prepared
    raise KafkaError(
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        f"The topics or the claims of group {request.group_id!r} change faster than its offsets can be committed. Try"
        " again.",
    )
