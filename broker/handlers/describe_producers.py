"""DescribeProducers v0: the producers that a partition's log remembers, and their open transactions.

Asking makes no log: a partition that was never written to has no producers.
"""

from __future__ import annotations

from collections.abc import Collection

from ...protocol.errors import KafkaError
from ...protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ..handling import RequestContext, handles


@handles(DescribeProducersRequest)
def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """A partition that isn't here is an error of its own entry."""
    topics = []
    for topic in request.topics:
        written = context.broker.replica_manager.existing_partitions(topic.name)
        answers = [_partition(context, topic.name, index, written) for index in topic.partition_indexes]
        topics.append(TopicResponse(topic.name, answers))
    return DescribeProducersResponse(topics=topics)


def _partition(context: RequestContext, topic: str, index: int, written: Collection[int]) -> PartitionResponse:
    try:
        partition = context.broker.replica_manager.partition(topic, index)
        entries = partition.log.producers.entries() if index in written else ()
    except KafkaError as error:
        return PartitionResponse(index, error.code, str(error))
    return PartitionResponse(
        index,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            for entry in entries
        ],
    )
