"""Handle TxnOffsetCommit v0-5: commit offsets as part of the producer's transaction.

v3: the group's generation and member are checked (KIP-447). Up to v4 the partition that stores the group's offsets must
have been added to the transaction (AddOffsetsToTxn); v5 adds it implicitly (KIP-890).

A topic in the request may have an id (v3+, extension). If this is not the topic's current id, the topic's offsets are
refused with UNKNOWN_TOPIC_ID.

The whole request is refused if another producer has claimed one of the partitions, and the request has no generation or
an older one than the claim. A client that knows oncelog's wire extension gets CONCURRENT_PRODUCER_COMMIT, any other
client PRODUCER_FENCED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ...protocol.errors import CONCURRENT_PRODUCER_COMMIT, ErrorCode, KafkaError
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ..api.handling import Answer, Deferred, Reply, RequestContext, handles
from ..api.partition_rows import FEW, commits_of, results_of
from ..coordinator.group.coordinator import Committer
from ..coordinator.transaction.decisions import ProducerIdentity, Step
from ..coordinator.transaction.state import TopicPartition
from ..scheduling.steps import Steps, run_at_once, run_in_slices
from ..topic_names import OFFSETS_TOPIC

IMPLICIT_PARTITIONS_FROM = 5
MAX_ADMISSIONS = 20
"""The maximum number of times that the offsets are checked.

They are checked again if the transaction has ended and another has begun meanwhile.
"""


@handles(TxnOffsetCommitRequest)
def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> Reply:
    """Append the offsets only if the partition that stores them is part of the producer's ongoing transaction.

    A request that waits, or that is large and not yet appended, is cancelled if its client disconnects. The client ends
    the transaction only after the response, so no acknowledged offset is lost. If the offsets were appended later, they
    might become part of the producer's next transaction.
    """
    groups = context.broker.group_coordinator
    if len(request.topics) > FEW or sum(len(topic.partitions) for topic in request.topics) > FEW:
        return _commit_many(context, request)
    with _with_code_for_client(context, request):
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
    """Return None if the offsets may be appended before the next await. Otherwise return what to wait for first."""
    return context.broker.transaction_coordinator.registration.admit_now(
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
        await _until_admissible(context, request, admitted, deadline)
        # A timeout or fencing may have ended the transaction since the registration.
        again = _admit_now(context, request, home)
        if again is None:
            return _commit(context, request, home)
        admitted = again
    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)


async def _until_admissible(
    context: RequestContext, request: TxnOffsetCommitRequest, admitted: asyncio.Future[None] | Step, deadline: float
) -> None:
    """Wait for the registration, or for the end of the previous transaction. The caller must then try again."""
    if isinstance(admitted, asyncio.Future):
        await asyncio.shield(admitted)
    else:
        await context.broker.transaction_coordinator.until_settled(request.transactional_id, deadline, context)


def _committer(context: RequestContext, request: TxnOffsetCommitRequest) -> Committer:
    return Committer(request.member_id, request.group_instance_id, request.generation_id, context.extension_aware)


@contextmanager
def _with_code_for_client(context: RequestContext, request: TxnOffsetCommitRequest) -> Iterator[None]:
    """For clients without the extension, replace CONCURRENT_PRODUCER_COMMIT with the fatal error PRODUCER_FENCED."""
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
    # The offsets are appended below, with no await before.
    context.broker.transaction_coordinator.registration.wrote(request.transactional_id, home)
    commits = run_at_once(commits_of(request.topics))
    with _with_code_for_client(context, request):
        commit_codes = coordinator.commit_txn_offsets(
            request.group_id,
            _committer(context, request),
            request.producer_id,
            request.producer_epoch,
            commits,
            request.transactional_id,
        )
    codes = iter(commit_codes)
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


# ---- requests with many partitions


async def _commit_many(context: RequestContext, request: TxnOffsetCommitRequest) -> Steps[Answer]:
    """Prepare the offsets in slices, then check them again and append them in one turn of the event loop."""
    coordinator = context.broker.group_coordinator
    transactions = context.broker.transaction_coordinator
    committer = _committer(context, request)
    home = (OFFSETS_TOPIC, coordinator.partition_for(request.group_id))
    owner = (request.transactional_id, request.producer_id)
    deadline = transactions.wait_deadline()
    commits = await run_in_slices(commits_of(request.topics))
    for _ in range(MAX_ADMISSIONS):
        prepared = await run_in_slices(coordinator.prepare_commit(request.group_id, commits, owner=owner))
        # There is no await from here to the append, unless the offsets are prepared and checked again.
        if not coordinator.is_current(prepared):
            continue
        with _with_code_for_client(context, request):
            coordinator.check_txn_commit(
                request.group_id, committer, request.transactional_id, prepared.partitions.keys()
            )
        prepared.check_size()
        admitted = _admit_now(context, request, home)
        if admitted is None:
            transactions.registration.wrote(request.transactional_id, home)
            with _with_code_for_client(context, request):
                codes = coordinator.commit_txn_prepared(
                    prepared, committer, request.producer_id, request.producer_epoch, request.transactional_id
                )
            return _answer(request, codes, coordinator.settled(request.group_id))
        await _until_admissible(context, request, admitted, deadline)
    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _answer(
    request: TxnOffsetCommitRequest, codes: Iterable[ErrorCode], settled: asyncio.Future[None] | None
) -> Steps[Answer]:
    results = results_of(request.topics, codes, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition)
    response = TxnOffsetCommitResponse(topics=(yield from results))
    if settled is None:
        return response
    return Deferred(settled, lambda _: response)
