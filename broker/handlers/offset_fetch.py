"""Handle OffsetFetch v1-9: return a group's committed offsets, for the requested partitions or (v2+) for all.

v2: an error field for the whole group. v7: RequireStable, a flag that excludes offsets which an open transaction may
replace (KIP-447). v8: several groups in a request (KIP-709). v9: the member, which is used only by KIP-848 groups.

While open transactions have committed offsets for a partition:

| client | gets |
|---|---|
| knows the wire extension, RequireStable | PENDING_TRANSACTION for the partition |
| v7+, RequireStable | UNSTABLE_OFFSET_COMMIT for the partition |
| v7+, not RequireStable | the last committed offset |
| v2-6, which lack RequireStable | COORDINATOR_LOAD_IN_PROGRESS for the partition and for the group, because some
  clients check only one of the two |
| v1 | COORDINATOR_LOAD_IN_PROGRESS for the partition |

If the request repeats a group or a partition, the response contains it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import PENDING_TRANSACTION, ErrorCode, KafkaError
from ...protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ..acls.access import Access
from ..api.handling import Answer, Deferred, RequestContext, handles
from ..coordinator.group.coordinator import FetchedOffset
from ..coordinator.state_log import units_of_hashing
from ..scheduling.steps import Steps, run_in_slices

GROUP_ERROR_FROM = 2
STABILITY_FROM = 7
SEVERAL_GROUPS_FROM = 8
NO_OFFSET = -1
AT_A_TIME = 200
"""The number of partitions that are looked up in one step.

