"""Compares the open transactions in partition logs with the coordinator's state when the broker starts.

The comparison is a pure function; the coordinator writes the markers that it returns. Afterwards every open transaction
in a log is either the ongoing transaction of a known transactional id or is being ended, so that no last stable offset
stays stuck.

With `durability=flush`, a registration is durable before the data, and COMPLETE_* becomes durable after the markers.
Therefore nothing needs a repair unless the coordinator's state was removed on purpose (a copied topic, a deleted
`__transaction_state`). With `durability=os`, a power failure can lose the tail of any file, and the markers then repair
the logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...partitions.markers import Marker
from .gateway import OpenTransaction
from .metadata import TransactionMetadata
from .state import MAX_PRODUCER_EPOCH, TopicPartition, TransactionState


@dataclass(frozen=True, slots=True)
class Repair:
    """A marker to write for one open transaction, with the reason."""

    marker: Marker
    transactional_id: str | None
    reason: str

    @property
    def key(self) -> tuple[int, TopicPartition]:
        """The producer id and the partition. Together they have at most one open transaction."""
        return self.marker.producer_id, self.marker.partitions[0]


def repairs(known: Iterable[TransactionMetadata], found: Iterable[OpenTransaction]) -> list[Repair]:
    """Return the markers that the open transactions in `found` need, given the `known` transactional ids.

    An open transaction in a registered partition needs no marker in two cases. The first is that its transactional id
    is in state ONGOING with the same epoch. The second is that the id is in a PREPARE_* state, because the marker
    writer then writes the marker. A repair without a transactional id belongs to an unknown producer and is valid only
    if `known` is complete.
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
        # The producer id was replaced because its epochs were exhausted. Its last transaction ended before the new
        # producer id became current. The new producer id keeps epoch 0 until the next decision.
        last = current == 0 and found.producer_epoch == MAX_PRODUCER_EPOCH - 1
        if last and state.is_complete and metadata.client_transaction_version.supports_epoch_bump:
            return _end(metadata, found, state.is_commit, found.producer_epoch, "ended, but its marker is missing")
        return _end(metadata, found, commit=False, epoch=found.producer_epoch, reason="replaced producer id")
    if state is TransactionState.ONGOING:
        if found.producer_epoch == current and found.partition in metadata.topic_partitions:
            return None
    elif state.is_prepare:
        if found.partition in metadata.topic_partitions:
            return None
    elif state.is_complete and _was_decided(metadata, found):
        return _end(metadata, found, state.is_commit, current, "ended, but its marker is missing")
    older = found.producer_epoch < current
    reason = "older epoch" if older else "not registered with the coordinator"
    return _end(metadata, found, commit=False, epoch=max(current, found.producer_epoch), reason=reason)


def _was_decided(metadata: TransactionMetadata, found: OpenTransaction) -> bool:
    """Whether the log's open transaction is the one that the coordinator completed, not a later, unregistered one."""
    if metadata.client_transaction_version.supports_epoch_bump:
        return found.producer_epoch == metadata.producer_epoch - 1
    return (
        found.producer_epoch == metadata.producer_epoch and found.last_timestamp_ms <= metadata.last_update_timestamp_ms
    )


def _end(metadata: TransactionMetadata | None, found: OpenTransaction, commit: bool, epoch: int, reason: str) -> Repair:
    marker = Marker(found.producer_id, epoch, 0, commit, [found.partition])
    return Repair(marker, None if metadata is None else metadata.transactional_id, reason)
