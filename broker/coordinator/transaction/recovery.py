"""At start: compares the open transactions in partition logs with what the coordinator decided.

Owns the comparison, a pure function; the coordinator writes the markers that it asks for. After it every open
transaction in a log is the ongoing one of a known transactional id, or is being ended: no last stable offset stays
stuck.

Under `durability=flush` nothing is ever found here except in logs that lost their coordinator's state on purpose (a
topic copied in, a deleted `__transaction_state`): registration is durable before data, and COMPLETE_* after markers.
Under `durability=os` a power failure may take back the tail of any file, and this is what makes sense of the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...markers import Marker
from .gateway import OpenTransaction
from .metadata import TransactionMetadata
from .state import MAX_PRODUCER_EPOCH, TopicPartition, TransactionState


@dataclass(frozen=True, slots=True)
class Repair:
    """A marker to write for one open transaction, and why."""

    marker: Marker
    transactional_id: str | None
    reason: str

    @property
    def key(self) -> tuple[int, TopicPartition]:
        """Producer id and partition: there is at most one open transaction of each."""
        return self.marker.producer_id, self.marker.partitions[0]


def repairs(known: Iterable[TransactionMetadata], found: Iterable[OpenTransaction]) -> list[Repair]:
    """The markers that open transactions need, given all transactional ids as replayed.

    None for those that are ongoing, or decided and about to be finished by the normal way. One without a transactional
    id is for a producer that nobody knows: worth nothing unless `known` is really all.
    """
    by_producer_id: dict[int, TransactionMetadata] = {}
    for metadata in known:
        by_producer_id[metadata.producer_id] = metadata
        by_producer_id.setdefault(metadata.previous_producer_id, metadata)
    wanted = []
    for open_transaction in found:
        metadata_or_none = by_producer_id.get(open_transaction.producer_id)
        repair = _repair(metadata_or_none, open_transaction)
        if repair is not None:
            wanted.append(repair)
    return wanted


def _repair(metadata: TransactionMetadata | None, found: OpenTransaction) -> Repair | None:
    if metadata is None:
        return _end(None, found, commit=False, epoch=found.producer_epoch, reason="unknown producer id")
    state, current = metadata.state, metadata.producer_epoch
    if metadata.producer_id != found.producer_id:
        # A producer id that was rotated away: its last transaction was decided before the new id took over, whose first
        # epoch stays until the next decision.
        last = current == 0 and found.producer_epoch == MAX_PRODUCER_EPOCH - 1
        if last and state.is_complete and metadata.client_transaction_version.supports_epoch_bump:
            return _end(metadata, found, state.is_commit, found.producer_epoch, "decided, marker missing")
        return _end(metadata, found, commit=False, epoch=found.producer_epoch, reason="replaced producer id")
    if state is TransactionState.ONGOING:
        if found.producer_epoch == current and found.partition in metadata.topic_partitions:
            return None
    elif state.is_prepare:
        if found.partition in metadata.topic_partitions:
            return None
    elif state.is_complete and _was_decided(metadata, found):
        return _end(metadata, found, state.is_commit, current, "decided, marker missing")
    older = found.producer_epoch < current
    reason = "older epoch" if older else "not registered with the coordinator"
    return _end(metadata, found, commit=False, epoch=max(current, found.producer_epoch), reason=reason)


def _was_decided(metadata: TransactionMetadata, found: OpenTransaction) -> bool:
    """The completed transaction is the one that is still open in this log, not a later one that nobody registered."""
    if metadata.client_transaction_version.supports_epoch_bump:
        return found.producer_epoch == metadata.producer_epoch - 1
    return (
        found.producer_epoch == metadata.producer_epoch and found.last_timestamp_ms <= metadata.last_update_timestamp_ms
    )


def _end(metadata: TransactionMetadata | None, found: OpenTransaction, commit: bool, epoch: int, reason: str) -> Repair:
    marker = Marker(found.producer_id, epoch, 0, commit, [found.partition])
    return Repair(marker, None if metadata is None else metadata.transactional_id, reason)
