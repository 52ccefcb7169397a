"""Decide which batches of a Produce request may be appended in a transaction, and which operation must complete first.

A transactional batch is appended only if the transaction coordinator confirms, in the same turn of the event loop, that
the batch's partition belongs to the producer's ongoing transaction. An open transaction of the producer in the log does
not prove that. The coordinator may already have committed or aborted the transaction, but not yet written its marker.

Produce v12+ adds the partition to the transaction (KIP-890 part 2). For older versions, the coordinator verifies that
the partition was added (part 1). In a session, whose partitions stay registered between transactions, a batch opens the
next transaction, unless it is a late batch of the previous one. If the epoch does not change with every transaction, a
late batch is recognised by its sequence, which is not the next one in the log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from ...protocol.records import BatchHeader, CorruptBatch, read_batch_header
from ...protocol.schema import Buffer
from ..log import AppendOrigin, Inspection, InvalidRecords
from ..scheduling.steps import Steps, run_at_once, run_in_slices
from ..system.ports import Threads
from .handling import RequestContext

if TYPE_CHECKING:
    from ..partitions.partition import Partition

FIRST_VERSION_REGISTERING: Final = 12

ATTRIBUTES: Final = 22  # the position of the low byte of a batch's attributes
TRANSACTIONAL: Final = 0x10

MANY_BATCHES: Final = 100
"""If a request has more batches than this, they are registered and appended in slices."""

_BATCHES_PER_STEP: Final = 20

_UNITS_PER_BATCH: Final = 5
"""The cost of reading a batch's header and looking up its partition in the transaction, in units of work."""

TopicPartition = tuple[str, int]


class ProduceAppend:
    """One partition's batch in a Produce request, and the state of its append.

    If `exempt` is true, the log decides alone whether the batch may be appended, without the transaction coordinator.
    """

    __slots__ = ("answer", "exempt", "flush", "header", "inspection", "partition", "records")

    def __init__(self, answer: PartitionProduceResponse, records: Buffer | None) -> None:
        self.answer = answer
        self.records = records
        self.partition: Partition | None = None
        self.header: BatchHeader | None = None
        self.inspection: Inspection | None = None
        self.flush: asyncio.Future[None] | None = None
        self.exempt = False

    def fail(self, error: KafkaError) -> None:
        """Set the error in the partition's response; the batch is then not appended."""
        answer = self.answer
        answer.error_code, answer.error_message = int(error.code), error.message
        if isinstance(error, InvalidRecords):
            answer.record_errors = [BatchIndexAndErrorMessage(*record) for record in error.record_errors]
        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
        self.partition = None

    def begin_inspection(self) -> bool:
        """Begin to check the contents of the batch. Return False if `finish_inspection` must check the rest."""
        partition, records = self.partition, self.records
        if partition is None or records is None:
            return True
        try:
            self.inspection = partition.log.inspection_of(records)
            return self.inspection.begin()
        except KafkaError as error:
            self.fail(error)
            return True

    @property
    def work(self) -> int:
        """The decompression cost of `begin_inspection`: the number of decompressed bytes that usually cost as much."""
        return 0 if self.inspection is None else self.inspection.work

    async def finish_inspection(self, threads: Threads, slots: asyncio.Semaphore) -> None:
        """Check the rest of the batch. Afterwards the batch is valid, or it has failed."""
        try:
            if self.inspection is not None:
                await self.inspection.finish(threads, slots)
            elif not self.begin_inspection():
                assert self.inspection is not None
                await self.inspection.finish(threads, slots)
        except KafkaError as error:
            self.fail(error)

    def is_transactional(self) -> bool:
        """Whether the batch is transactional and the partition's log is usable. If so, `header` is set.

        If the batch is transactional, but the log is not usable, the batch fails.
        """
        partition, records = self.partition, self.records
        if partition is None or records is None or not records[ATTRIBUTES] & TRANSACTIONAL:
            return False
        try:
            self.header = read_batch_header(records)
            failure = partition.log.failure  # a partition that cannot be written must not join a transaction
        except CorruptBatch:
            return False  # the log reports the corrupt batch
        except KafkaError as error:
            failure = error
        if failure is not None:
            self.fail(failure)
        return failure is None

    def has_room(self) -> bool:
        """Return whether the disk has room for the batch; if not, the batch fails.

        A batch without room must not begin a transaction: the transaction would have no records, but use up space.
        """
        assert self.partition is not None
        assert self.records is not None
        try:
            self.partition.log.check_room(len(self.records))
        except KafkaError as error:
            self.fail(error)
            return False
        return True


