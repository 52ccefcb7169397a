"""The admin client's requests about transactions: list and describe them, fence producers, find hanging transactions,
and abort these with a marker.

Coordinators know transactional ids, and leaders know the open transactions of their partitions. A transaction hangs if
it is open at a leader but unknown to every coordinator. Nothing ends such a transaction, and read_committed consumers
cannot read beyond its beginning (KIP-664).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from ...protocol.errors import ErrorCode, KafkaError, error_code
from ...protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from ...protocol.messages.describe_transactions import DescribeTransactionsRequest
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from ...protocol.messages.list_transactions import ListTransactionsRequest
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ..connection import Connection
from ..errors import UnsupportedVersionError, error_for
from ..group_protocol import group_by_topic
from ..values import TopicPartition
from .calls import AdminCalls, failure, one_each, only, raised
from .leaders import by_leader
from .transaction_values import (
    AbortTransactionSpec,
    FencedProducer,
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
    WhyHanging,
)

T = TypeVar("T")
U = TypeVar("U")

FIRST_WITH_DURATION: Final = 1
"""First version of ListTransactions with a filter by duration (KIP-994)."""
FIRST_WITH_PATTERN: Final = 2
"""First version of ListTransactions with a filter by a pattern of the id (KIP-1152)."""

AT_ONCE: Final = 16
"""Maximum number of concurrent requests, each for one id. A slow response delays all later responses on the same
connection.
"""


async def fence(calls: AdminCalls, transactional_ids: Iterable[str]) -> dict[str, FencedProducer]:
    """Send InitProducerId for each id, as a new producer would; return the outcome by id.

    Retry until the timeout while the open transaction is being aborted (CONCURRENT_TRANSACTIONS) or the coordinator
    is moving.
    """

    async def one(transactional_id: str) -> FencedProducer:
        # The timeout applies only to transactions of this epoch, and no such transaction ever begins. The next producer
        # with the id sets its own timeout.
        request = InitProducerIdRequest(transactional_id, round(calls.timeout_s * 1000))
        try:
            answer, *_ = await calls.of_transaction(
                transactional_id,
                request,
                lambda answer: [answer.error_code],
                f"fence transactional id {transactional_id!r}",
            )
        except KafkaError as error:
            return FencedProducer(-1, -1, error)
        if answer.error_code:
            return FencedProducer(-1, -1, _fence_failure(transactional_id, answer.error_code, request))
        return FencedProducer(answer.producer_id, answer.producer_epoch)

    return await _each(transactional_ids, one)


def _fence_failure(transactional_id: str, code: int, request: InitProducerIdRequest) -> KafkaError | None:
    message = None
    if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        message = (
            f"timeout_ms = {request.transaction_timeout_ms} is also the transaction timeout of the id, and the"
            " broker's transaction.max.timeout.ms is lower: use a shorter timeout_ms"
        )
    return failure(code, message, _id(transactional_id))


def _id(transactional_id: str) -> str:
    return f"transactional id {transactional_id!r}"


async def list_transactions(
    calls: AdminCalls,
    *,
    states: Sequence[str],
    producer_ids: Sequence[int],
    min_duration_ms: int,
    pattern: str | None,
) -> list[TransactionListing]:
    """Return the transactional ids of all brokers. Asks each broker, because it lists only its own ids."""

    async def one(node_id: int) -> list[TransactionListing]:
        connection = await calls.cluster.connection(node_id)
        version = connection.version_of(ListTransactionsRequest)
        _check_filters(connection, version, min_duration_ms, pattern)
        request = ListTransactionsRequest(list(states), list(producer_ids))
        if version >= FIRST_WITH_DURATION:
            request.duration_filter = min_duration_ms
        if version >= FIRST_WITH_PATTERN:
            request.transactional_id_pattern = pattern
        answer = await connection.send(request, version)
        if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise error_for(answer.error_code, f"pattern {pattern!r} is not a regular expression in RE2's syntax")
        if answer.error_code:
            raise error_for(answer.error_code, None)
        if answer.unknown_state_filters:
            unknown = ", ".join(map(repr, answer.unknown_state_filters))
            raise error_for(
                ErrorCode.INVALID_REQUEST,
                f"the broker knows no transaction state {unknown}: use Kafka's names, for example Ongoing",
            )
        return [
            TransactionListing(state.transactional_id, state.producer_id, state.transaction_state, node_id)
            for state in answer.transaction_states
        ]

    listed = await calls.of_every_broker(one, "list transactions")
    return sorted({listing for listings in listed for listing in listings})


def _check_filters(connection: Connection, version: int, min_duration_ms: int, pattern: str | None) -> None:
    for wanted, since, what in (
        (min_duration_ms >= 0, FIRST_WITH_DURATION, "by their duration"),
        (pattern is not None, FIRST_WITH_PATTERN, "by a pattern"),
    ):
        if wanted and version < since:
            raise UnsupportedVersionError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{connection.address} cannot filter transactions {what}: this needs ListTransactions v{since},"
                f" but the broker supports only up to v{version}",
            )


async def describe_transactions(
    calls: AdminCalls, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription | KafkaError]:
    """Describe each transactional id at its coordinator. The value of an id that fails is its KafkaError."""

    async def one(transactional_id: str) -> TransactionDescription | KafkaError:
        answer, _, node_id, _ = await calls.of_transaction(
            transactional_id,
            DescribeTransactionsRequest([transactional_id]),
            lambda answer: [state.error_code for state in answer.transaction_states],
            f"describe transactional id {transactional_id!r}",
        )
        rows = ((state.transactional_id, state) for state in answer.transaction_states)
        state = one_each([transactional_id], rows, _id)[transactional_id]
        if isinstance(state, KafkaError):
            return state
        problem = failure(state.error_code, None, _id(transactional_id))
        if problem is not None:
            return problem
        return TransactionDescription(
            transactional_id=state.transactional_id,
            coordinator=node_id,
            state=state.transaction_state,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            timeout_ms=state.transaction_timeout_ms,
            started_ms=state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
            partitions=tuple(
                sorted(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions)
            ),
        )

    return await _each(transactional_ids, one)


async def describe_producers(
    calls: AdminCalls, partitions: Iterable[TopicPartition], *, skip_missing: bool = False
) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
    """Send DescribeProducers to the leaders. Raises the first failure.

    With `skip_missing` a partition that does not exist counts as a partition without producers.
    """
    wanted = list(dict.fromkeys(partitions))
    described: dict[TopicPartition, tuple[ProducerDescription, ...]] = {}

    def is_missing(one: TopicPartition) -> None:
        described[one] = ()

    async def ask() -> None:
        left = [one for one in wanted if one not in described]
        for node_id, here in (await by_leader(calls, left, is_missing if skip_missing else None)).items():
            request = DescribeProducersRequest(
                [TopicRequest(topic, indexes) for topic, indexes in group_by_topic(here).items()]
            )
            answer = await calls.cluster.call(node_id, request)
            rows = (
                (TopicPartition(topic.name, data.partition_index), data)
                for topic in answer.topics
                for data in topic.partitions
            )
            for one, data in raised(one_each(here, rows, str)).items():
                if skip_missing and data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    is_missing(one)
                    continue
                problem = failure(data.error_code, data.error_message, str(one))
                if problem is not None:
                    raise problem
                described[one] = tuple(_producer(state) for state in data.active_producers)

    try:
        await calls.retrying(ask, "describe producers")
    finally:
        calls.cluster.untrack({one.topic for one in wanted})
    return {one: described[one] for one in wanted}


def _producer(state: ProducerState) -> ProducerDescription:
    return ProducerDescription(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp_ms=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        transaction_start_offset=state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
    )


async def abort(calls: AdminCalls, spec: AbortTransactionSpec) -> None:
    """Send WriteTxnMarkers with an abort marker to the leader. Raises the leader's error. No coordinator takes part."""
    partition = TopicPartition(*spec.partition)
    what = f"abort the transaction of producer id {spec.producer_id} on {partition}"
    marker = WritableTxnMarker(
        producer_id=spec.producer_id,
        producer_epoch=spec.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(partition.topic, [partition.partition])],
        coordinator_epoch=spec.coordinator_epoch,
    )

    async def ask() -> None:
        for node_id in await by_leader(calls, [partition]):
            answer = await calls.cluster.call(node_id, WriteTxnMarkersRequest([marker]))
            rows = (
                (TopicPartition(topic.name, data.partition_index), data.error_code)
                for marker in answer.markers
                if marker.producer_id == spec.producer_id
                for topic in marker.topics
                for data in topic.partitions
            )
            code = error_code(only(partition, rows, lambda one: f"could not {what}"))
            if code is ErrorCode.INVALID_PRODUCER_EPOCH:
                raise KafkaError(
                    code,
                    f"could not {what}: the partition knows a newer epoch of this producer than {spec.producer_epoch},"
                    " which means that the transaction has ended; describe the producers again",
                )
            problem = failure(code, None, f"could not {what}")
            if problem is not None:
                raise problem

    try:
        await calls.retrying(ask, what)
    finally:
        calls.cluster.untrack({partition.topic})


