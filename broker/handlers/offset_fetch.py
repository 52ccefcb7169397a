"""OffsetFetch v1-9: what a group has committed; of the partitions asked for or (v2+) of all.

v2: an error of the whole group has a place of its own. v7: RequireStable, which refuses an offset that an undecided
transaction may replace (KIP-447). v8: several groups at once (KIP-709). v9: names the member, which only matters to
KIP-848 groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ..coordinator.group.coordinator import FetchedOffset
from ..handling import Deferred, Reply, RequestContext, handles

GROUP_ERROR_FROM = 2
SEVERAL_GROUPS_FROM = 8
NO_OFFSET = -1


@handles(OffsetFetchRequest)
def handle(context: RequestContext, request: OffsetFetchRequest) -> Reply:
    """Answered when everything that is told is durable."""
    if context.api_version >= SEVERAL_GROUPS_FROM:
        return _several_groups(context, request)
    coordinator = context.broker.group_coordinator
    try:
        found = coordinator.fetch_offsets(request.group_id, _partitions(request.topics))
        settled = coordinator.settled(request.group_id)
    except KafkaError as error:
        return _failed(request, context.api_version, error.code)
    response = OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name,
                [OffsetFetchResponsePartition(*_told(item, request.require_stable)) for item in items],
            )
            for name, items in _by_topic(found).items()
        ]
    )
    if settled is None:
        return response
    return Deferred(_unless_failed(settled, response, request, context.api_version))


async def _unless_failed(
    settled: asyncio.Future[None], response: OffsetFetchResponse, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    try:
        await settled
    except KafkaError as error:
        return _failed(request, version, error.code)
    return response


def _failed(request: OffsetFetchRequest, version: int, code: ErrorCode) -> OffsetFetchResponse:
    """The whole group failed: said at the top (v2+) and at each partition, for some clients look only there."""
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [OffsetFetchResponsePartition(index, NO_OFFSET, -1, "", int(code)) for index in topic.partition_indexes],
        )
        for topic in request.topics or ()
    ]
    return OffsetFetchResponse(topics=topics, error_code=int(code) if version >= GROUP_ERROR_FROM else 0)


def _several_groups(context: RequestContext, request: OffsetFetchRequest) -> Reply:
    coordinator = context.broker.group_coordinator
    groups = []
    waiting: list[tuple[OffsetFetchResponseGroup, asyncio.Future[None]]] = []
    for asked in request.groups:
        group = OffsetFetchResponseGroup(asked.group_id)
        groups.append(group)
        try:
            found = coordinator.fetch_offsets(asked.group_id, _partitions(asked.topics))
            settled = coordinator.settled(asked.group_id)
        except KafkaError as error:
            group.error_code = int(error.code)
            continue
        if settled is not None:
            waiting.append((group, settled))
        group.topics = [
            OffsetFetchResponseTopics(
                name=name,
                partitions=[OffsetFetchResponsePartitions(*_told(item, request.require_stable)) for item in items],
            )
            for name, items in _by_topic(found).items()
        ]
    response = OffsetFetchResponse(groups=groups)
    return Deferred(_when_settled(response, waiting)) if waiting else response


async def _when_settled(
    response: OffsetFetchResponse, waiting: list[tuple[OffsetFetchResponseGroup, asyncio.Future[None]]]
) -> OffsetFetchResponse:
    for group, settled in waiting:
        try:
            await settled
        except KafkaError as error:
            group.topics, group.error_code = [], int(error.code)
    return response


def _partitions(
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> list[tuple[str, int]] | None:
    if topics is None:
        return None
    return [(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _by_topic(found: Iterable[FetchedOffset]) -> dict[str, list[FetchedOffset]]:
    topics: dict[str, list[FetchedOffset]] = {}
    for item in found:
        topics.setdefault(item.partition[0], []).append(item)
    return topics


def _told(item: FetchedOffset, require_stable: bool) -> tuple[int, int, int, str, int]:
    """(partition, offset, leader epoch, metadata, error code)."""
    index = item.partition[1]
    if require_stable and item.is_pending:
        return index, NO_OFFSET, -1, "", int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if item.offset is None:
        return index, NO_OFFSET, -1, "", 0
    return index, item.offset.committed_offset, item.offset.leader_epoch, item.offset.metadata, 0
