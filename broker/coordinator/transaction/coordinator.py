"""Coordinates transactions: the methods that handlers, the produce path and the group coordinator call.

This file implements InitProducerId, EndTxn, WriteTxnMarkers, DescribeTransactions and ListTransactions.
`registration.py` adds and verifies partitions, and `fencing.py` fences producers.

Lifecycle: `start` replays `__transaction_state`, completes the transactions that are in a PREPARE_* state, and compares
the partitions' logs with the coordinator's state. `stop` leaves unfinished work to the broker's next start. Everything
runs on the event loop's thread.

Every request follows one pattern: decide (a pure function) → append and wait until durable → respond. There is no await
between decision and append, so requests for one transactional id never interleave inside a transition. A request that
arrives during a transition, or while the markers of a transaction are being written, waits (within limits) until the
transition or the transaction is complete, and then decides again.

Invariants:

* The records of a transaction that are in the logs are durable before it is committed, even if their producer did not
  wait for them.
* A decision to commit or abort is durable before any response and before any marker.
* There is one decision per transaction.
* COMPLETE_* follows only when every marker is durable.
* A request with a fenced epoch never succeeds.
* `decide → append` runs to completion even if the request that started it is cancelled.

While EndTxn(commit) waits for records, the transaction accepts no batches. So no record can be added between the check
that all records are durable and the decision, and a producer that keeps writing cannot delay the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Final

from ....protocol.errors import ErrorCode, KafkaError
from ...partitions.markers import Marker
from ...scheduling.slices import in_slices
from ...scheduling.steps import Steps
from . import session
from .core import TransactionCore
from .decisions import ProducerIdentity, Step, decide_end, decide_init
from .entry import Closing, TransactionEntry
from .events import UNKNOWN_CALLER, Caller
from .external_markers import ExternalMarkers
from .fencing import Fencing
from .metadata import TransactionMetadata, Written, new_metadata
from .queries import TransactionFilter
from .registration import PartitionRegistration
from .state import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition, TransactionState, TransactionVersion

_EXAMINED_AT_ONCE: Final = 1000
"""How many partitions are examined before the event loop runs other tasks."""


class TransactionCoordinator(TransactionCore):
    """The coordinator of all transactional ids of this broker.

    `registration` adds partitions to transactions and admits batches. `fencing` fences producers.
    """

    @cached_property
    def registration(self) -> PartitionRegistration:
        """The part that adds partitions to transactions and admits transactional batches."""
        return PartitionRegistration(self)

    @cached_property
    def fencing(self) -> Fencing:
        """The part that fences producers."""
        return Fencing(self)

    async def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
        *,
        cause: Caller = UNKNOWN_CALLER,
        deadline: float | None = None,
    ) -> ProducerIdentity:
        """Handle an InitProducerId request: fence the id's previous producer and return the new producer's identity.

        If `transactional_id` is None, return a new producer id with epoch 0. `expected` is the identity that the
        producer currently holds (KIP-360), or None for a new instance. An ongoing transaction is aborted first.
        The wait for an earlier transaction ends at `deadline` (event loop time) or, without a `deadline`, after
        `transaction.pending.wait.max.ms`.

        Raise KafkaError INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (the
        transactional id is still busy at the deadline), or a coordinator error code.
        """
        if transactional_id is None:
            return ProducerIdentity(await self.producer_ids.next(), 0)
        try:
            return await self._init_producer_id(
                transactional_id, timeout_ms, expected, cause, self.waits.deadline() if deadline is None else deadline
            )
        except KafkaError as error:
            entry = self.state.peek(transactional_id)
            self.events.refused(
                transactional_id,
                error.code,
                cause,
                identity=expected,
                entry=entry,
                reason=str(error),
            )
            raise

    def check_new_id(self, transactional_id: str, remedy: str = "Shorten transactional.id.") -> None:
        """Raise KafkaError INVALID_REQUEST, with this `remedy` in its message, if a new transactional id is too long.

        Call this method only for ids that are not in use: a data directory from Kafka may contain longer ids, which
        stay usable.
        """
        size, most = len(transactional_id.encode()), self.config.transactional_id_max_bytes
        if size > most:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The transactional id has {size} bytes, but a new one may have at most transactional.id.max.bytes ="
                f" {most}. {remedy}",
            )

    async def _init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        cause: Caller,
        deadline: float,
    ) -> ProducerIdentity:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty. Set transactional.id.")
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"The transaction timeout {timeout_ms} ms is not between 1 and transaction.max.timeout.ms "
                f"= {self.config.transaction_max_timeout_ms}. Change the producer's transaction.timeout.ms.",
            )
        new_producer_id: int | None = None
        first: TransactionMetadata | None = None
        recovers = expected is not None
        while True:
            entry = self.state.get(transactional_id)
            now_ms = self.clock.now_ms()
            if entry is None:
                self.check_new_id(transactional_id)
                new_producer_id = new_producer_id if new_producer_id is not None else self.producer_ids.take()
                if new_producer_id is None:
                    await self.producer_ids.refill()
                    continue
                entry = self.state.create(new_metadata(transactional_id, new_producer_id, timeout_ms, now_ms))
                new_producer_id = None
            step = decide_init(
                entry.metadata,
                pending=entry.pending is not None,
                timeout_ms=timeout_ms,
                expected=expected,
                server_version=self.transaction_version(),
                new_producer_id=new_producer_id,
                now_ms=now_ms,
            )
            if isinstance(step, TransactionMetadata):
                first = first or entry.metadata
                await self.append(entry, step, "InitProducerId", cause)
                if step.state is TransactionState.EMPTY:
                    self.events.initialised(first, step, recovers, cause)
                    return ProducerIdentity(step.producer_id, step.producer_epoch)
                if expected is not None:
                    # This request wrote the fencing epoch, which is expected from here on. If another producer bumps
                    # the epoch, this request is refused.
                    expected = ProducerIdentity(step.producer_id, step.producer_epoch)
            elif step is Step.NEEDS_PRODUCER_ID:
                new_producer_id = await self.producer_ids.next()
            else:
                await self.waits.until_settled(entry, deadline, cause)

    def end_txn_now(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        version: TransactionVersion,
        new_producer_id: int | None = None,
        *,
        written: frozenset[TopicPartition] | None = None,
        keeps_session: bool = False,
        closed: Closing | None = None,
        by: Caller = UNKNOWN_CALLER,
    ) -> tuple[ProducerIdentity, asyncio.Future[None] | None] | Step:
        """Handle an EndTxn request, if that is possible without waiting: commit or abort the ongoing transaction.

        `written` are the partitions to which the producer says it has written. If it is None, every registered
        partition gets a marker. With `keeps_session` the written partitions stay registered for the producer's next
        transaction, as part of its session.

        A commit needs durable records, but a producer that sends them with acks=1, or does not wait for the responses,
        may send EndTxn before they are durable. Then the transaction is closed, so that it accepts no further batch,
        and the result is Step.NEEDS_RECORDS. `end_txn` waits until they are durable and then calls this method again.
        It passes as `closed` the value that `TransactionEntry.closed` had when the wait began.

        Return the producer's identity for its next transaction, and a future if the decision is not durable yet. The
        caller must await the future through `asyncio.shield` before it responds. Return a Step if the decision has to
        wait: callers other than `end_txn` then call `end_txn`, which does the waiting. Raise KafkaError like `end_txn`.
        """
        identity = ProducerIdentity(producer_id, producer_epoch)
        entry: TransactionEntry | None = None
        try:
            entry = self.known(transactional_id)
            step = decide_end(
                entry.metadata,
                pending=entry.pending is not None,
                identity=identity,
                commit=commit,
                version=version,
                new_producer_id=new_producer_id,
                now_ms=self.clock.now_ms(),
                written=None if written is None else self._written(entry, written, keeps_session),
            )
        except KafkaError as error:
            self.events.refused(
                transactional_id,
                error.code,
                by,
                identity=identity,
                entry=entry,
                reason=str(error),
            )
            raise
        if isinstance(step, TransactionMetadata):
            is_durable = closed is not None and closed is entry.closed
            if commit and not is_durable and not self._are_records_durable(entry.metadata):
                if entry.closed is None:
                    entry.closed = Closing()
                return Step.NEEDS_RECORDS
            return _next_identity(step), self.transition(entry, step, "EndTxn", by)
        if step is Step.NOTHING:
            return ProducerIdentity(entry.metadata.producer_id, entry.metadata.producer_epoch), None
        return step

    async def end_txn(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        version: TransactionVersion,
        *,
        written: frozenset[TopicPartition] | None = None,
        keeps_session: bool = False,
        by: Caller = UNKNOWN_CALLER,
    ) -> ProducerIdentity:
        """Handle an EndTxn request: commit or abort the ongoing transaction.

        Return the producer's identity for its next transaction when the decision is durable. The markers are written
        later. `version` is TV_2 for request version 5 and above. The other parameters are those of `end_txn_now`.

        Raise KafkaError with a coordinator error code or with one of these codes:

        * INVALID_REQUEST: the transactional id is empty, or a partition in `written` is in neither the transaction nor
          the session. Nothing has changed.
        * INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or INVALID_TXN_STATE.
        * TRANSACTION_ABORTABLE: records may be lost, so only an abort is possible.
        * CONCURRENT_TRANSACTIONS: the transactional id is still busy after `transaction.pending.wait.max.ms`.
        """
        deadline = self.waits.deadline()
        new_producer_id: int | None = None
        closed: Closing | None = None
        while True:
            step = self.end_txn_now(
                transactional_id,
                producer_id,
                producer_epoch,
                commit,
                version,
                new_producer_id,
                written=written,
                keeps_session=keeps_session,
                closed=closed,
                by=by,
            )
            if not isinstance(step, Step):
                identity, durable = step
                if durable is not None:
                    await asyncio.shield(durable)
                return identity
            if step is Step.NEEDS_PRODUCER_ID:
                new_producer_id = await self.producer_ids.next()
            elif step is Step.NEEDS_RECORDS:
                entry = self.known(transactional_id)
                closed = entry.closed
                assert closed is not None, "the commit has just closed the transaction"
                closed.requests += 1
                try:
                    await self._until_durable(entry.metadata)
                except asyncio.CancelledError:  # the connection is closed
                    if entry.closed is closed:
                        entry.given_up_ms = self.clock.now_ms()
                        entry.leave(closed)
                    raise
                except KafkaError as error:
                    if entry.closed is not closed:
                        continue  # the transaction has ended meanwhile, so its current state is the answer
                    entry.leave(closed)
                    identity = ProducerIdentity(producer_id, producer_epoch)
                    self.events.refused(
                        transactional_id, error.code, by, identity=identity, entry=entry, reason=str(error)
                    )
                    raise
            else:
                await self.waits.until_settled(self.known(transactional_id), deadline, by)

    def _are_records_durable(self, metadata: TransactionMetadata) -> bool:
        """Whether the records of the ongoing transaction are known to be durable.

        This is not known if there are too many partitions to examine in one turn of the event loop, or if the log of a
        partition fails.
        """
        partitions = metadata.topic_partitions
        if len(partitions) > _EXAMINED_AT_ONCE:
            return False
        try:
            return not any(self.gateway.unflushed(partition, metadata.producer_id) for partition in partitions)
        except KafkaError:
            return False

    async def _until_durable(self, metadata: TransactionMetadata) -> None:
        """Wait until the records of the ongoing transaction, which is closed, are durable.

        The records of deleted partitions are not needed. Raise KafkaError TRANSACTION_ABORTABLE if records may be lost
        because a disk has failed, and COORDINATOR_NOT_AVAILABLE if a log is closed because the broker is stopping.
        """
        async for partition in in_slices(metadata.topic_partitions, _EXAMINED_AT_ONCE):
            try:
                flush = self.gateway.unflushed(partition, metadata.producer_id)
                if flush is not None:
                    await asyncio.shield(flush)
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or self.gateway.is_deleted(partition):
                    continue
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
                raise KafkaError(
                    ErrorCode.TRANSACTION_ABORTABLE,
                    f"Records of the transaction may be lost. Abort the transaction. {error.message}",
                ) from error

    def _written(
        self, entry: TransactionEntry, named: frozenset[TopicPartition], begins_session: bool
    ) -> Callable[[TransactionMetadata], Written]:
        def written(metadata: TransactionMetadata) -> Written:
            return session.written(
                metadata, named, entry.written, begins_session=begins_session, deleted=self.gateway.deleted_of
            )

        return written

    async def write_external_markers(self, markers: list[Marker], by: Caller) -> list[dict[TopicPartition, ErrorCode]]:
        """Handle a WriteTxnMarkers request: apply an operator's markers.

        Return an error code for each partition of each marker. The rules are in `external_markers.py`.
        """
        return await ExternalMarkers(self, self.fencing, self.gateway, self.logger).write(markers, by)

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Handle a DescribeTransactions request for one transactional id: return its state.

        Raise KafkaError INVALID_REQUEST (the id is empty), TRANSACTIONAL_ID_NOT_FOUND, or a coordinator error code.
        """
        if not transactional_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "The transactional id is empty. Name the transactional id to describe."
            )
        entry = self.state.get(transactional_id)
        if entry is None or entry.metadata.producer_epoch == NO_PRODUCER_EPOCH:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return entry.metadata

    def list(self, wanted: TransactionFilter) -> Steps[list[TransactionMetadata]]:
        """Handle a ListTransactions request: return, in steps, the states of the ids that `wanted` selects.

        Each id is read in its own step, so the states may be from different times. Ids created after the call are left
        out. Raise KafkaError INVALID_REGULAR_EXPRESSION, or a coordinator error code.
        """
        self.state.check_loaded()
        known = (entry.metadata for entry in self.state.snapshot())
        return wanted.select(known, self.clock.now_ms(), self.config.transactional_id_pattern_max_size)


def _next_identity(prepared: TransactionMetadata) -> ProducerIdentity:
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdentity(prepared.next_producer_id, 0)
    return ProducerIdentity(prepared.producer_id, prepared.producer_epoch)