class Registration:
    """The operation that must complete before batches of a transaction may be appended.

    `flush` makes the registration of the batches' partitions durable. If `flush` is None, the producer's previous
    transaction must end first.
    """

    __slots__ = ("appends", "flush", "transactional_id")

    def __init__(self, transactional_id: str, appends: list[ProduceAppend], flush: asyncio.Future[None] | None) -> None:
        self.transactional_id = transactional_id
        self.appends = appends
        self.flush = flush


def register(context: RequestContext, transactional_id: str, appends: list[ProduceAppend]) -> Registration | None:
    """Fail each batch whose partition is not in the producer's ongoing transaction and may not join it now.

    Return the operation that must complete first, or None if the remaining batches may be appended at once.
    """
    unregistered = _unregistered(context, transactional_id, appends)
    return run_at_once(_join(context, transactional_id, unregistered)) if unregistered else None


def register_in_steps(
    context: RequestContext, transactional_id: str, appends: list[ProduceAppend]
) -> Steps[Registration | None]:
    """Register the partitions of many batches like `register`, in steps.

    The transaction may end between two steps, so `verify_again` must be called before a batch is appended.
    """
    unregistered: list[ProduceAppend] = []
    for start in range(0, len(appends), _BATCHES_PER_STEP):
        part = appends[start : start + _BATCHES_PER_STEP]
        unregistered += _unregistered(context, transactional_id, part)
        yield _UNITS_PER_BATCH * len(part)
    return (yield from _join(context, transactional_id, unregistered)) if unregistered else None


def _join(
    context: RequestContext, transactional_id: str, unregistered: list[ProduceAppend]
) -> Steps[Registration | None]:
    """Add the partitions of these batches to the first batch's transaction. Fail the batches of other producers."""
    first = unregistered[0].header
    assert first is not None
    joining: list[ProduceAppend] = []
    for done, append in enumerate(unregistered, 1):
        header = append.header
        assert header is not None
        if (header.producer_id, header.producer_epoch) == (first.producer_id, first.producer_epoch):
            joining.append(append)
        else:
            append.fail(
                KafkaError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    "The request has batches of two producers. Send them in separate requests.",
                )
            )
        if done % _BATCHES_PER_STEP == 0:
            yield _BATCHES_PER_STEP
    partitions = [(p.topic, p.index) for append in joining if (p := append.partition) is not None]
    registers = context.api_version >= FIRST_VERSION_REGISTERING
    try:
        step = context.broker.transaction_coordinator.registration.join_now(
            transactional_id, first.producer_id, first.producer_epoch, partitions, registers=registers, by=context
        )
    except KafkaError as error:
        fenced = error.code is ErrorCode.PRODUCER_FENCED
        failure = KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) if fenced else error
        for done, append in enumerate(joining, 1):
            append.fail(failure)
            if done % _BATCHES_PER_STEP == 0:
                yield _BATCHES_PER_STEP
        return None
    if step is None:
        return None
    flush = step if isinstance(step, asyncio.Future) else None
    return Registration(transactional_id, joining, flush)


def _unregistered(context: RequestContext, transactional_id: str, appends: list[ProduceAppend]) -> list[ProduceAppend]:
    """Return the transactional batches whose partitions are not in the transaction yet, but may join it.

    Fail the batches whose partitions may not join it, except those that become `exempt`.
    """
    unregistered: list[ProduceAppend] = []
    for append in appends:
        append.exempt = False
        if append.is_transactional():
            code = _verify(context, transactional_id, append)
            if code is ErrorCode.NONE or not _comes_to_register(context, transactional_id, append, code):
                continue
            if append.has_room():
                unregistered.append(append)
    return unregistered


