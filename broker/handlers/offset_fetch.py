"""OffsetFetch v1-9: what a group has committed; of the partitions asked for or (v2+) of all.

v2: an error of the whole group has a place of its own. v7: RequireStable, which refuses an offset that an undecided
transaction may replace (KIP-447). v8: several groups at once (KIP-709). v9: names the member, which only matters to
KIP-848 groups.

While transactions that aren't decided have committed on a partition:

| who asks | is told |
|---|---|
| extension-aware, RequireStable | PENDING_TRANSACTION for the partition |
| v7+, RequireStable | UNSTABLE_OFFSET_COMMIT for the partition |
| v7+, not RequireStable | the last committed offset |
| v2-6, which cannot say | COORDINATOR_LOAD_IN_PROGRESS for the group and for every partition: some clients look only at
  the one, some only at the other, and some take a partition that is left out for one without offset |
| v1 | COORDINATOR_LOAD_IN_PROGRESS for the partition |
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ...protocol.errors import PENDING_TRANSACTION, ErrorCode, KafkaError
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
STABILITY_FROM = 7
SEVERAL_GROUPS_FROM = 8
NO_OFFSET = -1


@handles(OffsetFetchRequest)
def handle(context: RequestContext, request: OffsetFetchRequest) -> Reply:
    """Answered when everything that is told is durable."""
    if context.api_version >= SEVERAL_GROUPS_FROM:
        return _several_groups(context, request)
    coordinator = context.broker.group_coordinator
    unstable = _code_of_unstable(context, request)
    try:
        found = _found(context, request.group_id, request.topics, unstable)
        settled = coordinator.settled(request.group_id)
    except KafkaError as error:
        return _failed(request, context.api_version, error.code)
    response = OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(name, [OffsetFetchResponsePartition(*_told(item, unstable)) for item in items])
            for name, items in _by_topic(found).items()
        ]
    )
    if GROUP_ERROR_FROM <= context.api_version < STABILITY_FROM and any(item.is_pending for item in found):
        response = _all_loading(response)
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


def _code_of_unstable(context: RequestContext, request: OffsetFetchRequest) -> ErrorCode | None:
    """What a partition with undecided commits is told, None: the last committed offset."""
    if context.api_version < STABILITY_FROM:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if not request.require_stable:
        return None
    return PENDING_TRANSACTION if context.extension_aware else ErrorCode.UNSTABLE_OFFSET_COMMIT


def _all_loading(response: OffsetFetchResponse) -> OffsetFetchResponse:
    """The same partitions, none with an offset."""
    code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [OffsetFetchResponsePartition(p.partition_index, NO_OFFSET, -1, "", code) for p in topic.partitions],
        )
        for topic in response.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=code)


def _several_groups(context: RequestContext, request: OffsetFetchRequest) -> Reply:
    coordinator = context.broker.group_coordinator
    unstable = _code_of_unstable(context, request)
    groups = []
    waiting: list[tuple[OffsetFetchResponseGroup, asyncio.Future[None]]] = []
    for asked in request.groups:
        group = OffsetFetchResponseGroup(asked.group_id)
        groups.append(group)
        try:
            found = _found(context, asked.group_id, asked.topics, unstable)
            settled = coordinator.settled(asked.group_id)
        except KafkaError as error:
            group.error_code = int(error.code)
            continue
        if settled is not None:
            waiting.append((group, settled))
        group.topics = [
            OffsetFetchResponseTopics(
                name=name,
                partitions=[OffsetFetchResponsePartitions(*_told(item, unstable)) for item in items],
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


def _found(
    context: RequestContext,
    group_id: str,
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    unstable: ErrorCode | None,
) -> list[FetchedOffset]:
    """What is asked for. Of everything (None) that is what has an offset, or is `unstable` and so told."""
    coordinator = context.broker.group_coordinator
    if topics is not None:
        wanted = [(topic.name, index) for topic in topics for index in topic.partition_indexes]
        return coordinator.fetch_offsets(group_id, wanted)
    found = coordinator.fetch_offsets(group_id, None)
    return [item for item in found if item.offset is not None or (unstable is not None and item.is_pending)]


def _by_topic(found: Iterable[FetchedOffset]) -> dict[str, list[FetchedOffset]]:
    topics: dict[str, list[FetchedOffset]] = {}
    for item in found:
        topics.setdefault(item.partition[0], []).append(item)
    return topics


def _told(item: FetchedOffset, unstable: ErrorCode | None) -> tuple[int, int, int, str, int]:
    """(partition, offset, leader epoch, metadata, error code); `unstable` for one with undecided commits, if given."""
    index = item.partition[1]
    if unstable is not None and item.is_pending:
        return index, NO_OFFSET, -1, "", int(unstable)
    if item.offset is None:
        return index, NO_OFFSET, -1, "", 0
    return index, item.offset.committed_offset, item.offset.leader_epoch, item.offset.metadata, 0
