"""Produce: appends each partition's batch and answers when it is as durable as `acks` asks.

The records are not looked into here beyond two header fields; the log checks and appends them uncopied. A
transactional batch is appended only when the transaction coordinator says, in the same step, that its partition is
part of the producer's ongoing transaction: Produce v12+ registers the partition (KIP-890 part 2), older versions only
have it verified (part 1). Waiting for the coordinator parks the connection, so order is kept.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ...protocol.records import BatchHeader, CorruptBatch, read_batch_header
from ...protocol.schema import Buffer
from ..handling import Answer, Deferred, Reply, RequestContext, handles
from ..topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from ..partition import Partition

FIRST_VERSION_BY_ID: Final = 13
FIRST_VERSION_REGISTERING: Final = 12
FIRST_VERSION_WITH_ZSTD: Final = 7

_ATTRIBUTES: Final = 22  # position of a batch's attributes, low byte
_TRANSACTIONAL: Final = 0x10
_CODEC: Final = 0x07
_ZSTD: Final = 4

TopicPartition = tuple[str, int]


class _Append:
    """One partition's batch, and what became of it."""

    __slots__ = ("answer", "flush", "header", "partition", "records")

    def __init__(self, answer: PartitionProduceResponse, records: Buffer | None) -> None:
        self.answer = answer
        self.records = records
        self.partition: Partition | None = None
        self.header: BatchHeader | None = None
        self.flush: asyncio.Future[None] | None = None

    def fail(self, error: KafkaError) -> None:
        answer = self.answer
        answer.error_code, answer.error_message = int(error.code), error.message
        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
        self.partition = None


@handles(ProduceRequest)
def handle(context: RequestContext, request: ProduceRequest) -> Reply:
    if request.acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it can be 0, 1 or -1 (all).")
    response = ProduceResponse()
    appends: list[_Append] = []
    transactional = _prepare(context, request, response, appends)
    if transactional:
        if request.transactional_id is None:
            error = KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "A transactional batch came without a transactional id.",
            )
            for append in appends:
                append.fail(error)
        elif (registration := _register(context, request.transactional_id, appends)) is not None:
            return _append_registered(context, request, response, appends, registration)
    return _append(context, request, response, appends)


def _prepare(
    context: RequestContext, request: ProduceRequest, response: ProduceResponse, appends: list[_Append]
) -> bool:
    """Find the partitions; True when a batch is transactional."""
    by_id = context.api_version >= FIRST_VERSION_BY_ID
    manager = context.broker.replica_manager
    transactional = False
    for topic in request.topic_data:
        answers = TopicProduceResponse(topic.name, topic.topic_id)
        response.responses.append(answers)
        for data in topic.partition_data:
            answer = PartitionProduceResponse(data.index)
            answers.partition_responses.append(answer)
            append = _Append(answer, data.records)
            appends.append(append)
            try:
                if by_id:
                    partition = manager.partition_by_id(topic.topic_id, data.index)
                else:
                    partition = manager.partition(topic.name, data.index)
                transactional |= _check(context, partition, data.records)
                append.partition = partition
            except KafkaError as error:
                append.fail(error)
    return transactional


def _check(context: RequestContext, partition: Partition, records: Buffer | None) -> bool:
    """Refuse what the log can't know to refuse; True when the batch is transactional."""
    if partition.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by the broker only.")
    if records is None or len(records) <= _ATTRIBUTES:
        raise KafkaError(ErrorCode.INVALID_RECORD, "There is no record batch in the request.")
    attributes = records[_ATTRIBUTES]
    if context.api_version < FIRST_VERSION_WITH_ZSTD and attributes & _CODEC == _ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {FIRST_VERSION_WITH_ZSTD} or above."
        )
    return bool(attributes & _TRANSACTIONAL)


# ---- transactions


class _Registration:
    """What has to be awaited before the batches of a transaction may be appended."""

    __slots__ = ("flush", "partitions", "producer_epoch", "producer_id", "transactional_id")

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        flush: asyncio.Future[None] | None,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.partitions = partitions
        self.flush = flush


def _register(context: RequestContext, transactional_id: str, appends: list[_Append]) -> _Registration | None:
    """Let only batches through whose partition is, right now, part of the producer's ongoing transaction.

    That a log holds an open transaction of the producer does not say so: it may be decided, its marker on the way.
    Returns what must be awaited first (the partitions of newer clients are registered), or None when the batches may
    be appended, or have failed.
    """
    broker = context.broker
    registering = context.api_version >= FIRST_VERSION_REGISTERING
    if not registering and not broker.config.transaction_partition_verification_enable:
        return None
    unknown: list[_Append] = []
    for append in appends:
        if _is_transactional(append):
            code = _verify(context, transactional_id, append)
            if code is not ErrorCode.NONE:
                if registering:
                    unknown.append(append)
                else:
                    append.fail(KafkaError(code))
    if not unknown:
        return None
    first = unknown[0].header
    assert first is not None
    for append in list(unknown):
        header = append.header
        assert header is not None
        if (header.producer_id, header.producer_epoch) != (first.producer_id, first.producer_epoch):
            unknown.remove(append)
            append.fail(KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "One request has batches of two producers."))
    partitions = [(p.topic, p.index) for append in unknown if (p := append.partition) is not None]
    try:
        step = broker.transaction_coordinator.add_partitions_now(
            transactional_id, first.producer_id, first.producer_epoch, partitions
        )
    except KafkaError as error:
        fenced = error.code is ErrorCode.PRODUCER_FENCED
        told = KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) if fenced else error
        for append in unknown:
            append.fail(told)
        return None
    if step is None:
        return None
    flush = step if isinstance(step, asyncio.Future) else None
    return _Registration(transactional_id, first.producer_id, first.producer_epoch, partitions, flush)