async def registered(context: RequestContext, registration: Registration, appends: list[ProduceAppend]) -> None:
    """Wait for the registration and check that it still holds. Afterwards the remaining batches may be appended.

    If `appends` has more than `MANY_BATCHES` batches, the caller must check them with `verify_again` just before it
    appends them.

    After a wait for the previous transaction, all batches are checked again from the beginning, because the session may
    have ended meanwhile. In that case, a batch that would have opened the session's next transaction must be refused.
    """
    coordinator = context.broker.transaction_coordinator
    transactional_id = registration.transactional_id
    deadline = coordinator.wait_deadline()
    left: Registration | None = registration
    while left is not None:
        try:
            if left.flush is not None:
                await asyncio.shield(left.flush)
                break
            await coordinator.until_settled(transactional_id, deadline, context)
        except KafkaError as error:
            for append in left.appends:
                append.fail(KafkaError(error.code, error.message))
            break
        if len(appends) > MANY_BATCHES:
            left = await run_in_slices(register_in_steps(context, transactional_id, appends))
        else:
            left = register(context, transactional_id, appends)
    if len(appends) <= MANY_BATCHES:
        verify_again(context, transactional_id, appends)


def verify_again(context: RequestContext, transactional_id: str, appends: list[ProduceAppend]) -> None:
    """Fail each batch whose partition no longer belongs to the transaction.

    Other requests have run since the registration: the transaction may have timed out, or its producer may have been
    fenced. A batch after the transaction's marker would begin a transaction that never ends.
    """
    for append in appends:
        if append.partition is None or append.header is None or append.exempt:
            continue
        code = _verify(context, transactional_id, append)
        if code is not ErrorCode.NONE:
            _tell(context, transactional_id, append, code)
            append.fail(KafkaError(code))


def wrote(context: RequestContext, transactional_id: str | None, append: ProduceAppend) -> None:
    """Tell the coordinator that the batch is in the log, or may be in it because the disk failed during the append.

    Must be called in the same turn of the event loop in which the batch was admitted.
    """
    if append.header is not None and transactional_id is not None:
        partition = append.partition
        assert partition is not None
        context.broker.transaction_coordinator.registration.wrote(transactional_id, (partition.topic, partition.index))


def _verify(context: RequestContext, transactional_id: str, append: ProduceAppend) -> ErrorCode:
    partition, header = append.partition, append.header
    assert partition is not None
    assert header is not None
    code = context.broker.transaction_coordinator.registration.verify(
        transactional_id, header.producer_id, header.producer_epoch, (partition.topic, partition.index)
    )
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and context.api_version < FIRST_VERSION_REGISTERING:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # older clients retry a batch after this code, and Kafka sends it too
    return code


def _comes_to_register(context: RequestContext, transactional_id: str, append: ProduceAppend, code: ErrorCode) -> bool:
    """Return whether a batch may add its partition to the transaction. If not, make the batch `exempt`, or fail it.

    `code` is the reason why the partition is not in the ongoing transaction.
    """
    if context.api_version >= FIRST_VERSION_REGISTERING:
        return True
    partition, header = append.partition, append.header
    assert partition is not None
    assert header is not None
    broker = context.broker
    identity = (header.producer_id, header.producer_epoch)
    if broker.transaction_coordinator.registration.opens(
        transactional_id, *identity, (partition.topic, partition.index)
    ):
        producers = partition.log.producers
        if producers.find_duplicate(header) is not None:
            append.exempt = True
            return False
        try:
            producers.check(header, None, AppendOrigin.CLIENT, transaction_version=0)
        except KafkaError as error:
            _tell(context, transactional_id, append, error.code)
            append.fail(error)
            return False
        return True
    if not broker.config.transaction_partition_verification_enable:
        append.exempt = True
        return False
    _tell(context, transactional_id, append, code)
    append.fail(KafkaError(code))
    return False


def _tell(context: RequestContext, transactional_id: str, append: ProduceAppend, code: ErrorCode) -> None:
    header = append.header
    assert header is not None
    context.broker.transaction_coordinator.registration.refuse(
        transactional_id, header.producer_id, header.producer_epoch, code, context
    )
