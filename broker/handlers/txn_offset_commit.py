"""TxnOffsetCommit v0-5: offsets that count when the producer's transaction commits.

v3: the group's generation and member are checked (KIP-447). Up to v4 the group's offsets partition must have been
added to the transaction (AddOffsetsToTxn); v5 adds it implicitly (KIP-890).

A partition that another producer has claimed, in a newer generation than the commit's or when that names none, refuses
the whole request. A client that knows the extension is told CONCURRENT_PRODUCER_COMMIT, any other what it understands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from ...protocol.errors import CONCURRENT_PRODUCER_COMMIT, ErrorCode, KafkaError
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ..coordinator.group.coordinator import Commit, Committer
from ..coordinator.transaction.decisions import ProducerIdentity, Step
from ..coordinator.transaction.state import TopicPartition
from ..handling import Answer, Deferred, Reply, RequestContext, handles
from ..topic_names import OFFSETS_TOPIC

IMPLICIT_PARTITIONS_FROM = 5
MAX_ADMISSIONS = 20
"""How often the transaction may end and begin anew between registering the partition and appending to it."""


@handles(TxnOffsetCommitRequest)
def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> Reply:
    """Nothing is written unless the partition is, right then, part of the producer's ongoing transaction."""
    groups = context.broker.group_coordinator
    with _told_as_understood(context, request):
        groups.check_txn_commit(
            request.group_id,
            _committer(context, request),
            request.transactional_id,
            [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions],
        )
    home = (OFFSETS_TOPIC, groups.partition_for(request.group_id))
    admitted = _admit_now(context, request, home)
    if admitted is None:
        return _commit(context, request, home)
    return _admit_and_commit(context, request, home, admitted)


def _admit_now(
    context: RequestContext, request: TxnOffsetCommitRequest, home: TopicPartition
) -> asyncio.Future[None] | Step | None:
    """None when the offsets may be appended in this very step, else what has to be awaited first."""
    return context.broker.transaction_coordinator.admit_now(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        home,
        registers=context.api_version >= IMPLICIT_PARTITIONS_FROM,
        by=context,
    )


async def _admit_and_commit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    home: TopicPartition,
    admitted: asyncio.Future[None] | Step,
) -> Answer:
    deadline = context.broker.transaction_coordinator.wait_deadline()
    for _ in range(MAX_ADMISSIONS):
        if isinstance(admitted, asyncio.Future):
            await asyncio.shield(admitted)
        else:
            await context.broker.transaction_coordinator.until_settled(request.transactional_id, deadline, context)
        # Between its registration and this moment the transaction may have been ended by a time-out or a fencing.
        again = _admit_now(context, request, home)
        if again is None:
            return _commit(context, request, home)
        admitted = again
    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _committer(context: RequestContext, request: TxnOffsetCommitRequest) -> Committer:
    return Committer(request.member_id, request.group_instance_id, request.generation_id, context.extension_aware)


@contextmanager
def _told_as_understood(context: RequestContext, request: TxnOffsetCommitRequest) -> Iterator[None]:
    """Turn CONCURRENT_PRODUCER_COMMIT into PRODUCER_FENCED, which is fatal as well, for who does not know it."""
    try:
        yield
    except KafkaError as error:
        if error.code is not CONCURRENT_PRODUCER_COMMIT:
            raise
        code = error.code if context.extension_aware else ErrorCode.PRODUCER_FENCED
        context.broker.transaction_coordinator.events.refused(
            request.transactional_id,
            code,
            context,
            identity=ProducerIdentity(request.producer_id, request.producer_epoch),
            reason=error.message,
        )
        raise KafkaError(code, error.message) from error


def _commit(context: RequestContext, request: TxnOffsetCommitRequest, home: TopicPartition) -> Answer:
    coordinator = context.broker.group_coordinator
    context.broker.transaction_coordinator.wrote(request.transactional_id, home)  # or is about to, in this step
    commits = [
        Commit((topic.name, p.partition_index), p.committed_offset, p.committed_leader_epoch, p.committed_metadata)
        for topic in request.topics
        for p in topic.partitions
    ]
    with _told_as_understood(context, request):
        told = coordinator.commit_txn_offsets(
            request.group_id,
            _committer(context, request),
            request.producer_id,
            request.producer_epoch,
            commits,
            request.transactional_id,
        )
    codes = iter(told)
    response = TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(partition.partition_index, int(next(codes)))
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    settled = coordinator.settled(request.group_id)
    return response if settled is None else Deferred(settled, lambda _: response)
