"""Contains the base of the transaction coordinator: its parts, and the only code path that changes an id's state.

The base looks up transactional ids and appends their transitions. When a transition is durable, the base starts what
follows: markers, timers and events. The rules are in `decisions.py`. The requests are handled in `registration.py`,
`fencing.py` and `coordinator.py`. Everything runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog

from ....protocol.errors import ErrorCode, KafkaError
from ...config import BrokerConfig
from ...observability.metrics import KNOWN_IDS, PARKED, Metrics
from ...scheduling.patient_timers import PatientTimers
from ...system.ports import Clock
from ..backoff import RetryBackoff
from ..state_log import StateLog
from .entry import TransactionEntry
from .events import Caller, TransactionEvents
from .gateway import PartitionGateway
from .maintenance import TransactionMaintenance
from .marker_writer import TransactionMarkerWriter
from .metadata import Owner, TransactionMetadata
from .producer_ids import ProducerIdManager
from .state import TopicPartition, TransactionState, TransactionVersion
from .state_manager import GroupAssignmentReplay, TransactionStateManager
from .timers import TransactionTimers
from .waiting import PendingWaits

if TYPE_CHECKING:
    from ...metadata import Metadata


class TransactionCore:
    """The base class of the transaction coordinator.

    The class appends transitions. When a transition is durable, the class starts what follows: markers, timers and
    events.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        state_log: StateLog,
        gateway: PartitionGateway,
        metadata: Metadata,
        clock: Clock,
        timers: PatientTimers,
        logger: Any = None,
        metrics: Metrics | None = None,
        group_aware: bool = True,
    ) -> None:
        """Create the parts of the coordinator.

        `timers` delay a scan for timed-out transactions until the requests that have already arrived in the sockets are
        executed.

        `group_aware` says whether sessions (partitions that stay registered between transactions) are enabled. If they
        are not, sessions found on disk are ended.
        """
        self.logger = logger if logger is not None else structlog.get_logger(__name__)
        self.config = config
        self.metadata = metadata
        self.clock = clock
        self.gateway = gateway
        metrics = metrics or Metrics()
        self.events = TransactionEvents(self.logger, metrics)
        self.state = TransactionStateManager(state_log, clock, self.transaction_version, self.logger)
        self.markers = TransactionMarkerWriter(self.state, gateway, clock, self.logger, self._backoff)
        self.waits = PendingWaits(
            config.transaction_pending_wait_max_ms, config.transaction_pending_wait_max_requests, self.events
        )
        self.producer_ids = ProducerIdManager(metadata.allocate_producer_ids)
        self.maintenance = TransactionMaintenance(
            self.state,
            self.markers,
            gateway,
            self.transition,
            self.transaction_version,
            expiration_ms=config.transactional_id_expiration_ms,
            backoff=self._backoff,
            logger=self.logger,
            events=self.events,
            sessions=group_aware,
        )
        self.timers = TransactionTimers(
            clock,
            timers,
            self.logger,
            abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiry_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
            clock_settle_ms=config.expiry_clock_settle_ms,
            abort_timed_out=self.maintenance.abort_timed_out,
            remove_expired=self.maintenance.remove_expired,
        )
        metrics.watch(PARKED, lambda: self.waits.parked)
        metrics.watch(KNOWN_IDS, lambda: self.state.count)

    def transaction_version(self) -> TransactionVersion:
        """Return the finalized level of the feature transaction.version."""
        return TransactionVersion(min(self.metadata.features.get("transaction.version", 0), TransactionVersion.TV_2))

    async def start(self) -> None:
        """Load all state, recover the transactions (`TransactionMaintenance.recover`), and start the timers."""
        await self.state.load()
        self.metadata.skip_producer_ids(self.maintenance.highest_producer_id())
        await self.maintenance.recover()
        self.timers.start()
        for entry in self.state.entries():
            if entry.metadata.state is TransactionState.ONGOING:
                self.timers.expect(entry.metadata.deadline_ms)

    async def stop(self) -> None:
        """Stop the timers and the writing of markers. Everything that a response has reported is durable already."""
        self.waits.close()
        await self.timers.stop()
        await self.maintenance.stop()
        await self.markers.stop()
        self.state.stop()
        await self.producer_ids.close()

    # --- hooks and queries -----------------------------------------------------------------------------------------

    @property
    def on_transactional_id_expired(self) -> list[Callable[[str], None]]:
        """The callbacks that are called with each expired transactional id, after its tombstone has been appended."""
        return self.maintenance.on_transactional_id_expired

    @property
    def on_group_assignment(self) -> GroupAssignmentReplay | None:
        """The callback for group assignments found while `__transaction_state` is replayed. Set it before `start`."""
        return self.state.on_group_assignment

    @on_group_assignment.setter
    def on_group_assignment(self, replay: GroupAssignmentReplay | None) -> None:
        self.state.on_group_assignment = replay

    def transactional_id_of(self, producer_id: int) -> str | None:
        """Return the transactional id whose current or previous producer id this is, or None if none is known."""
        return self.state.transactional_id_of(producer_id)

    def owner_of(self, producer_id: int) -> Owner | None:
        """Return the state of the transactional id whose current or previous producer id this is, or None.

        Raise KafkaError COORDINATOR_LOAD_IN_PROGRESS until the state is loaded. Raise COORDINATOR_NOT_AVAILABLE if no
        known id has the producer id but a state partition is unreadable, because the id may be in that partition.
        """
        self.state.check_loaded()
        transactional_id = self.state.transactional_id_of(producer_id)
        if transactional_id is not None:
            entry = self.known(transactional_id)
            return Owner(entry.metadata, entry.pending)
        if self.state.unreadable:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "A partition of the transaction state is unreadable. See the broker's log, then retry.",
            )
        return None

    def is_repairing(self, producer_id: int, partition: TopicPartition) -> bool:
        """Whether an earlier transaction of the producer must still be ended in the partition."""
        return self.maintenance.is_repairing(producer_id, [partition])

    def check_home(self, key: str) -> None:
        """Raise KafkaError unless the state partition of `key` (a transactional or group id) is loaded and readable."""
        self.state.check_readable(key)

    def wait_deadline(self) -> float:
        """Return the event loop time until which a request that arrives now may wait for an earlier transaction."""
        return self.waits.deadline()

    async def until_settled(self, transactional_id: str, deadline: float, by: Caller) -> None:
        """Wait, on behalf of a client's request, until the transactional id's previous transaction is complete.

        Raise KafkaError CONCURRENT_TRANSACTIONS if it is not complete at `deadline` (event loop time). Raise it
        immediately if too many requests wait already or the broker is stopping.
        """
        await self.waits.until_settled(self.known(transactional_id), deadline, by)

    # --- internals --------------------------------------------------------------------------------------------------

    def _backoff(self) -> RetryBackoff:
        config = self.config
        return RetryBackoff(config.transaction_retry_backoff_ms, config.transaction_retry_backoff_max_ms)

    def known(self, transactional_id: str) -> TransactionEntry:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty. Set transactional.id.")
        entry = self.state.get(transactional_id)
        if entry is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return entry

    def gone(self, metadata: TransactionMetadata) -> frozenset[TopicPartition]:
        """Return the partitions of the transactional id's session that no longer exist."""
        if not metadata.session_partitions:
            return frozenset()
        return self.gateway.deleted_of(metadata.session_partitions)

    def transition(
        self, entry: TransactionEntry, new: TransactionMetadata, reason: str, by: Caller
    ) -> asyncio.Future[None] | None:
        """Append the value `new`. When it is durable, start the markers, timers and events that follow from it.

        They are started even if the caller is cancelled.

        Return None if `new` is current when the call returns, else a shared future that resolves when `new` becomes
        current.
        """
        before = entry.metadata
        if new.state is TransactionState.ONGOING and before.state is not TransactionState.ONGOING:
            entry.written = set()
        entry.closed = entry.given_up_ms = None
        done = self.state.transition(entry, new)
        if done is None:
            self._follow_up(entry, before, reason, by)
        else:
            done.add_done_callback(
                lambda done: self._follow_up(entry, before, reason, by) if done.exception() is None else None
            )
        return done

    async def append(self, entry: TransactionEntry, new: TransactionMetadata, reason: str, by: Caller) -> None:
        done = self.transition(entry, new, reason, by)
        if done is not None:
            await asyncio.shield(done)

    def _follow_up(self, entry: TransactionEntry, before: TransactionMetadata, reason: str, by: Caller) -> None:
        metadata = entry.metadata
        if metadata.state.is_prepare:
            self.events.ended(before, metadata, reason, by)
            self.markers.finish(entry)
        elif metadata.state is TransactionState.ONGOING and before.state is not TransactionState.ONGOING:
            self.events.opened()
            self.timers.expect(metadata.deadline_ms)
