"""Registers the partitions of transactions: adds them, verifies them, and admits batches.

Handles AddPartitionsToTxn, AddOffsetsToTxn, the implicit registration of KIP-890, and transactions opened by a batch of
a session. Keeps the set of partitions that have a batch of the transaction. To append a transactional batch, the
produce path calls `admit_now` (or `verify`), appends, and calls `wrote`, without an await in between. The transaction
cannot be ended in between, so all partitions that have a batch are known when it ends. While EndTxn(commit) waits for
the records of the transaction, no batch is admitted: as in Kafka, a batch that arrives after EndTxn is too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from itertools import islice
from typing import Final, NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from . import session as sessions
from .core import TransactionCore
from .decisions import ProducerIdentity, Step, decide_add, verify_partition
from .entry import TransactionEntry
from .events import UNKNOWN_CALLER, Caller
from .metadata import TransactionMetadata
from .state import NO_PARTITIONS, TopicPartition, TransactionState, TransactionVersion

_NOWHERE: Final[TopicPartition] = ("", -1)
"""A partition that no transaction contains."""


class Verified(NamedTuple):
    """The result of a verification.

    `code` is the error code for the partitions in `registered`, and `other` is the error code for all other partitions.
    """

    registered: frozenset[TopicPartition]
    code: ErrorCode
    other: ErrorCode

    def code_of(self, partition: TopicPartition) -> ErrorCode:
        """Return the error code for one of the verified partitions."""
        return self.code if partition in self.registered else self.other


class PartitionRegistration:
    """The part of the transaction coordinator that adds partitions to transactions and admits transactional batches."""

    def __init__(self, core: TransactionCore) -> None:
        self._core = core

    def add_partitions_now(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        version: TransactionVersion = TransactionVersion.TV_2,
        *,
        session: bool = False,
        writes: bool = False,
        by: Caller = UNKNOWN_CALLER,
    ) -> asyncio.Future[None] | Step | None:
        """Register partitions with a transaction, if that is possible without waiting.

        With `session` they stay registered after this transaction. `writes` is true if the caller (another broker) will
        append to the partitions without calling `wrote`.

        Return None if the partitions are registered durably, else a future that resolves when they are. Callers must
        await it through `asyncio.shield`. Return Step.WAIT if an earlier transaction or transition is incomplete. The
        caller then uses `add_partitions`, or awaits `until_settled` and calls again. Raise KafkaError as these two
        methods do.
        """
        identity = ProducerIdentity(producer_id, producer_epoch)
        entry: TransactionEntry | None = None
        try:
            entry = self._core.known(transactional_id)
            metadata = entry.metadata
            opening = metadata.state is not TransactionState.ONGOING
            repairing = self._core.maintenance.is_repairing
            if repairing(producer_id, partitions) or (opening and repairing(producer_id, metadata.session_partitions)):
                raise KafkaError(
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                    f"An earlier transaction of producer {producer_id} is still being ended in these partitions."
                    " Retry.",
                )
            step = decide_add(
                metadata,
                pending=entry.pending is not None,
                identity=identity,
                partitions=partitions,
                version=version,
                now_ms=self._core.clock.now_ms(),
                session=session,
                gone=self._core.gone(metadata) if opening else frozenset(),
            )
            if entry.closed is not None and step is not Step.WAIT:
                raise KafkaError(
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                    f"The transaction of {transactional_id!r} accepts no more partitions, because EndTxn is about to"
                    " commit it. Retry.",
                )
            if isinstance(step, TransactionMetadata):
                self._check_size(metadata, step)
        except KafkaError as error:
            if version.supports_epoch_bump:
                error = KafkaError(_for_produce(error.code), error.message)
            self._core.events.refused(
                transactional_id,
                error.code,
                by,
                identity=identity,
                entry=entry,
                reason=str(error),
            )
            raise error from None
        done: asyncio.Future[None] | None = None
        if isinstance(step, TransactionMetadata):
            done = self._core.transition(entry, step, by=by, reason="")
        elif step is not Step.NOTHING:
            return step
        if writes and entry.written is not None:
            entry.written.update(partitions)
        return done

    def _check_size(self, before: TransactionMetadata, after: TransactionMetadata) -> None:
        """Raise KafkaError POLICY_VIOLATION if the transaction grows beyond `transaction.max.partitions`.

        Each record of a transaction contains all of its partitions, so the limit bounds the work for one request.
        Producers abort the transaction when they receive this error. A transaction or session that began under a higher
        limit keeps its partitions.
        """
        size, most = len(after.topic_partitions), self._core.config.transaction_max_partitions
        if size > most and size > max(len(before.topic_partitions), len(before.session_partitions)):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"The transaction would have {size} partitions, more than transaction.max.partitions = {most}. Write"
                " to fewer partitions per transaction, or raise the limit.",
            )

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        version: TransactionVersion = TransactionVersion.TV_0,
        *,
        session: bool = False,
        writes: bool = False,
        by: Caller = UNKNOWN_CALLER,
        deadline: float | None = None,
    ) -> None:
        """Handle an AddPartitionsToTxn or AddOffsetsToTxn request: register partitions durably with the transaction.

        The caller must have checked that the partitions exist. `deadline` (event loop time) limits the wait for an
        earlier transaction; by default `transaction.pending.wait.max.ms` does.

        Raise KafkaError with a coordinator error code or with one of these codes:

        * INVALID_REQUEST or INVALID_PRODUCER_ID_MAPPING.
        * PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH for TV_2, as in Kafka.
        * POLICY_VIOLATION: more partitions than `transaction.max.partitions`. Nothing has changed.
        * UNKNOWN_SERVER_ERROR: the record of the transaction exceeds `max.message.bytes`. Nothing has changed.
        * CONCURRENT_TRANSACTIONS: the transactional id is still busy at the deadline, a commit waits for the records of
          the transaction, or an earlier transaction must still be ended in one of the partitions.
        """
        if deadline is None:
            deadline = self._core.waits.deadline()
        while True:
            result = self.add_partitions_now(
                transactional_id,
                producer_id,
                producer_epoch,
                partitions,
                version,
                session=session,
                writes=writes,
                by=by,
            )
            if isinstance(result, Step):
                await self._core.waits.until_settled(self._core.known(transactional_id), deadline, by)
                continue
            if result is not None:
                await asyncio.shield(result)
            return

    def admit_now(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        registers: bool,
        by: Caller = UNKNOWN_CALLER,
    ) -> asyncio.Future[None] | Step | None:
        """Return None if a batch for this partition may be appended now, before the next await.

        `registers` is true if the request registers the partition implicitly (Produce v12+, TxnOffsetCommit v5+). For
        an older request, the partition must be in the ongoing transaction or in the session, which is the set of
        partitions that stay registered between transactions. If no transaction is ongoing, a batch for a partition of
        the session opens the next one.

        If the result is a future, the caller awaits it through `asyncio.shield` and calls again. If it is Step.WAIT,
        the caller awaits `until_settled` and calls again. Raise KafkaError with the code for the response if the batch
        is refused.
        """
        if self.verify(transactional_id, producer_id, producer_epoch, partition) is ErrorCode.NONE:
            return None
        return self.join_now(transactional_id, producer_id, producer_epoch, [partition], registers=registers, by=by)

    def join_now(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        registers: bool,
        by: Caller = UNKNOWN_CALLER,
    ) -> asyncio.Future[None] | Step | None:
        """Add partitions to the transaction, because batches for them have arrived.

        `registers` has the same meaning as in `admit_now`. The partitions of an older request must be registered or
        belong to the session. This is checked again here, because the session may have ended since the request was
        examined, and batches of an aborted transaction must not begin a new one. Return and raise the same as
        `add_partitions_now`; raise KafkaError also if the partitions of an older request are refused.
        """
        version = TransactionVersion.TV_2
        if not registers:
            version = TransactionVersion.TV_0
            code = self._check_session(transactional_id, producer_id, producer_epoch, partitions)
            if code is not ErrorCode.NONE:
                self.refuse(transactional_id, producer_id, producer_epoch, code, by)
                raise KafkaError(code)
        return self.add_partitions_now(transactional_id, producer_id, producer_epoch, partitions, version, by=by)

    def opens(self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition) -> bool:
        """Whether an older client's batch opens the next transaction, now or when the previous one is complete.

        If so, the caller checks the batch's sequence number, in order to refuse a late batch of an earlier transaction
        (`session.py` has the rules), and then registers the partition.
        """
        entry = self._core.state.peek(transactional_id)
        return entry is not None and sessions.opens(_decided(entry), producer_id, producer_epoch, partition)

    def _check_session(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> ErrorCode:
        """Return NONE if each partition is in the ongoing transaction or in the session, else an error code."""
        first = next(iter(partitions))
        code = self.verify(transactional_id, producer_id, producer_epoch, first)
        entry = self._core.state.peek(transactional_id)
        if entry is None:
            return code
        if code is ErrorCode.NONE:
            known = entry.metadata.topic_partitions
        elif self.opens(transactional_id, producer_id, producer_epoch, first):
            known = _decided(entry).session_partitions
        else:
            return code
        return ErrorCode.NONE if known.issuperset(partitions) else ErrorCode.TRANSACTION_ABORTABLE

    def wrote(self, transactional_id: str, partition: TopicPartition) -> None:
        """Record that a batch of the ongoing transaction was appended to the partition.

        No await may run between the batch's admission and this call.

        With `transaction.partition.verification.enable=false`, a batch may be appended without admission while a
        transaction is closed (`TransactionEntry.closed`). This call then lets the transaction accept batches
        again, so that an EndTxn that waits for the records also waits for this batch.
        """
        entry = self._core.state.peek(transactional_id)
        if entry is not None:
            entry.closed = None
            if entry.written is not None:
                entry.written.add(partition)

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> ErrorCode:
        """Return NONE if a batch for this partition belongs to the ongoing transaction (KIP-890 part 1).

        Otherwise return the error code of `_verify`, with INVALID_PRODUCER_EPOCH in place of PRODUCER_FENCED. Return
        CONCURRENT_TRANSACTIONS while an earlier transaction of the producer has yet to be ended in the partition. If
        the transactional id is unknown or its state cannot be read, return the code of that error.
        """
        try:
            entry = self._core.known(transactional_id)
        except KafkaError as error:
            return error.code
        if self._core.maintenance.is_repairing(producer_id, [partition]):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return _for_produce(_verify(entry, ProducerIdentity(producer_id, producer_epoch), partition))

    def verify_all(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> Verified:
        """Handle an AddPartitionsToTxn request with VerifyOnly: verify all partitions at one point in time.

        The partitions are not verified in slices, because between two turns of the event loop a transaction may end,
        and the next transaction may begin with other partitions. The caller is a partition leader that appends next, so
        the partitions that pass the verification count as written.
        """
        identity = ProducerIdentity(producer_id, producer_epoch)
        try:
            entry = self._core.known(transactional_id)
        except KafkaError as error:
            return Verified(NO_PARTITIONS, error.code, error.code)
        registered = entry.metadata.topic_partitions.intersection(partitions)
        codes = [_verify(entry, identity, partition) for partition in (*islice(registered, 1), _NOWHERE)]
        if registered and codes[0] is ErrorCode.NONE and entry.written is not None:
            entry.written.update(registered)
        return Verified(registered, codes[0], codes[-1])

    def refuse(self, transactional_id: str, producer_id: int, producer_epoch: int, code: ErrorCode, by: Caller) -> None:
        """Log and count a batch that `verify` refused."""
        entry = self._core.state.peek(transactional_id)
        identity = ProducerIdentity(producer_id, producer_epoch)
        self._core.events.refused(transactional_id, code, by, identity=identity, entry=entry)


def _decided(entry: TransactionEntry) -> TransactionMetadata:
    """Return the value whose `session_partitions` apply: a pending value in a PREPARE_* state, else the current one."""
    pending = entry.pending
    return pending if pending is not None and pending.state.is_prepare else entry.metadata


def _verify(entry: TransactionEntry, identity: ProducerIdentity, partition: TopicPartition) -> ErrorCode:
    """Return the code of `verify_partition`, but accept no batch once the end of the transaction is appended.

    Until the end is durable, the code is CONCURRENT_TRANSACTIONS, so that the client sends the batch again. If the
    power failed after a final refusal, the end could be lost, and the transaction could be committed without the batch.
    While a commit waits for the transaction's records, the code is INVALID_TXN_STATE. A late batch of a session that
    has ended gets the same code.
    """
    code = verify_partition(entry.metadata, identity, partition)
    if code is ErrorCode.NONE:
        if entry.pending is not None and entry.pending.state.is_prepare:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if entry.closed is not None:
            return ErrorCode.INVALID_TXN_STATE
        return code
    if sessions.came_late(entry.metadata, *identity):
        return ErrorCode.INVALID_TXN_STATE
    return code


def _for_produce(code: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
