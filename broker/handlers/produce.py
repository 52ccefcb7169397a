"""Handle Produce: append each partition's batch and answer when it is as durable as `acks` requires.

The log checks the contents of each batch and appends the batch without copying it. Large batches are checked in slices
before any batch of the request is appended. `transactional_produce.py` decides which transactional batches may be
appended. While a request is checked in slices or waits for the coordinator, its connection executes no other request,
so that requests stay in order.

Versions 0-2 are announced but, as in Kafka 4, a request in one of them closes the connection (KAFKA-18659). librdkafka
before 2.8 learns from the announcement which compression a broker supports. Without the announcement, it would send
uncompressed batches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ...protocol.schema import Buffer, Response
from ..api.flush_wait import all_ended
from ..api.handling import Answer, Deferred, Reply, RequestContext, handles
from ..api.transactional_produce import (
    ATTRIBUTES,
    FIRST_VERSION_REGISTERING,
    MANY_BATCHES,
    TRANSACTIONAL,
    ProduceAppend,
    Registration,
    register,
    register_in_steps,
    registered,
    verify_again,
    wrote,
)
from ..log import AT_ONCE_BYTES
from ..scheduling.steps import SLICE, Steps, run_at_once, run_in_slices, run_slice
from ..topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from ..partitions.partition import Partition

FIRST_VERSION_BY_ID: Final = 13
FIRST_VERSION_WITH_ZSTD: Final = 7

PARTITIONS_AT_ONCE: Final = MANY_BATCHES
"""A request for more partitions than this is prepared in slices, and its batches are appended this many at a time."""

_PARTITIONS_PER_STEP: Final = 20

_BETWEEN_LOOKS: Final = 10
"""The number of appends between two checks of whether more files may be opened."""

SMALL_BATCH_BYTES: Final = 8192
"""Uncompressed batches up to this size, with at most a thousand records, are checked when they are appended."""

_WORTH_OF_SMALL_BYTE: Final = 8
"""The cost of a byte in a small batch, relative to a byte in a large one.

A byte of a small batch costs more, because the records may be tiny, and all of them are checked in one step.
"""

_CODEC: Final = 0x07
_ZSTD: Final = 4

_FEW: Final = AT_ONCE_BYTES // (_WORTH_OF_SMALL_BYTE * SMALL_BATCH_BYTES)
"""The largest number of small batches that are always checked in one step."""

# What has to be done before a batch is appended, as bits: TRANSACTIONAL (the partition must be registered with the
# transaction), and these two.
_TO_OPEN: Final = 0x100
_TO_INSPECT: Final = 0x200
assert PARTITIONS_AT_ONCE % _BETWEEN_LOOKS == 0
assert not TRANSACTIONAL & (_TO_OPEN | _TO_INSPECT)


@handles(ProduceRequest, announced_from=0)
def handle(context: RequestContext, request: ProduceRequest) -> Reply:
    if request.acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}. Set it to 0, 1 or -1 (all).")
    if request.transactional_id is not None and context.broker.access_control is not None:
        context.access.require(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id)
    response = ProduceResponse()
    appends: list[ProduceAppend] = []
    many = len(request.topic_data) > PARTITIONS_AT_ONCE  # a topic may have no partitions
    if not many:
        partitions = 0
        for topic in request.topic_data:
            partitions += len(topic.partition_data)
        many = partitions > PARTITIONS_AT_ONCE
    if many:
        return _append_many(context, request, response, appends)
    needs = 0
    for topic in request.topic_data:
        answers = TopicProduceResponse(topic.name, topic.topic_id)
        response.responses.append(answers)
        needs |= _prepare(context, topic, topic.partition_data, answers, appends)
    if not needs and len(appends) <= _FEW:
        return _append(context, request, response, appends)
    transactional = bool(needs & TRANSACTIONAL)
    if needs & _TO_OPEN:
        opening = _open_in_steps(appends, transactional)
        if run_slice(opening) is None:
            return _append_prepared(context, request, response, appends, opening)
    return _append_known(context, request, response, appends, transactional)


async def _append_many(
    context: RequestContext, request: ProduceRequest, response: ProduceResponse, appends: list[ProduceAppend]
) -> Reply:
    """Execute a request for many partitions in slices."""
    await run_in_slices(_counted(context, request))
    transactional = await run_in_slices(_prepare_in_steps(context, request, response, appends))
    broker = context.broker
    for append in await run_in_slices(_inspect_in_steps(appends)):
        await asyncio.sleep(0)
        await append.finish_inspection(broker.threads, broker.replica_manager.decompression_slots)
    if transactional:
        if request.transactional_id is None:
            await run_in_slices(_fail_without_id(appends))
        else:
            registering = register_in_steps(context, request.transactional_id, appends)
            registration = await run_in_slices(registering)
            if registration is not None:
                await registered(context, registration, appends)
    return await _append_in_portions(context, request, response, appends, 0, [])


def _counted(context: RequestContext, request: ProduceRequest) -> Steps[None]:
    """Count the response's rows before any batch is appended. Raises INVALID_REQUEST if there are too many."""
    for topic in request.topic_data:
        context.rows(len(topic.partition_data))
        yield 1


