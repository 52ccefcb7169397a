"""Handle AddPartitionsToTxn v0-5: register partitions with a transaction, or from v4 on with many transactions.

For each transaction, either all partitions are registered or none is. If a partition is unknown, or if the client may
not write to it, the transaction's other partitions get OPERATION_NOT_ATTEMPTED. Up to v3 a request contains one
transaction, and its error applies to every partition.

All partitions are registered in one turn of the event loop, in which the topics are looked up once more. This is
necessary because the rows of a large request are looked up in slices, and a topic may be deleted between two slices or
while the request waits.

If the extension's field Session is set (in v3, and per transaction in v4+), the partitions stay registered after the
transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice

from ...protocol.access_rules import AclOperation, AclResourceType
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
from ..acls.access import Access
from ..api.handling import Deferred, Reply, RequestContext, handles
from ..coordinator.transaction.decisions import Step
from ..coordinator.transaction.state import TopicPartition, TransactionVersion
from ..metadata import Metadata
from ..scheduling.slices import in_slices
from ..scheduling.steps import Steps, run_in_slices
from ..topic_names import INTERNAL_TOPICS, OFFSETS_TOPIC

FIRST_BATCHED_VERSION = 4

TRANSACTIONS_AT_A_TIME = 20
"""The number of transactions in a request that are handled before the event loop runs other tasks.

If a transaction has many partitions, other tasks also run in between.
"""

ROWS_AT_ONCE = 50
"""The number of partitions that are handled between two checks of whether the slice is over.

A check costs as much as handling one partition.
"""

FEW = 100
"""A client's request for at most this many partitions is executed in one turn of the event loop."""

Codes = dict[TopicPartition, ErrorCode]

Results = dict[str, list[AddPartitionsToTxnPartitionResult]]
"""The results of partitions, by topic."""

Producer = tuple[str, int, int]
"""A transactional id, a producer id and a producer epoch."""

Attempt = tuple[Codes, asyncio.Future[None] | Step | None]
"""The result of an attempt to register partitions: their error codes, and the result of `add_partitions_now`.

If the second item is None, there is nothing to wait for: the registration is durable already, or no partition is
registered.
"""


@handles(AddPartitionsToTxnRequest)
def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> Reply:
    """Register the partitions. Up to v3, a client sends the request; from v4 on, a broker sends it for clients."""
    return _add_all(context, request) if context.api_version >= FIRST_BATCHED_VERSION else _add(context, request)


def _add(context: RequestContext, request: AddPartitionsToTxnRequest) -> Reply:
    topics = request.v3_and_below_topics
    if len(topics) > FEW:
        return _add_many(context, request)
    rows = 0
    for topic in topics:
        rows += len(topic.partitions)
    if rows > FEW:
        return _add_many(context, request)
    context.rows(rows)
    codes: Codes = {}
    if _all_exist(context, topics, codes, request.session):
        producer = _producer(request)
        pending = context.broker.transaction_coordinator.registration.add_partitions_now(
            *producer, codes.keys(), TransactionVersion.TV_0, session=request.session, by=context
        )
        if isinstance(pending, Step):
            return _wait(context, request, producer)
        if pending is not None:
            return Deferred(pending, lambda _: _response_of_few(codes))
    return _response_of_few(codes)


def _all_exist(context: RequestContext, topics: list[AddPartitionsToTxnTopic], codes: Codes, session: bool) -> bool:
    """Add an error code for each partition of a small request to `codes`.

    Return whether all partitions exist and the client may write to them.
    """
    metadata, access = context.broker.metadata, context.access
    exist = True
    for requested in topics:
        topic = metadata.topic(requested.name)
        count = 0 if topic is None else topic.partitions
        if not _may_write(access, requested.name, session):
            exist = _deny(requested.name, requested.partitions, codes)
        else:
            exist &= _look_up(requested.name, requested.partitions, count, codes)
    if not exist:
        for partition, code in codes.items():
            if code is ErrorCode.NONE:
                codes[partition] = ErrorCode.OPERATION_NOT_ATTEMPTED
    return exist


def _response_of_few(codes: Codes) -> AddPartitionsToTxnResponse:
    results: Results = {}
    _add_results(results, codes.items())
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult(name, results[name]) for name in results]
    )


def _producer(request: AddPartitionsToTxnRequest) -> Producer:
    return (
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )


