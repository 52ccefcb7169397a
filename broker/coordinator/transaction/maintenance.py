"""Does the background work on transactions: timeouts and expiry.

When the broker starts, this module also completes and repairs transactions. It decides when the work is due. The
coordinator makes the transitions, and the marker writer writes the markers.

A repair writes the marker of a transaction that is open in a log, but neither open nor being ended in the coordinator's
state. A repair that fails when the broker starts, for example because the disk is full, is retried until it succeeds,
so that no last stable offset is stuck until the next start. If a state partition cannot be read, it is read again
later, unless its records are malformed. The repairs that depend on its state are decided then.

Only transactions that were open before clients could write are repaired. Until a marker is written, its producer cannot
start a transaction in the marker's partition (`is_repairing`), because the marker would end the new transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

from ....protocol.errors import KafkaError
from ...scheduling.steps import Steps
from ..backoff import RetryBackoff
from .entry import TransactionEntry
from .events import Caller, Cause, TransactionEvents, described
from .gateway import PartitionGateway
from .marker_writer import TransactionMarkerWriter
from .metadata import TransactionMetadata, prepare_fence, raised_epoch, without_session
from .recovery import Repair, repairs
from .state import TopicPartition, TransactionState, TransactionVersion
from .state_manager import TransactionStateManager

TIMEOUT: Final = Cause.own("transaction timeout")
SESSIONS_OFF: Final = Cause.own("inter.broker.protocol.version below 4.1 disables transaction sessions")

HIGHER_EPOCH: Final = Cause.own("a log has a higher epoch of the producer")

UNREACHABLE_PRODUCER_ID: Final = 1 << 62
"""This producer id and all higher ones are never assigned, because ids are allocated in blocks upwards from 0."""

EXPIRED_AT_ONCE: Final = 500
"""The maximum number of expired transactional ids that are removed without an await."""

_IDS_PER_UNIT: Final = 4
_UNITS_PER_ABORT: Final = 50
"""The cost of aborting one small transaction in a timeout scan, in units of work (`steps.py`)."""

_ABORTED_PER_UNIT: Final = 10
"""How many partitions add one unit of work to the cost of aborting their transaction."""

LOOK_AGAIN_MS: Final = 100
"""The delay in ms before a timed-out transaction with a pending transition or a waiting commit is checked again.

A slow disk needs about this long for a flush.
"""

COMMIT_WAIT_MS: Final = 60_000
"""How many ms after its timeout a transaction is aborted even if EndTxn(commit) still waits for its records.

Clients do not wait this long for a response.
"""

COMMIT_REPEAT_MS: Final = 5_000
"""If the connection of a waiting commit is closed, its transaction is not aborted for this many ms.

