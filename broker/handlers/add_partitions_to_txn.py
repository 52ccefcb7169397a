"""AddPartitionsToTxn v0-5: register partitions with a transaction; v4+ for many transactions at once (brokers).

All or nothing per transaction: with one unknown partition none is registered, the others are told
OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.errors import ErrorCode, KafkaError, downgrade
from ...protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ..coordinator.transaction.state import TopicPartition
from ..handling import RequestContext, handles


@handles(AddPartitionsToTxnRequest)
async def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Up to v3 one transaction, in fields of their own."""
    if context.api_version >= 4:
        results = [
            AddPartitionsToTxnResult(transaction.transactional_id, _topics(await _add(context, transaction)))
            for transaction in request.transactions
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    transaction = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        False,
        request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topics(await _add(context, transaction)))


async def _add(context: RequestContext, transaction: AddPartitionsToTxnTransaction) -> dict[TopicPartition, ErrorCode]:
    """A code for each partition, as this request version knows it."""
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    codes = _refused(context, partitions)
    if codes is None:
        coordinator = context.broker.transaction_coordinator
        who = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
        if transaction.verify_only:
            codes = coordinator.verify_all(*who, partitions)
        else:
            try:
                await coordinator.add_partitions(*who, partitions)
                codes = dict.fromkeys(partitions, ErrorCode.NONE)
            except KafkaError as error:
                codes = dict.fromkeys(partitions, error.code)
    return {
        partition: downgrade(code, context.api_key, context.api_version) if code else code
        for partition, code in codes.items()
    }


def _refused(context: RequestContext, partitions: list[TopicPartition]) -> dict[TopicPartition, ErrorCode] | None:
    """The codes when one of the partitions doesn't exist; None when all do."""
    metadata = context.broker.metadata
    unknown = set()
    for partition in partitions:
        topic = metadata.topic(partition[0])
        if topic is None or not 0 <= partition[1] < topic.partitions:
            unknown.add(partition)
    if not unknown:
        return None
    return {
        partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
        for partition in partitions
    }


def _topics(codes: Mapping[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(AddPartitionsToTxnPartitionResult(index, code))
    return [AddPartitionsToTxnTopicResult(name, results) for name, results in topics.items()]
