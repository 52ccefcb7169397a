"""AddPartitionsToTxn v0-5: register partitions with a transaction; v4+ for many transactions at once (brokers).

All or nothing per transaction: if a partition is unknown, none is registered, and the others get
OPERATION_NOT_ATTEMPTED. Up to v3 a request is one transaction, and its error applies to every partition.

Session (extension; in v3, and per transaction in v4+) keeps the partitions registered after this transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ..coordinator.transaction.decisions import Step
from ..coordinator.transaction.state import TopicPartition, TransactionVersion
from ..handling import Deferred, Reply, RequestContext, handles
from ..slices import in_slices

FIRST_BATCHED_VERSION = 4

TRANSACTIONS_AT_A_TIME = 20
"""Transactions of one request between two turns of the event loop."""


@handles(AddPartitionsToTxnRequest)
def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> Reply:
    """Up to v3 the sender is a client, from v4 on a broker that verifies or registers on a client's behalf."""
    if context.api_version >= FIRST_BATCHED_VERSION:
        return _add_all(context, request)
    partitions = _flat(request.v3_and_below_topics)
    refused = _refused(context, partitions)
    if refused is not None:
        return _response(refused)
    durable = context.broker.transaction_coordinator.add_partitions_now(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        partitions,
        TransactionVersion.TV_0,
        session=request.session,
        by=context,
    )
    if isinstance(durable, Step):
        return _wait(context, request, partitions)
    response = _response(dict.fromkeys(partitions, ErrorCode.NONE))
    return response if durable is None else Deferred(durable, lambda _: response)


async def _wait(
    context: RequestContext, request: AddPartitionsToTxnRequest, partitions: list[TopicPartition]
) -> AddPartitionsToTxnResponse:
    await context.broker.transaction_coordinator.add_partitions(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        partitions,
        session=request.session,
        by=context,
    )
    return _response(dict.fromkeys(partitions, ErrorCode.NONE))


async def _add_all(context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    deadline = context.broker.transaction_coordinator.wait_deadline()  # shared by all transactions of the request
    response = AddPartitionsToTxnResponse()
    async for transaction in in_slices(request.transactions, TRANSACTIONS_AT_A_TIME):
        codes = await _add_or_verify(context, transaction, deadline)
        response.results_by_transaction.append(AddPartitionsToTxnResult(transaction.transactional_id, _by_topic(codes)))
    return response


async def _add_or_verify(
    context: RequestContext, transaction: AddPartitionsToTxnTransaction, deadline: float
) -> dict[TopicPartition, ErrorCode]:
    """Add or verify the partitions of one transaction of a batch; an error is a code, not an exception.

    A producer that registers a session's partitions writes later, by requests that are admitted. A broker that
    registers for a client writes next, so its partitions count as written.
    """
    partitions = _flat(transaction.topics)
    coordinator = context.broker.transaction_coordinator
    if transaction.session and transaction.verify_only:
        coordinator.events.refused(
            transaction.transactional_id, ErrorCode.INVALID_REQUEST, context, reason="Session with VerifyOnly"
        )
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    refused = _refused(context, partitions)
    if refused is not None:
        return refused
    producer = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return coordinator.verify_all(*producer, partitions)
    try:
        await coordinator.add_partitions(
            *producer,
            partitions,
            session=transaction.session,
            writes=not transaction.session,
            by=context,
            deadline=deadline,
        )
    except KafkaError as error:
        return dict.fromkeys(partitions, error.code)
    return dict.fromkeys(partitions, ErrorCode.NONE)


def _refused(context: RequestContext, partitions: list[TopicPartition]) -> dict[TopicPartition, ErrorCode] | None:
    """Return a code for each partition if one of them does not exist, None if all do."""
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


def _flat(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _response(codes: Mapping[TopicPartition, ErrorCode]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(codes))


def _by_topic(codes: Mapping[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(AddPartitionsToTxnPartitionResult(index, code))
    return [AddPartitionsToTxnTopicResult(name, results) for name, results in topics.items()]