async def find_hanging(
    calls: AdminCalls, partitions: Iterable[TopicPartition], *, older_than_ms: int, now_ms: int, skip_missing: bool
) -> list[HangingTransaction]:
    """Return transactions that are open in a partition and unknown to every coordinator.

    A transaction whose last record is younger than `older_than_ms` is left out, because it may have begun or ended
    between two requests. With 0, no transaction is left out, even if its timestamps are in the future. At the end the
    remaining transactions are checked again, and only those that are still open are returned. With `skip_missing`,
    partitions that do not exist are skipped, because topics may be deleted meanwhile.
    """
    producers = await describe_producers(calls, partitions, skip_missing=skip_missing)
    candidates = [
        (partition, producer)
        for partition, known in producers.items()
        for producer in known
        if producer.transaction_start_offset is not None
        and (older_than_ms <= 0 or producer.last_timestamp_ms <= now_ms - older_than_ms)
    ]
    if not candidates:
        return []
    listed = await list_transactions(
        calls,
        states=(),
        producer_ids=sorted({producer.producer_id for _, producer in candidates}),
        min_duration_ms=-1,
        pattern=None,
    )
    ids = {listing.producer_id: listing.transactional_id for listing in listed}
    descriptions = await describe_transactions(calls, ids.values())
    hanging = []
    for partition, producer in candidates:
        transactional_id = ids.get(producer.producer_id)
        why = _why_hanging(
            partition, producer, None if transactional_id is None else descriptions.get(transactional_id)
        )
        if why is not None:
            hanging.append(HangingTransaction(partition, producer, transactional_id, why))
    still = await describe_producers(calls, [one.partition for one in hanging], skip_missing=True)
    return [one for one in hanging if _is_there(one.producer, still[one.partition])]


def _why_hanging(
    partition: TopicPartition, producer: ProducerDescription, known: TransactionDescription | KafkaError | None
) -> WhyHanging | None:
    if known is None or (isinstance(known, KafkaError) and known.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        return WhyHanging.NO_TRANSACTIONAL_ID
    if isinstance(known, KafkaError):
        raise known
    if known.producer_id != producer.producer_id:
        return WhyHanging.NO_TRANSACTIONAL_ID
    return None if partition in known.partitions else WhyHanging.NOT_ITS_TRANSACTION


def _is_there(producer: ProducerDescription, now: Iterable[ProducerDescription]) -> bool:
    open_now = {(one.producer_id, one.producer_epoch, one.transaction_start_offset) for one in now}
    return (producer.producer_id, producer.producer_epoch, producer.transaction_start_offset) in open_now


async def _each(items: Iterable[T], work: Callable[[T], Awaitable[U]]) -> dict[T, U]:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> U:
        async with room:
            return await work(item)

    tasks = {item: asyncio.ensure_future(one(item)) for item in dict.fromkeys(items)}
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    return {item: task.result() for item, task in tasks.items()}
