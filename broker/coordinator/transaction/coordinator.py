"""The transaction coordinator: what handlers, the produce path and the group coordinator call.

Lifecycle: `start` replays `__transaction_state`, carries on with decided transactions and compares logs with state;
`stop` leaves the rest to the next start. All on the event loop's thread.

Every request follows one pattern: decide (pure) → append and wait until durable → tell. Decision and append happen
without an await in between, so requests for one id never interleave inside a transition; a request that meets a
transition or a decided transaction under way waits for it, within bounds, and then decides anew.

Invariants: a decision is durable before anyone is told, and before any marker; one transaction gets one decision;
COMPLETE_* comes after every marker is durable; an epoch that was fenced never succeeds again. `decide → append` runs to
its end even when the request that started it is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import structlog

from ....protocol.errors import ErrorCode, KafkaError
from ...config import BrokerConfig
from ...ports import Clock
from ..state_log import StateLog
from .backoff import RetryBackoff
from .decisions import ProducerIdentity, Step, decide_add, decide_end, decide_init, verify_partition
from .entry import TransactionEntry
from .gateway import PartitionGateway
from .marker_writer import TransactionMarkerWriter
from .metadata import TransactionMetadata, new_metadata
from .producer_ids import ProducerIdManager
from .queries import TransactionFilter
from .state import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition, TransactionState, TransactionVersion
from .state_manager import TransactionStateManager
from .timers import TransactionTimers
from .upkeep import TransactionUpkeep, described
from .waiting import PendingWaits

if TYPE_CHECKING:
    from ...metadata_store import MetadataStore


class TransactionCoordinator:
    """Transactions of this broker's transactional ids."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        state_log: StateLog,
        gateway: PartitionGateway,
        metadata: MetadataStore,
        clock: Clock,
        logger: Any = None,
    ) -> None:
        self._logger = logger if logger is not None else structlog.get_logger(__name__)
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._state = TransactionStateManager(state_log, clock, self.transaction_version, self._logger)
        self._markers = TransactionMarkerWriter(self._state, gateway, clock, self._logger, self._backoff)
        self._waits = PendingWaits(config.transaction_pending_wait_max_ms, config.transaction_pending_wait_max_requests)
        self._producer_ids = ProducerIdManager(metadata.allocate_producer_ids)
        self.upkeep = TransactionUpkeep(
            self._state,
            self._markers,
            gateway,
            self._transition,
            self.transaction_version,
            expiration_ms=config.transactional_id_expiration_ms,
            backoff=self._backoff,
            logger=self._logger,
        )
        self._timers = TransactionTimers(
            clock,
            self._logger,
            abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiry_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
            abort_timed_out=self.upkeep.abort_timed_out,
            remove_expired=self.upkeep.remove_expired,
        )

    def transaction_version(self) -> TransactionVersion:
        """The finalized level of the feature transaction.version."""
        return TransactionVersion(min(self._metadata.features.get("transaction.version", 0), TransactionVersion.TV_2))

    async def start(self) -> None:
        """Load all state, finish what is decided, abort what nobody can finish; then the timers run."""
        await self._state.load()
        await self.upkeep.recover()
        self._timers.start()
        for entry in self._state.entries():
            if entry.metadata.state is TransactionState.ONGOING:
                self._timers.expect(entry.metadata.deadline_ms)

    async def stop(self) -> None:
        """Stop timers and marker writing; nothing that was told to anyone is lost."""
        self._waits.close()
        await self._timers.stop()
        await self.upkeep.stop()
        await self._markers.stop()
        self._state.stop()
        await self._producer_ids.close()

    # --- requests ---------------------------------------------------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """InitProducerId: the identity that the producer has from now on; whoever had the id before is fenced.

        `expected` is what the producer believes to be (KIP-360), None for a new instance. An ongoing transaction is
        aborted first. Raises KafkaError INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS (not done within the pending wait) and the coordinator's codes.
        """
        if transactional_id is None:
            return ProducerIdentity(await self._producer_ids.next(), 0)
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction timeout {timeout_ms} ms is not within 1 and transaction.max.timeout.ms "
                f"= {self._config.transaction_max_timeout_ms}",
            )
        deadline = self._waits.deadline()
        new_producer_id: int | None = None
        while True:
            entry = self._state.get(transactional_id)
            now_ms = self._clock.now_ms()
            if entry is None:
                new_producer_id = new_producer_id if new_producer_id is not None else self._producer_ids.take()
                if new_producer_id is None:
                    await self._producer_ids.refill()
                    continue
                entry = self._state.create(new_metadata(transactional_id, new_producer_id, timeout_ms, now_ms))
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
                before = entry.metadata
                await self._append(entry, step)
                if step.state is TransactionState.EMPTY:
                    self._log_init(before, step, recovers=expected is not None)
                    return ProducerIdentity(step.producer_id, step.producer_epoch)
                if expected is not None:
                    # The fencing epoch is this very request's; another producer's would not be equal.
                    expected = ProducerIdentity(step.producer_id, step.producer_epoch)
            elif step is Step.NEEDS_PRODUCER_ID:
                new_producer_id = await self._producer_ids.next()
            else:
                await self._waits.until_change(entry, deadline)

    def add_partitions_now(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        version: TransactionVersion = TransactionVersion.TV_2,
    ) -> asyncio.Future[None] | Step | None:
        """Register partitions as far as it goes without waiting for anyone.

        None: registered and durable. A future: durable when it resolves (shield it). Step.WAIT: use `add_partitions`,
        or `add_partitions_implicitly` for TV_2. Raises KafkaError as these do.
        """
        entry = self._known(transactional_id)
        if self.upkeep.is_repairing(producer_id, partitions):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "an earlier transaction has yet to be ended there")
        try:
            step = decide_add(
                entry.metadata,
                pending=entry.pending is not None,
                identity=ProducerIdentity(producer_id, producer_epoch),
                partitions=partitions,
                version=version,
                now_ms=self._clock.now_ms(),
            )
        except KafkaError as error:
            if version.supports_epoch_bump:
                raise KafkaError(_for_produce(error.code)) from None
            raise
        if isinstance(step, TransactionMetadata):
            return self._transition(entry, step)
        return None if step is Step.NOTHING else step

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        version: TransactionVersion = TransactionVersion.TV_0,
    ) -> None:
        """AddPartitionsToTxn, AddOffsetsToTxn: the partitions are durably part of the ongoing transaction.

        The caller has checked that they exist. Raises KafkaError INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING,
        PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (past the pending wait) and the coordinator's codes.
        """
        deadline = self._waits.deadline()
        while True:
            result = self.add_partitions_now(transactional_id, producer_id, producer_epoch, partitions, version)
            if result is None:
                return
            if isinstance(result, Step):
                await self._waits.until_change(self._known(transactional_id), deadline)
            else:
                await asyncio.shield(result)
                return

    async def add_partitions_implicitly(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Produce v12+ and TxnOffsetCommit v5+ (KIP-890): like `add_partitions`, with a code for each partition.

        NONE means durable: the batch may be appended. PRODUCER_FENCED is told as INVALID_PRODUCER_EPOCH, as Kafka does.
        """
        code = ErrorCode.NONE
        try:
            await self.add_partitions(
                transactional_id, producer_id, producer_epoch, partitions, version=TransactionVersion.TV_2
            )
        except KafkaError as error:
            code = error.code
        return dict.fromkeys(partitions, code)

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
        """AddPartitionsToTxn with VerifyOnly: changes nothing."""
        identity = ProducerIdentity(producer_id, producer_epoch)
        try:
            entry = self._known(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return {partition: _verify(entry, identity, partition) for partition in partitions}

    def end_txn_now(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        version: TransactionVersion,
        new_producer_id: int | None = None,
    ) -> tuple[ProducerIdentity, asyncio.Future[None] | None] | Step:
        """Decide the ongoing transaction as far as it goes without waiting for anyone.

        The producer's next identity, and a future when the decision has yet to become durable (shield it; tell nobody
        before). A Step: use `end_txn`. Raises KafkaError as that does.
        """
        entry = self._known(transactional_id)
        step = decide_end(
            entry.metadata,
            pending=entry.pending is not None,
            identity=ProducerIdentity(producer_id, producer_epoch),
            commit=commit,
            version=version,
            new_producer_id=new_producer_id,
            now_ms=self._clock.now_ms(),
        )
        if isinstance(step, TransactionMetadata):
            return _next_identity(step), self._transition(entry, step)
        if step is Step.NOTHING:
            return ProducerIdentity(entry.metadata.producer_id, entry.metadata.producer_epoch), None
        return step

    async def end_txn(
        self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool, version: TransactionVersion
    ) -> ProducerIdentity:
        """EndTxn: decide the ongoing transaction; returns when the decision is durable, the markers follow.

        `version` is TV_2 for request version 5 and above. The identity returned is the producer's for its next
        transaction. Raises KafkaError INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE,
        CONCURRENT_TRANSACTIONS (past the pending wait) and the coordinator's codes.
        """
        deadline = self._waits.deadline()
        new_producer_id: int | None = None
        while True:
            step = self.end_txn_now(transactional_id, producer_id, producer_epoch, commit, version, new_producer_id)
            if not isinstance(step, Step):
                identity, durable = step
                if durable is not None:
                    await asyncio.shield(durable)
                return identity
            if step is Step.NEEDS_PRODUCER_ID:
                new_producer_id = await self._producer_ids.next()
            else:
                await self._waits.until_change(self._known(transactional_id), deadline)

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """DescribeTransactions of one id.

        Raises KafkaError INVALID_REQUEST (empty), TRANSACTIONAL_ID_NOT_FOUND and the coordinator's codes.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        entry = self._state.get(transactional_id)
        if entry is None or entry.metadata.producer_epoch == NO_PRODUCER_EPOCH:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return entry.metadata

    def list(self, wanted: TransactionFilter) -> list[TransactionMetadata]:
        """ListTransactions; raises KafkaError INVALID_REGULAR_EXPRESSION and the coordinator's codes."""
        self._state.check_loaded()
        return wanted.select((entry.metadata for entry in self._state.entries()), self._clock.now_ms())

    # --- inside -----------------------------------------------------------------------------------------------------

    def _backoff(self) -> RetryBackoff:
        config = self._config
        return RetryBackoff(config.transaction_retry_backoff_ms, config.transaction_retry_backoff_max_ms)

    def _known(self, transactional_id: str) -> TransactionEntry:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        entry = self._state.get(transactional_id)
        if entry is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return entry

    def _transition(self, entry: TransactionEntry, new: TransactionMetadata) -> asyncio.Future[None] | None:
        """Append `new`; when it is current, what follows from it happens, whoever waits or doesn't."""
        before = entry.metadata
        done = self._state.transition(entry, new)
        if done is None:
            self._follow_up(entry, before)
        else:
            done.add_done_callback(lambda done: self._follow_up(entry, before) if done.exception() is None else None)
        return done

    async def _append(self, entry: TransactionEntry, new: TransactionMetadata) -> None:
        done = self._transition(entry, new)
        if done is not None:
            await asyncio.shield(done)

    def _follow_up(self, entry: TransactionEntry, before: TransactionMetadata) -> None:
        metadata = entry.metadata
        if metadata.state.is_prepare:
            if metadata.state is TransactionState.PREPARE_ABORT:
                self._logger.info("transaction_aborted", epoch_before=before.producer_epoch, **described(metadata))
            self._markers.finish(entry)
        elif metadata.state is TransactionState.ONGOING and before.state is not TransactionState.ONGOING:
            self._timers.expect(metadata.deadline_ms)

    def _log_init(self, before: TransactionMetadata, after: TransactionMetadata, recovers: bool) -> None:
        if before.producer_epoch == NO_PRODUCER_EPOCH or before.producer_epoch == after.producer_epoch:
            event = "producer_initialised"
        else:
            event = "producer_epoch_bumped" if recovers else "producer_fenced"
        self._logger.info(
            event,
            reason="InitProducerId",
            transactional_id=after.transactional_id,
            producer_id_before=before.producer_id,
            producer_id_after=after.producer_id,
            epoch_before=before.producer_epoch,
            epoch_after=after.producer_epoch,
        )


def _verify(entry: TransactionEntry, identity: ProducerIdentity, partition: TopicPartition) -> ErrorCode:
    """As `verify_partition`; a decision that is appended and not yet on disk counts, for it will be carried out."""
    code = verify_partition(entry.metadata, identity, partition)
    if code is ErrorCode.NONE and entry.pending is not None and entry.pending.state.is_prepare:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _next_identity(prepared: TransactionMetadata) -> ProducerIdentity:
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdentity(prepared.next_producer_id, 0)
    return ProducerIdentity(prepared.producer_id, prepared.producer_epoch)


def _for_produce(code: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