def _inspect_in_steps(appends: list[ProduceAppend]) -> Steps[list[ProduceAppend]]:
    """Check the contents of many batches with `_inspect`, PARTITIONS_AT_ONCE batches at a time."""
    unfinished: list[ProduceAppend] = []
    for start in range(0, len(appends), PARTITIONS_AT_ONCE):
        part = appends[start : start + PARTITIONS_AT_ONCE]
        if any(append.partition is not None for append in part):
            unfinished += _inspect(part)
            yield SLICE
        yield len(part) // 4
    return unfinished


def _fail_without_id(appends: list[ProduceAppend]) -> Steps[None]:
    """Fail all batches, because the request has a transactional batch but no transactional id."""
    error = KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "The request has a transactional batch, but no transactional id. Send the id, too.",
    )
    for append in appends:
        append.fail(error)
        yield 1


async def _append_prepared(
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appends: list[ProduceAppend],
    preparing: Steps[bool],
) -> Reply:
    transactional = await run_in_slices(preparing)
    return _append_known(context, request, response, appends, transactional)


def _append_known(
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appends: list[ProduceAppend],
    transactional: bool,
) -> Reply:
    """Check the contents of the batches for the prepared partitions, then append the batches."""
    unfinished = _inspect(appends)
    if unfinished:
        return _append_inspected(context, request, response, appends, unfinished, transactional)
    return _admit(context, request, response, appends, transactional)


def _inspect(appends: list[ProduceAppend]) -> list[ProduceAppend]:
    """Check the contents of the batches as far as that is cheap; return the batches whose check is unfinished.

    Small batches are left to the log, which checks them at little cost when it appends them.
    """
    unfinished: list[ProduceAppend] = []
    left = AT_ONCE_BYTES
    for append in appends:
        records = append.records
        if records is None or append.partition is None:
            continue
        size = len(records)
        if left > 0 and size <= SMALL_BATCH_BYTES and not records[ATTRIBUTES] & (_CODEC | TRANSACTIONAL):
            left -= _WORTH_OF_SMALL_BYTE * size
            continue
        if left <= 0 or not append.begin_inspection():
            unfinished.append(append)
        left -= max(size, append.work)
    return unfinished


async def _append_inspected(
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appends: list[ProduceAppend],
    unfinished: list[ProduceAppend],
    transactional: bool,
) -> Reply:
    broker = context.broker
    for append in unfinished:
        await asyncio.sleep(0)
        await append.finish_inspection(broker.threads, broker.replica_manager.decompression_slots)
    return _admit(context, request, response, appends, transactional)


def _admit(
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appends: list[ProduceAppend],
    transactional: bool,
) -> Reply:
    """Append the batches if they may be appended now; otherwise return a coroutine that waits and then appends them."""
    if transactional:
        if request.transactional_id is None:
            run_at_once(_fail_without_id(appends))
        elif (registration := register(context, request.transactional_id, appends)) is not None:
            return _append_registered(context, request, response, appends, registration)
    return _append(context, request, response, appends)


