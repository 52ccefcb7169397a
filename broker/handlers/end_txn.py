"""Handle EndTxn v0-5: commit or abort a transaction, and answer when the commit or abort is durable.

v5 returns the next producer epoch (KIP-890).

If the request has Topics (v3+, extension), markers are written to the partitions that it names, and to all others that
have batches of the transaction. If the client knows oncelog's wire extension, the named partitions stay registered for
the producer's next transaction (a session).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...protocol.messages.end_txn import EndTxnRequest, EndTxnResponse, EndTxnTopic
from ..api.handling import Deferred, Reply, RequestContext, handles
from ..api.partition_rows import partitions_of
from ..coordinator.transaction.decisions import ProducerIdentity, Step
from ..coordinator.transaction.state import TopicPartition, TransactionVersion
from ..scheduling.steps import Steps

FEW: Final = 100
"""A request that names at most this many partitions is executed in one turn of the event loop."""


@handles(EndTxnRequest)
def handle(context: RequestContext, request: EndTxnRequest) -> Reply:
    """Commit or abort the producer's transaction."""
    topics = request.topics
    if topics is None:
        return _end(context, request, None)
    if len(topics) > FEW or sum(len(topic.partitions) for topic in topics) > FEW:
        return _end_written(context, request, topics)
    return _end(context, request, frozenset([(topic.name, index) for topic in topics for index in topic.partitions]))


def _end_written(context: RequestContext, request: EndTxnRequest, topics: Sequence[EndTxnTopic]) -> Steps[Reply]:
    written = yield from partitions_of((topic.name, topic.partitions) for topic in topics)
    return _end(context, request, written)


def _end(context: RequestContext, request: EndTxnRequest, written: frozenset[TopicPartition] | None) -> Reply:
    """Commit or abort the transaction. A client that sends version 5 ends transactions as described in KIP-890."""
    version = TransactionVersion.TV_2 if context.api_version >= 5 else TransactionVersion.TV_0
    outcome = context.broker.transaction_coordinator.end_txn_now(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        version,
        written=written,
        keeps_session=context.extension_aware,
        by=context,
    )
    if isinstance(outcome, Step):
        return _wait(context, request, version, written)
    identity, durable = outcome
    if durable is None:
        return _response(identity)
    return Deferred(durable, lambda _: _response(identity))


async def _wait(
    context: RequestContext,
    request: EndTxnRequest,
    version: TransactionVersion,
    written: frozenset[TopicPartition] | None,
) -> EndTxnResponse:
    identity = await context.broker.transaction_coordinator.end_txn(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        version,
        written=written,
        keeps_session=context.extension_aware,
        by=context,
    )
    return _response(identity)


def _response(identity: ProducerIdentity) -> EndTxnResponse:
    return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)
