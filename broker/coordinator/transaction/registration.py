"""Which partitions are part of a transaction: adding them, verifying them, and letting batches in.

Owns AddPartitionsToTxn, AddOffsetsToTxn, the implicit registration of KIP-890, the opening of a transaction by a
session, and the record of what was written. Whoever appends a batch of a transaction asks `admit_now` (or `verify`)
and appends in the same step, without an await in between, and then says so by `wrote`: so a decision, which is a step
of its own, knows every partition that has a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ....protocol.errors import ErrorCode, KafkaError
from . import session as sessions
from .core import TransactionCore
from .decisions import ProducerIdentity, Step, decide_add, verify_partition
from .entry import TransactionEntry
from .events import UNKNOWN_CALLER, Caller
from .metadata import TransactionMetadata
from .state import TopicPartition, TransactionState, TransactionVersion


class PartitionRegistration(TransactionCore):
    """Adds partitions to transactions, and admits batches of transactions."""

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
        """Register partitions as far as it goes without waiting for anyone.

        `session` keeps them registered beyond this transaction; `writes` says that whoever registers will append to
        them without coming back (another broker). None: registered and durable. A future: durable when it resolves
        (shield it). Step.WAIT: use `add_partitions`, or `until_settled` and ask again. Raises KafkaError as these do.
        """
        identity = ProducerIdentity(producer_id, producer_epoch)
        entry: TransactionEntry | None = None
        try:
            entry = self._known(transactional_id)
            metadata = entry.metadata
            opening = metadata.state is not TransactionState.ONGOING
            repairing = self.upkeep.is_repairing
            if repairing(producer_id, partitions) or (opening and repairing(producer_id, metadata.session_partitions)):
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "an earlier transaction has yet to be ended there")
            step = decide_add(
                metadata,
                pending=entry.pending is not None,
                identity=identity,
                partitions=partitions,
                version=version,
                now_ms=self._clock.now_ms(),
                session=session,
                gone=self._gone(metadata) if opening else frozenset(),
            )
        except KafkaError as error:
            if version.supports_epoch_bump:
                error = KafkaError(_for_produce(error.code), str(error))
            self.events.refused(
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
            done = self._transition(entry, step, by=by, reason="")
        elif step is not Step.NOTHING:
            return step
        if writes and entry.written is not None:
            entry.written.update(partitions)
        return done

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
        """AddPartitionsToTxn, AddOffsetsToTxn: the partitions are durably part of the ongoing transaction.

        The caller has checked that they exist. `deadline` takes the place of the pending wait's. Raises KafkaError
        INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED (INVALID_PRODUCER_EPOCH for TV_2, as Kafka does),
        CONCURRENT_TRANSACTIONS (past the pending wait) and the coordinator's codes.
        """
        if deadline is None:
            deadline = self._waits.deadline()
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
                await self._waits.until_settled(self._known(transactional_id), deadline, by)
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
        """Whether a batch for this partition may be appended, in this very step: None says so.

        `registers`: the request registers the partition by coming (Produce v12+, TxnOffsetCommit v5+); others have it
        verified, and open the transaction if the partition is in the session. Otherwise wait for the future (shield
        it), or on Step.WAIT `until_settled`, and ask again. Raises KafkaError with the code to tell.
        """
        code = self.verify(transactional_id, producer_id, producer_epoch, partition)
        if code is ErrorCode.NONE:
            return None
        if registers:
            return self.add_partitions_now(transactional_id, producer_id, producer_epoch, [partition], by=by)
        if self.opens(transactional_id, producer_id, producer_epoch, partition):
            return self.add_partitions_now(
                transactional_id, producer_id, producer_epoch, [partition], TransactionVersion.TV_0, by=by
            )
        self.refuse(transactional_id, producer_id, producer_epoch, code, by)
        raise KafkaError(code)

    def opens(self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition) -> bool:
        """Whether an older client's batch opens the next transaction, now or when the one before is complete.

        Where it does the caller registers it; a batch that is a late one of an earlier transaction is not for this:
        its sequence tells (see `session.py`).
        """
        entry = self._state.peek(transactional_id)
        if entry is None:
            return False
        pending = entry.pending
        decided = pending is not None and pending.state.is_prepare  # it says already what the session is afterwards
        current = pending if pending is not None and decided else entry.metadata
        return sessions.opens(current, producer_id, producer_epoch, partition)

    def wrote(self, transactional_id: str, partition: TopicPartition) -> None:
        """A batch of the ongoing transaction was appended, in the same step in which it was admitted."""
        entry = self._state.peek(transactional_id)
        if entry is not None and entry.written is not None:
            entry.written.add(partition)

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> ErrorCode:
        """Whether an older client's batch belongs to the ongoing transaction (KIP-890 part 1); see verify_partition."""
        try:
            entry = self._known(transactional_id)
        except KafkaError as error:
            return error.code
        if self.upkeep.is_repairing(producer_id, [partition]):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return _for_produce(_verify(entry, ProducerIdentity(producer_id, producer_epoch), partition))

    def verify_all(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn with VerifyOnly, by a leader that appends next: what passes counts as written."""
        identity = ProducerIdentity(producer_id, producer_epoch)
        try:
            entry = self._known(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        codes = {partition: _verify(entry, identity, partition) for partition in partitions}
        if entry.written is not None:
            entry.written.update(partition for partition, code in codes.items() if code is ErrorCode.NONE)
        return codes

    def refuse(self, transactional_id: str, producer_id: int, producer_epoch: int, code: ErrorCode, by: Caller) -> None:
        """Tell people that a batch was refused by `verify`."""
        entry = self._state.peek(transactional_id)
        identity = ProducerIdentity(producer_id, producer_epoch)
        self.events.refused(transactional_id, code, by, identity=identity, entry=entry)


def _verify(entry: TransactionEntry, identity: ProducerIdentity, partition: TopicPartition) -> ErrorCode:
    """As `verify_partition`; a decision that is appended and not yet on disk counts, for it will be carried out."""
    code = verify_partition(entry.metadata, identity, partition)
    if code is ErrorCode.NONE and entry.pending is not None and entry.pending.state.is_prepare:
        return ErrorCode.INVALID_TXN_STATE
    if code is not ErrorCode.NONE and sessions.came_late(entry.metadata, *identity):
        return ErrorCode.INVALID_TXN_STATE
    return code


def _for_produce(code: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