For more partitions, the offsets are copied first, so that none changes between two steps.
"""


@handles(OffsetFetchRequest)
def handle(context: RequestContext, request: OffsetFetchRequest) -> Steps[Answer]:
    """Look up the offsets; send the response when all offsets in it are durable."""
    if context.api_version >= SEVERAL_GROUPS_FROM:
        return (yield from _several_groups(context, request))
    coordinator = context.broker.group_coordinator
    shown = _ShownTopics(context.access, are_named=request.topics is not None)
    unstable = _code_of_unstable(context, request)
    try:
        offsets = yield from _offsets(context, shown, request.group_id, request.topics, unstable)
        settled = coordinator.settled(request.group_id)
        yield units_of_hashing(request.group_id)
    except KafkaError as error:
        return (yield from _failed(request, context.api_version, error))
    response = OffsetFetchResponse()
    tells_pending = GROUP_ERROR_FROM <= context.api_version < STABILITY_FROM
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for item in offsets:
        name = item.partition[0]
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = OffsetFetchResponseTopic(name)
            response.topics.append(topic)
        topic.partitions.append(OffsetFetchResponsePartition(*_row(shown, item, unstable)))
        if tells_pending and item.is_pending and item in shown:
            response.error_code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        yield 1 + shown.new_units()
    if settled is None:
        return response
    return Deferred(_unless_failed(settled, response, request, context.api_version))


async def _unless_failed(
    settled: asyncio.Future[None], response: OffsetFetchResponse, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    try:
        await settled
    except KafkaError as error:
        return await run_in_slices(_failed(request, version, error))
    return response


def _failed(request: OffsetFetchRequest, version: int, error: KafkaError) -> Steps[OffsetFetchResponse]:
    """Return the response for a group whose offsets cannot be returned.

    The error is in the top-level field (v2+) and in each requested partition, because some clients check only one of
    the two.
    """
    code = int(error.code)
    response = OffsetFetchResponse(error_code=code if version >= GROUP_ERROR_FROM else 0)
    for asked in request.topics or ():
        topic = OffsetFetchResponseTopic(asked.name)
        response.topics.append(topic)
        for index in asked.partition_indexes:
            topic.partitions.append(OffsetFetchResponsePartition(index, NO_OFFSET, -1, "", code))
            yield 1
        yield 1
    return response


def _code_of_unstable(context: RequestContext, request: OffsetFetchRequest) -> ErrorCode | None:
    """Return the error code for a partition with offsets in open transactions.

    Return None if the response contains the partition's last committed offset instead.
    """
    if context.api_version < STABILITY_FROM:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if not request.require_stable:
        return None
    return PENDING_TRANSACTION if context.extension_aware else ErrorCode.UNSTABLE_OFFSET_COMMIT


def _several_groups(context: RequestContext, request: OffsetFetchRequest) -> Steps[Answer]:
    coordinator = context.broker.group_coordinator
    named, listed = (_ShownTopics(context.access, are_named=are_named) for are_named in (True, False))
    unstable = _code_of_unstable(context, request)
    response = OffsetFetchResponse()
    waiting: list[tuple[OffsetFetchResponseGroup, asyncio.Future[None]]] = []
    merged = yield from _merged(request.groups)
    for group_id, asked in merged.items():
        group = OffsetFetchResponseGroup(group_id)
        response.groups.append(group)
        shown = listed if asked is None else named
        yield 5 * context.rows() + units_of_hashing(group_id)
        try:
            offsets = yield from _offsets(context, shown, group_id, asked, unstable)
            settled = coordinator.settled(group_id)
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_REQUEST:
                raise
            group.error_code = int(error.code)
            continue
        if settled is not None:
            waiting.append((group, settled))
        topics: dict[str, OffsetFetchResponseTopics] = {}
        for item in offsets:
            name = item.partition[0]
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = OffsetFetchResponseTopics(name=name)
                group.topics.append(topic)
            topic.partitions.append(OffsetFetchResponsePartitions(*_row(shown, item, unstable)))
            yield 1 + shown.new_units()
    return Deferred(_when_settled(response, waiting)) if waiting else response


def _merged(groups: Iterable[OffsetFetchRequestGroup]) -> Steps[dict[str, list[OffsetFetchRequestTopics] | None]]:
    """Return the requested topics of each group; None means all topics."""
    merged: dict[str, list[OffsetFetchRequestTopics] | None] = {}
    for group in groups:
        known = merged.setdefault(group.group_id, [])
        if group.topics is None or known is None:
            merged[group.group_id] = None
        else:
            known += group.topics
        yield 1
    return merged


async def _when_settled(
    response: OffsetFetchResponse, waiting: list[tuple[OffsetFetchResponseGroup, asyncio.Future[None]]]
) -> OffsetFetchResponse:
    for group, settled in waiting:
        try:
            await settled
        except KafkaError as error:
            group.topics, group.error_code = [], int(error.code)
    return response


class _ShownTopics:
    """The topics that the client may describe. Each topic is checked once, when its first partition is looked up.

    If `are_named` is true, the client has named the topics, so the audit log records those that it may not describe.
    Otherwise, the response leaves them out.
    """

    __slots__ = ("_access", "_are_named", "_known", "_units")

    def __init__(self, access: Access, *, are_named: bool) -> None:
        self._access = access
        self._are_named = are_named
        self._known: dict[str, bool] = {}
        self._units = 0

    def __contains__(self, item: FetchedOffset) -> bool:
        name = item.partition[0]
        shown = self._known.get(name)
        if shown is None:
            self._units += self._access.units
            shown = self._known[name] = self._access.allows(
                AclOperation.DESCRIBE, AclResourceType.TOPIC, name, quiet=not self._are_named
            )
        return shown

    def new_units(self) -> int:
        """Return the units of work for the topics that were checked since the last call."""
        units, self._units = self._units, 0
        return units


def _offsets(
    context: RequestContext,
    shown: _ShownTopics,
    group_id: str,
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    unstable: ErrorCode | None,
) -> Steps[list[FetchedOffset]]:
    """Return the offsets of the requested partitions.

    If `topics` is None, return all partitions that have a committed offset or, if `unstable` is set, a pending one. All
    offsets belong to the same point in time.
    """
    coordinator = context.broker.group_coordinator
    wanted: dict[tuple[str, int], None] | None = None
    if topics is not None:
        wanted = {}
        for topic in topics:
            for start in range(0, len(topic.partition_indexes), AT_A_TIME):
                indexes = topic.partition_indexes[start : start + AT_A_TIME]
                wanted.update(dict.fromkeys((topic.name, index) for index in indexes))
                yield len(indexes)
            yield 1
        if len(wanted) <= AT_A_TIME:
            offsets = coordinator.fetch_offsets(group_id, wanted)
            yield context.rows(len(wanted))
            return offsets
    yield from coordinator.settle_offsets(group_id)
    snapshot = coordinator.offset_snapshot(group_id, wanted)
    offsets = []
    while part := list(islice(snapshot, AT_A_TIME)):
        offsets += [
            item
            for item in part
            if wanted is not None
            or ((item.offset is not None or (unstable is not None and item.is_pending)) and item in shown)
        ]
        yield context.rows(len(part)) + shown.new_units()
    return offsets


def _row(shown: _ShownTopics, item: FetchedOffset, unstable: ErrorCode | None) -> tuple[int, int, int, str, int]:
    """Return (partition, offset, leader epoch, metadata, error code).

    The error code is TOPIC_AUTHORIZATION_FAILED if the client may not describe the topic. Otherwise it is `unstable` if
    `unstable` is set and the partition has offsets in open transactions, and 0 in all other cases.
    """
    index = item.partition[1]
    if item not in shown:
        return index, NO_OFFSET, -1, "", int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if unstable is not None and item.is_pending:
        return index, NO_OFFSET, -1, "", int(unstable)
    if item.offset is None:
        return index, NO_OFFSET, -1, "", 0
    return index, item.offset.committed_offset, item.offset.leader_epoch, item.offset.metadata, 0
