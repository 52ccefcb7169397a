"""Handle AddOffsetsToTxn v0-4: add the partition that stores a group's offsets to the transaction."""

from __future__ import annotations

from ...protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ..api.handling import Deferred, Reply, RequestContext, handles
from ..coordinator.state_log import partition_for_key
from ..coordinator.transaction.decisions import Step
from ..coordinator.transaction.state import TopicPartition, TransactionVersion
from ..topic_names import OFFSETS_TOPIC


@handles(AddOffsetsToTxnRequest)
def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> Reply:
    """Register the partition of `__consumer_offsets` that stores the group's offsets."""
    broker = context.broker
    topic = broker.metadata.topic(OFFSETS_TOPIC)
    assert topic is not None, "created at start"
    partitions = [(OFFSETS_TOPIC, partition_for_key(request.group_id, topic.partitions))]
    durable = broker.transaction_coordinator.registration.add_partitions_now(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        partitions,
        TransactionVersion.TV_0,
        by=context,
    )
    if durable is None:
        return AddOffsetsToTxnResponse()
    if isinstance(durable, Step):
        return _wait(context, request, partitions)
    return Deferred(durable, lambda _: AddOffsetsToTxnResponse())


async def _wait(
    context: RequestContext, request: AddOffsetsToTxnRequest, partitions: list[TopicPartition]
) -> AddOffsetsToTxnResponse:
    await context.broker.transaction_coordinator.registration.add_partitions(
        request.transactional_id, request.producer_id, request.producer_epoch, partitions, by=context
    )
    return AddOffsetsToTxnResponse()