def _add_many(context: RequestContext, request: AddPartitionsToTxnRequest) -> Steps[Reply]:
    topics = request.v3_and_below_topics
    for done, topic in enumerate(topics, 1):
        context.rows(len(topic.partitions))
        if done % ROWS_AT_ONCE == 0:
            yield ROWS_AT_ONCE
    producer = _producer(request)
    codes, pending = yield from _attempt(context, producer, topics, session=request.session, writes=False)
    if isinstance(pending, Step):
        return _wait(context, request, producer)
    if pending is not None:
        return Deferred(pending, lambda _: _response(codes))
    return (yield from _response(codes))


async def _wait(
    context: RequestContext, request: AddPartitionsToTxnRequest, producer: Producer
) -> AddPartitionsToTxnResponse:
    deadline = context.broker.transaction_coordinator.wait_deadline()
    codes = await _register(
        context, producer, request.v3_and_below_topics, deadline, session=request.session, writes=False, waits=True
    )
    return await run_in_slices(_response(codes))


async def _add_all(context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    deadline = context.broker.transaction_coordinator.wait_deadline()  # shared by all transactions of the request
    await run_in_slices(_counted(context, request))
    response = AddPartitionsToTxnResponse()
    async for transaction in in_slices(request.transactions, TRANSACTIONS_AT_A_TIME):
        codes = await _add_or_verify(context, transaction, deadline)
        topics = await run_in_slices(_by_topic(codes))
        response.results_by_transaction.append(AddPartitionsToTxnResult(transaction.transactional_id, topics))
    return response


def _counted(context: RequestContext, request: AddPartitionsToTxnRequest) -> Steps[None]:
    """Count the response's rows before any partition is registered. Raises INVALID_REQUEST if there are too many."""
    for transaction in request.transactions:
        for topic in transaction.topics:
            context.rows(len(topic.partitions))
            yield 1


async def _add_or_verify(context: RequestContext, transaction: AddPartitionsToTxnTransaction, deadline: float) -> Codes:
    """Add or verify the partitions of one transaction. Return an error code for each; no KafkaError is raised.

    Partitions that another broker registers for a client count as written, because that broker writes to them at once.
    The partitions of a session do not count yet: their producer writes to them later, with requests that are checked.
    """
    coordinator = context.broker.transaction_coordinator
    producer = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    if transaction.session and transaction.verify_only:
        coordinator.events.refused(
            transaction.transactional_id, ErrorCode.INVALID_REQUEST, context, reason="Session and VerifyOnly set"
        )
        return await run_in_slices(_same(transaction.topics, ErrorCode.INVALID_REQUEST))
    if transaction.verify_only:
        return await run_in_slices(_verify(context, producer, transaction.topics))
    try:
        return await _register(
            context,
            producer,
            transaction.topics,
            deadline,
            session=transaction.session,
            writes=not transaction.session,
        )
    except KafkaError as error:
        return await run_in_slices(_same(transaction.topics, error.code))


async def _register(
    context: RequestContext,
    producer: Producer,
    topics: list[AddPartitionsToTxnTopic],
    deadline: float,
    *,
    session: bool,
    writes: bool,
    waits: bool = False,
) -> Codes:
    """Register partitions durably, after the previous transaction has ended.

    Set `waits` if an earlier attempt has shown that the previous transaction has not ended. Raises KafkaError like
    `add_partitions_now` and `until_settled`.
    """
    coordinator = context.broker.transaction_coordinator
    while True:
        if waits:
            await coordinator.until_settled(producer[0], deadline, context)
        codes, pending = await run_in_slices(_attempt(context, producer, topics, session=session, writes=writes))
        waits = isinstance(pending, Step)
        if not isinstance(pending, Step):
            if pending is not None:
                await asyncio.shield(pending)
            return codes


def _attempt(
    context: RequestContext,
    producer: Producer,
    topics: list[AddPartitionsToTxnTopic],
    *,
    session: bool,
    writes: bool,
) -> Steps[Attempt]:
    """Register all partitions, or none if one does not exist or the client may not write to it.

    Raises KafkaError like `add_partitions_now`.
    """
    metadata = context.broker.metadata
    while True:
        codes, highest = yield from _looked_up(context, topics, session)
        if highest is None:
            return codes, None
        if _still_exist(metadata, highest):
            break
    # There is no yield since the check, so all partitions that are registered exist.
    pending = context.broker.transaction_coordinator.registration.add_partitions_now(
        *producer, codes.keys(), TransactionVersion.TV_0, session=session, writes=writes, by=context
    )
    return codes, pending


def _verify(context: RequestContext, producer: Producer, topics: list[AddPartitionsToTxnTopic]) -> Steps[Codes]:
    codes, highest = yield from _looked_up(context, topics, session=False)
    if highest is None:
        return codes
    verified = context.broker.transaction_coordinator.registration.verify_all(*producer, codes.keys())
    for partition in codes:
        codes[partition] = verified.code_of(partition)
        yield 1
    return codes


def _looked_up(
    context: RequestContext, topics: list[AddPartitionsToTxnTopic], session: bool
) -> Steps[tuple[Codes, dict[str, int] | None]]:
    """Look up all partitions.

    Return an error code for each partition, and the highest index of each topic. If a partition is unknown or the
    client may not write to it, the second item is None. From v4 on, permissions are not checked here: the sender is a
    broker, which has checked them.
    """
    metadata = context.broker.metadata
    from_broker = context.api_version >= FIRST_BATCHED_VERSION
    codes: Codes = {}
    highest: dict[str, int] = {}
    done = 0
    exist = True
    for requested in topics:
        name = requested.name
        topic = metadata.topic(name)
        count = 0 if topic is None else topic.partitions
        is_allowed = from_broker or _may_write(context.access, name, session)
        for indexes in _pieces(requested.partitions):
            if not is_allowed:
                exist = _deny(name, indexes, codes)
            elif not _look_up(name, indexes, count, codes):
                exist = False
            elif (top := max(indexes)) >= highest.get(name, 0):
                highest[name] = top
            done += len(indexes)
            if done >= ROWS_AT_ONCE:
                yield done
                done = 0
        done += 1
        if done >= ROWS_AT_ONCE:  # a request may have many topics with few partitions or none
            yield done
            done = 0
    if exist:
        return codes, highest
    for partition, code in codes.items():
        if code is ErrorCode.NONE:
            codes[partition] = ErrorCode.OPERATION_NOT_ATTEMPTED
        yield 1
    return codes, None


def _may_write(access: Access, topic: str, session: bool) -> bool:
    """Return whether the client may register partitions of the topic.

    As in Apache Kafka, no client may register partitions of internal topics: the end of the transaction would write
    markers to them. Partitions of `__consumer_offsets` are registered by AddOffsetsToTxn or TxnOffsetCommit instead. A
    session (extension) may include them here, so that its producer need not send AddOffsetsToTxn in each transaction.
    """
    if topic in INTERNAL_TOPICS and not (session and topic == OFFSETS_TOPIC):
        return False
    return access.allows(AclOperation.WRITE, AclResourceType.TOPIC, topic)


def _look_up(name: str, indexes: list[int], count: int, codes: Codes) -> bool:
    """Add to `codes` an error code for each partition of a topic with `count` partitions; return whether all exist."""
    exist = True
    for index in indexes:
        if 0 <= index < count:
            codes[name, index] = ErrorCode.NONE
        else:
            codes[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            exist = False
    return exist


def _deny(name: str, indexes: list[int], codes: Codes) -> bool:
    """Add to `codes` the error code for partitions of a topic to which the client may not write; return False."""
    codes.update(dict.fromkeys(((name, index) for index in indexes), ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return False


def _still_exist(metadata: Metadata, highest: dict[str, int]) -> bool:
    for name, index in highest.items():
        topic = metadata.topic(name)
        if topic is None or index >= topic.partitions:
            return False
    return True


def _pieces(indexes: list[int]) -> Iterator[list[int]]:
    if len(indexes) <= ROWS_AT_ONCE:
        return iter([indexes] if indexes else [])
    return (indexes[start : start + ROWS_AT_ONCE] for start in range(0, len(indexes), ROWS_AT_ONCE))


def _same(topics: list[AddPartitionsToTxnTopic], code: ErrorCode) -> Steps[Codes]:
    codes: Codes = {}
    for topic in topics:
        for index in topic.partitions:
            codes[topic.name, index] = code
            yield 1
    return codes


def _response(codes: Codes) -> Steps[AddPartitionsToTxnResponse]:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(yield from _by_topic(codes)))


def _by_topic(codes: Codes) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    results: Results = {}
    rows = iter(codes.items())
    while piece := list(islice(rows, ROWS_AT_ONCE)):
        _add_results(results, piece)
        yield len(piece)
    topics = []
    for done, (name, partitions) in enumerate(results.items(), 1):
        topics.append(AddPartitionsToTxnTopicResult(name, partitions))
        if done % ROWS_AT_ONCE == 0:
            yield ROWS_AT_ONCE
    return topics


def _add_results(results: Results, codes: Iterable[tuple[TopicPartition, ErrorCode]]) -> None:
    for (name, index), code in codes:
        results.setdefault(name, []).append(AddPartitionsToTxnPartitionResult(index, code))