def _prepare_in_steps(
    context: RequestContext, request: ProduceRequest, response: ProduceResponse, appends: list[ProduceAppend]
) -> Steps[bool]:
    """Find the partitions and open their logs in steps; return whether a batch is transactional."""
    needs = 0
    for topic in request.topic_data:
        answers = TopicProduceResponse(topic.name, topic.topic_id)
        response.responses.append(answers)
        rows = topic.partition_data
        for start in range(0, len(rows), _PARTITIONS_PER_STEP):
            part = rows[start : start + _PARTITIONS_PER_STEP]
            needs |= _prepare(context, topic, part, answers, appends)
            yield 4 * len(part)
            yield from _open_in_steps(appends[-len(part) :], False)
        yield 1
    return bool(needs & TRANSACTIONAL)


def _open_in_steps(appends: list[ProduceAppend], transactional: bool) -> Steps[bool]:
    """Open the logs that are not open yet; return `transactional` unchanged."""
    for append in appends:
        partition = append.partition
        if partition is not None and not partition.is_open:
            try:
                yield from partition.open()
            except KafkaError as error:
                append.fail(error)
    return transactional


def _prepare(
    context: RequestContext,
    topic: TopicProduceData,
    rows: list[PartitionProduceData],
    answers: TopicProduceResponse,
    appends: list[ProduceAppend],
) -> int:
    """Find partitions of one topic; return, as bit flags, what must be done before their batches are appended."""
    by_id = context.api_version >= FIRST_VERSION_BY_ID
    manager = context.broker.replica_manager
    needs = 0
    if context.broker.access_control is not None and not _may_write(context, topic):
        for data in rows:
            append = ProduceAppend(PartitionProduceResponse(data.index), data.records)
            append.fail(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            answers.partition_responses.append(append.answer)
            appends.append(append)
        return 0
    for data in rows:
        answer = PartitionProduceResponse(data.index)
        answers.partition_responses.append(answer)
        append = ProduceAppend(answer, data.records)
        appends.append(append)
        try:
            if by_id:
                partition = manager.partition_by_id(topic.topic_id, data.index)
            else:
                partition = manager.partition(topic.name, data.index)
            needs |= _check(context, partition, data.records)
            append.partition = partition
        except KafkaError as error:
            append.fail(error)
    return needs


def _may_write(context: RequestContext, asked: TopicProduceData) -> bool:
    """Return whether the client may write to the topic; True for an unknown id, which `_prepare` refuses."""
    name = asked.name
    if context.api_version >= FIRST_VERSION_BY_ID:
        topic = context.broker.metadata.topic_by_id(asked.topic_id)
        if topic is None:
            return True
        name = topic.name
    return context.access.allows(AclOperation.WRITE, AclResourceType.TOPIC, name)


def _check(context: RequestContext, partition: Partition, records: Buffer | None) -> int:
    """Make the checks that the log cannot make. Return what else the batch needs, as bit flags. Raises KafkaError."""
    if partition.topic in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{partition.topic} is an internal topic, which clients cannot produce to.",
        )
    if records is None or len(records) <= ATTRIBUTES:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "The request has no record batch for the partition. Send one or omit the partition.",
        )
    attributes = records[ATTRIBUTES]
    codec = attributes & _CODEC
    if codec == _ZSTD and context.api_version < FIRST_VERSION_WITH_ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {FIRST_VERSION_WITH_ZSTD} or higher."
        )
    needs = attributes & TRANSACTIONAL
    if codec or len(records) > SMALL_BATCH_BYTES:
        needs |= _TO_INSPECT
    if not partition.is_open:
        needs |= _TO_OPEN
    return needs


async def _append_registered(
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appends: list[ProduceAppend],
    registration: Registration,
) -> Reply:
    await registered(context, registration, appends)
    return _append(context, request, response, appends)


# ---- appending batches and sending the response


def _append(
    context: RequestContext, request: ProduceRequest, response: ProduceResponse, appends: list[ProduceAppend]
) -> Reply:
    crowding = context.broker.log_manager.crowding
    if len(appends) <= _BETWEEN_LOOKS and crowding.end is None:  # the fast path for nearly every request
        return _answer(context, request, response, appends, _append_each(context, request, appends))
    waiting: list[ProduceAppend] = []
    for start in range(0, len(appends), _BETWEEN_LOOKS):
        if crowding.end is not None:
            return _append_in_portions(context, request, response, appends, start, waiting)
        waiting += _append_each(context, request, appends[start : start + _BETWEEN_LOOKS])
    return _answer(context, request, response, appends, waiting)


