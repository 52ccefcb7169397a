"""Handle OffsetDelete v0: delete a group's offsets for partitions to which none of its members subscribes (KIP-496)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ..api.handling import Answer, Deferred, RequestContext, handles
from ..api.partition_rows import results_of
from ..coordinator.claim import TopicPartition
from ..scheduling.steps import Steps

AT_ONCE: Final = 50
"""The number of offsets that are deleted in one step."""

DELETION_UNITS: Final = 10
"""The cost of deleting one offset, in units of work."""

_AFTER_THE_FIRST_STEP: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP})
"""Errors that, after the first step, apply only to the partitions whose offsets are not deleted yet."""


@handles(OffsetDeleteRequest, carried_out=True)
def handle(context: RequestContext, request: OffsetDeleteRequest) -> Steps[Answer]:
    """Delete the offsets; send the response when all tombstones are durable.

    Each step checks the group's current state. If the group is deleted between two steps, or gets members whose
    subscriptions are unknown, the remaining partitions get GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP. Any other error fails
    the whole request. The client may send the request again, because deleting an offset twice is not an error.
    """
    coordinator = context.broker.group_coordinator
    codes: list[ErrorCode] = []
    unsettled: list[asyncio.Future[None]] = []
    for portion in _portions(request.topics):
        try:
            deleted = coordinator.delete_offsets(request.group_id, portion)
        except KafkaError as error:
            if not codes or error.code not in _AFTER_THE_FIRST_STEP:
                raise
            codes += [error.code] * len(portion)
            yield len(portion)
            continue
        # All futures are awaited: the last step's future does not report a flush that failed before.
        settled = coordinator.settled(request.group_id)
        if settled is not None:
            unsettled.append(settled)
        codes += deleted
        yield len(portion) + DELETION_UNITS * deleted.count(ErrorCode.NONE)
    results = results_of(request.topics, codes, OffsetDeleteResponseTopic, OffsetDeleteResponsePartition)
    response = OffsetDeleteResponse(topics=(yield from results))
    if not unsettled:
        return response
    return Deferred(_when_settled(response, unsettled))


def _portions(topics: Iterable[OffsetDeleteRequestTopic]) -> Iterator[list[TopicPartition]]:
    """Yield lists of at most AT_ONCE partitions. The first list is empty if the request names no partitions."""
    wanted = ((topic.name, partition.partition_index) for topic in topics for partition in topic.partitions)
    yield list(islice(wanted, AT_ONCE))
    while portion := list(islice(wanted, AT_ONCE)):
        yield portion


async def _when_settled(
    response: OffsetDeleteResponse, unsettled: Sequence[asyncio.Future[None]]
) -> OffsetDeleteResponse:
    await asyncio.wait(unsettled)
    for settled in unsettled:
        settled.result()
    return response