def _is_transactional(append: _Append) -> bool:
    """Whether there is a transactional batch for a log that can be used; then its header is known."""
    partition, records = append.partition, append.records
    if partition is None or records is None or not records[_ATTRIBUTES] & _TRANSACTIONAL:
        return False
    try:
        append.header = read_batch_header(records)
        failure = partition.log.failure  # a partition that can't be written must not join a transaction
    except CorruptBatch:
        return False  # the log will say so
    except KafkaError as error:
        failure = error
    if failure is not None:
        append.fail(failure)
    return failure is None


def _verify(context: RequestContext, transactional_id: str, append: _Append) -> ErrorCode:
    partition, header = append.partition, append.header
    assert partition is not None
    assert header is not None
    code = context.broker.transaction_coordinator.verify(
        transactional_id, header.producer_id, header.producer_epoch, (partition.topic, partition.index)
    )
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and context.api_version < FIRST_VERSION_REGISTERING:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # what every older client repeats a batch for, and so answers Kafka
    return code


async def _append_registered(
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appends: list[_Append],
    registration: _Registration,
) -> Answer:
    """Wait for the registration, look again whether it still holds, and append."""
    coordinator = context.broker.transaction_coordinator
    codes: dict[TopicPartition, ErrorCode] = {}
    try:
        if registration.flush is not None:
            await asyncio.shield(registration.flush)
        else:
            codes = await coordinator.add_partitions_implicitly(
                registration.transactional_id,
                registration.producer_id,
                registration.producer_epoch,
                registration.partitions,
            )
    except KafkaError as error:
        codes = dict.fromkeys(registration.partitions, error.code)
    for append in appends:
        if (partition := append.partition) is None or append.header is None:
            continue
        # The transaction may have timed out or been fenced meanwhile, that of a partition that had been let through,
        # too: a batch behind its marker would hang.
        code = codes.get((partition.topic, partition.index), ErrorCode.NONE)
        if code is ErrorCode.NONE:
            code = _verify(context, registration.transactional_id, append)
        if code is not ErrorCode.NONE:
            append.fail(KafkaError(code))
    return _append(context, request, response, appends)


# ---- appending and answering


def _append(
    context: RequestContext, request: ProduceRequest, response: ProduceResponse, appends: list[_Append]
) -> Answer:
    acks = request.acks
    registering = context.api_version >= FIRST_VERSION_REGISTERING and request.transactional_id is not None
    waiting: list[_Append] = []
    for append in appends:
        partition = append.partition
        if partition is None:
            continue
        records = append.records
        assert records is not None
        try:
            log = partition.log
            result = log.append(
                records, leader_epoch=partition.leader_epoch, transaction_version=2 if registering else 0
            )
            answer = append.answer
            answer.base_offset = result.base_offset
            answer.log_append_time_ms = result.log_append_time
            answer.log_start_offset = result.log_start_offset
            if acks == -1:
                append.flush = log.flushed(result.last_offset + 1)
                if append.flush is not None:
                    waiting.append(append)
        except KafkaError as error:
            append.fail(error)
        append.records = None  # the frame's buffer is reused
    if acks == 0:
        if any(append.answer.error_code for append in appends):
            # Nobody waits for an answer: only a closed connection tells the producer (as Kafka does).
            failed = next(append.answer for append in appends if append.answer.error_code)
            context.connection.close(f"Produce with acks=0 failed: {failed.error_message}")
        return None
    if not waiting:
        return response
    return Deferred(_all_flushed(waiting), lambda _: _conclude(response, waiting))


def _all_flushed(waiting: list[_Append]) -> asyncio.Future[None]:
    """Done when every flush is, however it went."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(waiting)

    def one(_: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        if not left and not done.done():
            done.set_result(None)

    for append in waiting:
        assert append.flush is not None
        append.flush.add_done_callback(one)
    return done


def _conclude(response: ProduceResponse, waiting: list[_Append]) -> ProduceResponse:
    for append in waiting:
        assert append.flush is not None
        try:
            append.flush.result()
        except KafkaError as error:
            append.fail(error)
        except asyncio.CancelledError:
            append.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The broker is stopping."))
    return response
