"""What happens to transactions without a request: finishing and repairing at start, timeouts, expiry.

Owns when these are right; the transitions themselves are the coordinator's, the markers the marker writer's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ....protocol.errors import KafkaError
from .entry import TransactionEntry
from .gateway import PartitionGateway
from .marker_writer import TransactionMarkerWriter
from .metadata import TransactionMetadata, prepare_fence
from .recovery import repairs
from .state import TransactionState, TransactionVersion
from .state_manager import TransactionStateManager


class TransactionUpkeep:
    """The coordinator's own doings; times in ms since the epoch."""

    def __init__(
        self,
        state: TransactionStateManager,
        markers: TransactionMarkerWriter,
        gateway: PartitionGateway,
        transition: Callable[[TransactionEntry, TransactionMetadata], asyncio.Future[None] | None],
        transaction_version: Callable[[], TransactionVersion],
        *,
        expiration_ms: int,
        logger: Any,
    ) -> None:
        """`transition` appends a value and does what follows when it is durable; it raises KafkaError."""
        self._state = state
        self._markers = markers
        self._gateway = gateway
        self._transition = transition
        self._transaction_version = transaction_version
        self._expiration_ms = expiration_ms
        self._logger = logger

    async def recover(self) -> None:
        """After the replay: carry out what is decided, and end open transactions that nobody can finish."""
        for entry in self._state.entries():
            if entry.metadata.state.is_prepare:
                self._logger.info("finishing_decided_transaction", **described(entry.metadata))
                self._markers.finish(entry)
        await self._repair_logs()

    def abort_timed_out(self, now_ms: int) -> int | None:
        """Abort every transaction past its timeout, under a fenced epoch; returns the next deadline.

        One with a transition under way is looked at again at the next interval.
        """
        next_deadline: int | None = None
        for entry in list(self._state.entries()):
            metadata = entry.metadata
            if metadata.state is not TransactionState.ONGOING:
                continue
            if not metadata.has_timed_out(now_ms):
                next_deadline = min(metadata.deadline_ms, next_deadline or metadata.deadline_ms)
            elif entry.pending is None:
                self._fence(entry, "transaction timeout", now_ms)
        return next_deadline

    def remove_expired(self, now_ms: int) -> None:
        """Forget ids that have been idle for transactional.id.expiration.ms; never one with an open transaction."""
        for metadata in self._state.remove_expired(now_ms, self._expiration_ms):
            self._logger.info("transactional_id_expired", **described(metadata))

    def _fence(self, entry: TransactionEntry, reason: str, now_ms: int) -> None:
        before = entry.metadata
        fenced = prepare_fence(before, self._transaction_version(), now_ms)
        try:
            self._transition(entry, fenced)
        except KafkaError:  # logged by the state manager; the next interval tries again
            return
        self._logger.warning(
            "producer_fenced",
            reason=reason,
            transactional_id=before.transactional_id,
            producer_id=before.producer_id,
            epoch_before=before.producer_epoch,
            epoch_after=fenced.producer_epoch,
            timeout_ms=before.timeout_ms,
            partitions=len(before.topic_partitions),
        )

    async def _repair_logs(self) -> None:
        if self._state.unreadable:
            self._logger.error("open_transactions_not_compared", reason="some transaction state is unreadable")
            return
        known = [entry.metadata for entry in self._state.entries()]
        for repair in repairs(known, self._gateway.open_transactions()):
            left = await self._markers.write(repair.marker)
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


def described(metadata: TransactionMetadata) -> dict[str, object]:
    """What a log line says of a transaction."""
    return {
        "transactional_id": metadata.transactional_id,
        "producer_id": metadata.producer_id,
        "producer_epoch": metadata.producer_epoch,
        "state": metadata.state.label,
        "partitions": len(metadata.topic_partitions),
    }
