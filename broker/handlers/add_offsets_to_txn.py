"""AddOffsetsToTxn v0-4: make a group's offsets partition part of the transaction."""

from __future__ import annotations

from ...protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ..coordinator.state_log import partition_for_key
from ..handling import RequestContext, handles
from ..topic_names import OFFSETS_TOPIC


@handles(AddOffsetsToTxnRequest)
async def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """The partition is that of the group's home."""
    broker = context.broker
    topic = broker.metadata.topic(OFFSETS_TOPIC)
    assert topic is not None, "made at start"
    await broker.transaction_coordinator.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(OFFSETS_TOPIC, partition_for_key(request.group_id, topic.partitions))],
    )
    return AddOffsetsToTxnResponse()
