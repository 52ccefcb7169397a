"""OffsetDelete v0: delete a group's offsets on partitions to which none of its members subscribes (KIP-496)."""

from __future__ import annotations

from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ..handling import Deferred, Reply, RequestContext, handles


@handles(OffsetDeleteRequest)
def handle(context: RequestContext, request: OffsetDeleteRequest) -> Reply:
    """Delete the offsets; the response is sent when the tombstones are durable."""
    coordinator = context.broker.group_coordinator
    wanted = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    codes = iter(coordinator.delete_offsets(request.group_id, wanted))
    response = OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(partition.partition_index, int(next(codes)))
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    settled = coordinator.settled(request.group_id)
    return response if settled is None else Deferred(settled, lambda _: response)