async def _append_in_portions(
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appends: list[ProduceAppend],
    begin: int,
    waiting: list[ProduceAppend],
) -> Answer:
    """Append the batches from index `begin` on, with pauses in which other requests run."""
    crowding = context.broker.log_manager.crowding
    for start in range(begin, len(appends), _BETWEEN_LOOKS):
        portion = appends[start : start + _BETWEEN_LOOKS]
        if start == begin or start % PARTITIONS_AT_ONCE == 0:
            await asyncio.sleep(0)
        await crowding.wait_until_over()
        if request.transactional_id is not None:
            verify_again(context, request.transactional_id, portion)
        waiting += _append_each(context, request, portion)
    if len(appends) <= PARTITIONS_AT_ONCE:
        return _answer(context, request, response, appends, waiting)
    if request.acks == 0:
        failed = await run_in_slices(_first_failed(appends))
        return _answer(context, request, response, [] if failed is None else [failed], [])
    if not waiting:
        return response
    flushes = (append.flush for append in waiting if append.flush is not None)
    return Deferred(all_ended(flushes), lambda _: _conclude_in_steps(response, waiting))


def _append_each(context: RequestContext, request: ProduceRequest, appends: list[ProduceAppend]) -> list[ProduceAppend]:
    """Append the batches; return those whose flush must be awaited."""
    acks = request.acks
    registering = context.api_version >= FIRST_VERSION_REGISTERING and request.transactional_id is not None
    waiting: list[ProduceAppend] = []
    for append in appends:
        partition = append.partition
        if partition is None:
            continue
        records = append.records
        assert records is not None
        try:
            log = partition.log
            result = log.append(
                records,
                inspection=append.inspection,
                leader_epoch=partition.leader_epoch,
                transaction_version=2 if registering else 0,
            )
            if append.header is not None and not result.duplicate:
                wrote(context, request.transactional_id, append)
            answer = append.answer
            answer.base_offset = result.base_offset
            answer.log_append_time_ms = result.log_append_time
            answer.log_start_offset = result.log_start_offset
            if acks == -1:
                append.flush = log.flushed(result.last_offset + 1)
                if append.flush is not None:
                    waiting.append(append)
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                wrote(context, request.transactional_id, append)
            append.fail(error)
        except Exception:  # a bug, but the batch may still be in the log
            wrote(context, request.transactional_id, append)
            raise
        append.records = append.inspection = None  # the frame's buffer is reused
    return waiting


def _answer(
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    appends: list[ProduceAppend],
    waiting: list[ProduceAppend],
) -> Answer:
    if request.acks == 0:
        if any(append.answer.error_code for append in appends):
            # There is no response. As in Kafka, only the closed connection reports the error to the producer.
            failed = next(append.answer for append in appends if append.answer.error_code)
            context.connection.close(f"Produce with acks=0 failed: {failed.error_message}")
        return None
    if not waiting:
        return response
    return Deferred(_all_flushed(waiting), lambda _: _conclude(response, waiting))


def _first_failed(appends: list[ProduceAppend]) -> Steps[ProduceAppend | None]:
    """Return the first batch that was not appended, or None if all were."""
    for done, append in enumerate(appends, 1):
        if append.answer.error_code:
            return append
        if done % PARTITIONS_AT_ONCE == 0:
            yield PARTITIONS_AT_ONCE // 10
    return None


def _conclude_in_steps(response: ProduceResponse, waiting: list[ProduceAppend]) -> Steps[Response | None]:
    for start in range(0, len(waiting), PARTITIONS_AT_ONCE):
        part = waiting[start : start + PARTITIONS_AT_ONCE]
        _conclude(response, part)
        yield len(part)
    return response


def _all_flushed(waiting: list[ProduceAppend]) -> asyncio.Future[None]:
    """Return a future that is done when all flushes have ended, successfully or not."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(waiting)

    def flushed(_: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        if not left and not done.done():
            done.set_result(None)

    for append in waiting:
        assert append.flush is not None
        append.flush.add_done_callback(flushed)
    return done


def _conclude(response: ProduceResponse, waiting: list[ProduceAppend]) -> ProduceResponse:
    for append in waiting:
        assert append.flush is not None
        try:
            append.flush.result()
        except KafkaError as error:
            append.fail(error)
        except asyncio.CancelledError:
            append.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The broker is stopping."))
    return response