The client may connect again and repeat the commit.
"""


class TransactionMaintenance:
    """The background work of the coordinator: recovery, timeouts, expiry. Times are in ms since the epoch."""

    def __init__(
        self,
        state: TransactionStateManager,
        markers: TransactionMarkerWriter,
        gateway: PartitionGateway,
        transition: Callable[[TransactionEntry, TransactionMetadata, str, Caller], asyncio.Future[None] | None],
        transaction_version: Callable[[], TransactionVersion],
        *,
        expiration_ms: int,
        backoff: Callable[[], RetryBackoff],
        logger: Any,
        events: TransactionEvents,
        sessions: bool,
    ) -> None:
        """Create the background work, without starting it.

        `transition` appends a value and, when the value is durable, starts what follows from it. It may raise
        KafkaError.

        `backoff` returns a new series of pauses between attempts. If `sessions` is False, the sessions (partitions that
        stay registered between transactions) that are found on disk are ended.
        """
        self._state = state
        self._markers = markers
        self._gateway = gateway
        self._transition = transition
        self._transaction_version = transaction_version
        self._expiration_ms = expiration_ms
        self._backoff = backoff
        self._logger = logger
        self._events = events
        self._sessions = sessions
        self.on_transactional_id_expired: list[Callable[[str], None]] = []
        self._repairs: dict[tuple[int, TopicPartition], Repair] = {}
        self._failures: dict[tuple[int, TopicPartition], dict[TopicPartition, str]] = {}
        self._undecided: set[tuple[int, TopicPartition]] = set()
        """The open transactions of unknown producer ids. They are not repaired while a state partition is unreadable.
        """
        self._retrying: asyncio.Task[None] | None = None
        self._abort_backoff: RetryBackoff | None = None

    async def recover(self) -> None:
        """Complete the transactions in a PREPARE_* state, and repair the logs.

        A transaction that is open in a log, but neither open nor being ended in the replayed state, gets a marker.
        Every repair is tried once before this method returns. Failed repairs are retried in the background.
        """
        self._take_up(self._state.entries())
        self._undecided = {(open_txn.producer_id, open_txn.partition) for open_txn in self._gateway.open_transactions()}
        self._decide_repairs()
        self._raise_epochs(self._state.entries())
        await self._write_repairs()
        if self._repairs or self._state.read_later:
            self._retrying = asyncio.get_running_loop().create_task(self._retry(), name="repair-open-transactions")

    async def stop(self) -> None:
        """Stop the retries. The broker's next start makes the remaining repairs."""
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.gather(self._retrying, return_exceptions=True)

    def is_repairing(self, producer_id: int, partitions: Iterable[TopicPartition]) -> bool:
        """Whether an earlier transaction of the producer must still be ended in any of the partitions."""
        return bool(self._repairs) and any((producer_id, partition) in self._repairs for partition in partitions)

    def abort_timed_out(self, now_ms: int) -> Steps[int | None]:
        """Abort every transaction past its timeout and fence its producer. Return the next deadline, or None.

        The deadline is in ms since the epoch. It is None if no ongoing transaction is left.

        A timed-out transaction with a pending transition is not aborted, but checked again after LOOK_AGAIN_MS. The
        same applies while its EndTxn(commit) waits for records or may soon be repeated, but at most until
        COMMIT_WAIT_MS after its timeout. An abort that could not be written is retried after a growing pause
        (`transaction.retry.backoff.ms`).
        """
        next_deadline: int | None = None
        unwritten = False
        for count, entry in enumerate(self._state.snapshot(), 1):
            if count % _IDS_PER_UNIT == 0:
                yield 1
            metadata = entry.metadata
            if metadata.state is not TransactionState.ONGOING:
                continue
            if not metadata.has_timed_out(now_ms):
                next_deadline = min(metadata.deadline_ms, next_deadline or metadata.deadline_ms)
            elif entry.pending is not None or _is_commit_expected(entry, now_ms):
                next_deadline = min(now_ms + LOOK_AGAIN_MS, next_deadline or now_ms + LOOK_AGAIN_MS)
            else:
                try:
                    unwritten |= not self._fence(entry, TIMEOUT, now_ms)
                except Exception:  # a bug, but it must not keep other transactions open
                    self._logger.exception("timeout_abort_failed", **described(metadata))
                yield _UNITS_PER_ABORT + len(metadata.topic_partitions) // _ABORTED_PER_UNIT
        if not unwritten:
            self._abort_backoff = None
            return next_deadline
        self._abort_backoff = self._abort_backoff or self._backoff()
        again_ms = now_ms + round(self._abort_backoff.next_s() * 1000)
        return again_ms if next_deadline is None else min(again_ms, next_deadline)

    def remove_expired(self, now_ms: int) -> bool:
        """Remove transactional ids that have been idle for transactional.id.expiration.ms and have no open transaction.

        In order not to block the event loop, a call checks a portion of the ids, and removes at most EXPIRED_AT_ONCE.
        Return whether more expired ids may be left.
        """
        removed, unfinished = self._state.remove_expired(now_ms, self._expiration_ms, EXPIRED_AT_ONCE)
        for metadata in removed:
            self._events.expired(metadata, now_ms - metadata.last_update_timestamp_ms)
            for forgotten in self.on_transactional_id_expired:
                forgotten(metadata.transactional_id)
        return unfinished

    def _fence(self, entry: TransactionEntry, cause: Cause, now_ms: int) -> bool:
        """Abort an ongoing transaction and fence its producer. Return whether the abort was appended."""
        before = entry.metadata
        fenced = prepare_fence(before, self._transaction_version(), now_ms)
        try:
            self._transition(entry, fenced, cause.request, cause)
        except KafkaError:  # logged by the state manager
            return False
        self._events.fenced(before, fenced, cause.request, cause)
        return True

    def highest_producer_id(self) -> int:
        """Return the highest producer id in any log or state, or -1 if none is known. New ids must be higher.

        Ids too high to be allocated are ignored, because clients can write any producer id into a batch.
        """
        of_states = (
            max(metadata.producer_id, metadata.previous_producer_id, metadata.next_producer_id)
            for metadata in (entry.metadata for entry in self._state.entries())
        )
        of_logs = (producer_id for producer_id, _ in self._gateway.producer_epochs())
        known_ids = chain(of_states, of_logs)
        return max((producer_id for producer_id in known_ids if producer_id < UNREACHABLE_PRODUCER_ID), default=-1)

    def _raise_epochs(self, entries: Iterable[TransactionEntry]) -> None:
        """Raise the epoch of transactional ids whose producer has a higher epoch in a partition's log.

        This happens only with copied logs, or when a crash lost state (durability=os). The log would refuse a batch or
        a marker with a lower epoch. The current producer is fenced and its ongoing transaction aborted.
        """
        by_producer_id = {entry.metadata.producer_id: entry for entry in entries}
        highest: dict[int, int] = {}
        for producer_id, epoch in self._gateway.producer_epochs():
            entry = by_producer_id.get(producer_id)
            if entry is not None and epoch > highest.get(producer_id, entry.metadata.producer_epoch):
                highest[producer_id] = epoch
        for producer_id, epoch in highest.items():
            entry = by_producer_id[producer_id]
            if entry.metadata.state.is_prepare:
                self._markers.afterwards(entry, partial(self._raise_epoch, entry, producer_id, epoch))
            elif entry.pending is None:
                self._raise_epoch(entry, producer_id, epoch)

    def _raise_epoch(self, entry: TransactionEntry, producer_id: int, epoch: int) -> None:
        before = entry.metadata
        if before.producer_id != producer_id or before.producer_epoch >= epoch:
            return
        entry.metadata = raised_epoch(before, epoch)
        self._logger.warning(
            "producer_epoch_raised",
            reason="a log has a higher epoch of the producer than the coordinator",
            **described(before, entry.metadata),
        )
        if before.state is TransactionState.ONGOING:
            self._fence(entry, HIGHER_EPOCH, before.last_update_timestamp_ms)

    def _take_up(self, entries: Iterable[TransactionEntry]) -> None:
        """Complete replayed transactions in a PREPARE_* state, and end replayed sessions if sessions are disabled."""
        for entry in list(entries):
            # a transaction that `_end_session` aborts is finished by its own transition
            decided = entry.metadata.state.is_prepare
            if entry.metadata.session_partitions and not self._sessions:
                self._end_session(entry)
            if decided and entry.pending is None:
                self._logger.info("finishing_decided_transaction", **described(entry.metadata))
                self._markers.finish(entry)

    def _end_session(self, entry: TransactionEntry) -> None:
        """End the transactional id's session in memory. The record on disk stays until the next record replaces it."""
        before = entry.metadata
        entry.metadata = replace(before, **without_session(before))
        if before.state is TransactionState.ONGOING:
            self._fence(entry, SESSIONS_OFF, before.last_update_timestamp_ms)
        self._events.session_ended(before, entry.metadata, SESSIONS_OFF.request, SESSIONS_OFF)

    def _decide_repairs(self) -> None:
        """Decide how to repair the transactions that were open at the broker's start, if their state is readable."""
        open_transactions = [
            transaction
            for transaction in self._gateway.open_transactions()
            if (transaction.producer_id, transaction.partition) in self._undecided
        ]
        known = [entry.metadata for entry in self._state.entries()]
        wanted = {repair.key: repair for repair in repairs(known, open_transactions)}
        self._undecided = set()
        for key, repair in wanted.items():
            if repair.transactional_id is None and self._state.unreadable:
                self._undecided.add(key)  # the producer's state may be in an unreadable partition
            else:
                self._repairs[key] = repair
        if self._undecided:
            self._logger.error(
                "open_transactions_not_compared",
                reason="a partition of the transaction state is unreadable",
                transactions=len(self._undecided),
            )

    async def _write_repairs(self) -> None:
        for key, repair in list(self._repairs.items()):
            before = self._failures.get(key, {})
            left = await self._markers.write(repair.marker, before)
            if left:
                self._failures[key] = left
            else:
                del self._repairs[key]
                self._failures.pop(key, None)
            if left != before or not left:
                self._logger.warning(
                    "open_transaction_ended_at_start",
                    transactional_id=repair.transactional_id,
                    producer_id=repair.marker.producer_id,
                    producer_epoch=repair.marker.producer_epoch,
                    partition=repair.marker.partitions[0],
                    decision="commit" if repair.marker.commit else "abort",
                    reason=repair.reason,
                    written=not left,
                )

    async def _retry(self) -> None:
        backoff = self._backoff()
        failure = ""
        while self._repairs or self._state.read_later:
            await backoff.pause()
            try:
                await self._read_again()
                await self._write_repairs()
            except Exception as error:
                if failure != (failure := f"{type(error).__name__}: {error}"):
                    self._logger.error("repair_failed", exc_info=error)
        self._logger.info("open_transactions_repaired", not_compared=len(self._undecided))

    async def _read_again(self) -> None:
        for partition in list(self._state.read_later):
            if await self._state.load_partition(partition):
                # There was no await since the load, so the partition's ids have not been served yet, and none of them
                # can have begun a transaction.
                loaded = [entry for entry in self._state.entries() if entry.partition == partition]
                self._take_up(loaded)
                self._decide_repairs()
                self._raise_epochs(loaded)


def _is_commit_expected(entry: TransactionEntry, now_ms: int) -> bool:
    """Whether EndTxn(commit) has arrived and waits for records, or its connection was closed only recently."""
    if now_ms > entry.metadata.deadline_ms + COMMIT_WAIT_MS:
        return False
    given_up_ms = entry.given_up_ms
    return entry.closed is not None or (given_up_ms is not None and now_ms <= given_up_ms + COMMIT_REPEAT_MS)
