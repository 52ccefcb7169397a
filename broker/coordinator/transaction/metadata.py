"""What is known of one transactional id, and the pure functions that give its next value.

Owns the values and the rules of changing them; never logs, waits, reads a clock or touches a file. A transition is
prepared here, appended to the log, and becomes current when the log has it (`TransactionStateManager`).

Invariants, asserted by `_next`: a state is entered only from its valid previous states; the producer id changes only
together with an epoch of 0; the epoch never falls under one producer id; the partitions of a decision are among those
registered when it was made (all of them, unless the producer told which ones it wrote); while a transaction is ongoing
its partitions include the session's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .state import (
    MAX_PRODUCER_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    VALID_PREVIOUS_STATES,
    TopicPartition,
    TransactionState,
    TransactionVersion,
    is_epoch_exhausted,
)


class Written(NamedTuple):
    """The partitions that a transaction wrote, by its producer and by what the broker knows; see `session.written`.

    `begins_session`: they stay registered. `gone` are partitions of the session that no longer exist.
    """

    partitions: frozenset[TopicPartition]
    begins_session: bool = False
    gone: frozenset[TopicPartition] = NO_PARTITIONS


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """One value of a transactional id's state; times in ms since the epoch.

    `previous_producer_id` is the one before the latest change, `next_producer_id` the one that takes over when the
    markers are written (epochs exhausted, KIP-890). `last_producer_epoch` is the epoch that a retry of the request
    which bumped it would carry; it is not in the log, so a retry across a restart is fenced (as in Kafka).
    `topic_partitions` are those of the running transaction, from PREPARE_* on exactly those that get a marker.
    `session_partitions` are registered beyond this transaction: by having been written in the one before, or for as
    long as the session lasts (`preregistered`, which is not in the log: after a restart all of the session counts).
    `unknown_tags` came from a newer version's record and are written back.
    Two more that are not in the log: `fenced`, the current epoch was handed out to nobody, so that who had the one
    before stays locked out; `ended_session_epoch`, the epoch under which a session of an older client was ended.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    last_update_timestamp_ms: int
    state: TransactionState = TransactionState.EMPTY
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    topic_partitions: frozenset[TopicPartition] = NO_PARTITIONS
    start_timestamp_ms: int = -1
    client_transaction_version: TransactionVersion = TransactionVersion.TV_0
    session_partitions: frozenset[TopicPartition] = NO_PARTITIONS
    preregistered: frozenset[TopicPartition] = NO_PARTITIONS
    unknown_tags: tuple[tuple[int, bytes], ...] = ()
    fenced: bool = False
    ended_session_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_epoch_exhausted(self) -> bool:
        """No further epoch of this producer id may be handed out."""
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def deadline_ms(self) -> int:
        """When the running transaction is aborted."""
        return self.start_timestamp_ms + self.timeout_ms

    def has_timed_out(self, now_ms: int) -> bool:
        """An ongoing transaction past its timeout."""
        return self.state is TransactionState.ONGOING and self.deadline_ms < now_ms

    def has_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Idle for the expiration time and without an open transaction."""
        return self.state.may_expire and self.last_update_timestamp_ms <= now_ms - expiration_ms


class Owner(NamedTuple):
    """The transactional id that has a producer id: its value, and the one that is not durable yet, if there is one."""

    metadata: TransactionMetadata
    pending: TransactionMetadata | None


def new_metadata(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """A transactional id seen for the first time; its epoch is -1 until InitProducerId bumps it to 0."""
    return TransactionMetadata(transactional_id, producer_id, NO_PRODUCER_EPOCH, timeout_ms, now_ms)


def increment_epoch(
    metadata: TransactionMetadata, timeout_ms: int, recorded_epoch: int, now_ms: int
) -> TransactionMetadata:
    """InitProducerId: the next epoch; `recorded_epoch` is what a retry may carry, -1 when the caller gave none."""
    assert not metadata.is_epoch_exhausted, f"no epoch left under producer id {metadata.producer_id}"
    return _next(
        metadata,
        TransactionState.EMPTY,
        producer_epoch=metadata.producer_epoch + 1,
        last_producer_epoch=recorded_epoch,
        timeout_ms=timeout_ms,
        start_timestamp_ms=-1,
        last_update_timestamp_ms=now_ms,
        topic_partitions=NO_PARTITIONS,
        fenced=False,
        **without_session(metadata),
    )


def repeat_init(metadata: TransactionMetadata, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """InitProducerId retried with the epoch before the bump (KIP-360): the same epoch again."""
    return _next(
        metadata,
        TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        start_timestamp_ms=-1,
        last_update_timestamp_ms=now_ms,
        topic_partitions=NO_PARTITIONS,
        fenced=False,
        **without_session(metadata),
    )


def rotate_producer_id(
    metadata: TransactionMetadata, producer_id: int, timeout_ms: int, recorded_epoch: int, now_ms: int
) -> TransactionMetadata:
    """InitProducerId with all epochs used up: a fresh producer id at epoch 0."""
    return _next(
        metadata,
        TransactionState.EMPTY,
        producer_id=producer_id,
        previous_producer_id=metadata.producer_id,
        producer_epoch=0,
        last_producer_epoch=recorded_epoch,
        timeout_ms=timeout_ms,
        start_timestamp_ms=-1,
        last_update_timestamp_ms=now_ms,
        topic_partitions=NO_PARTITIONS,
        fenced=False,
        **without_session(metadata),
    )


def add_partitions(
    metadata: TransactionMetadata,
    partitions: Collection[TopicPartition],
    version: TransactionVersion,
    now_ms: int,
    *,
    session: bool = False,
    gone: frozenset[TopicPartition] = NO_PARTITIONS,
) -> TransactionMetadata:
    """Register partitions, with `session` beyond this transaction.

    The first ones start the transaction and its timeout, and the session's partitions are part of it from the start;
    those in `gone` no longer exist and drop out.
    """
    ongoing = metadata.state is TransactionState.ONGOING
    changes: dict[str, Any] = {}
    if session or gone:
        added = frozenset(partitions if session else ())
        changes["session_partitions"] = metadata.session_partitions - gone | added
        changes["preregistered"] = metadata.preregistered - gone | added
    session_partitions = changes.get("session_partitions", metadata.session_partitions)
    return _next(
        metadata,
        TransactionState.ONGOING,
        topic_partitions=(metadata.topic_partitions if ongoing else NO_PARTITIONS).union(
            session_partitions, partitions
        ),
        start_timestamp_ms=metadata.start_timestamp_ms if ongoing else now_ms,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=version,
        **changes,
    )


def prepare_end(
    metadata: TransactionMetadata,
    commit: bool,
    version: TransactionVersion,
    now_ms: int,
    next_producer_id: int = NO_PRODUCER_ID,
    written: Written | None = None,
) -> TransactionMetadata:
    """EndTxn: the decision. With KIP-890 the epoch is bumped here; `next_producer_id` takes over where none is left.

    `written` narrows the partitions that get a marker, and says what the session is afterwards; without it every
    registered partition gets one, and the session stays as it is. Where the epoch does not change with the transaction
    only a commit leaves the session: what comes late for an aborted transaction must find none.
    """
    ongoing = metadata.state is TransactionState.ONGOING
    partitions = metadata.topic_partitions if ongoing else NO_PARTITIONS
    changes: dict[str, Any] = {}
    if written is not None:
        partitions = written.partitions
    if not (commit or version.supports_epoch_bump):
        changes |= without_session(metadata)
    elif written is not None and written.begins_session:
        changes["preregistered"] = metadata.preregistered - written.gone
        changes["session_partitions"] = written.partitions | changes["preregistered"]
    if version.supports_epoch_bump:
        assert metadata.producer_epoch < MAX_PRODUCER_EPOCH, "the last epoch is kept for fencing"
        assert not metadata.is_epoch_exhausted or next_producer_id != NO_PRODUCER_ID
        changes["producer_epoch"] = metadata.producer_epoch + 1
        changes["last_producer_epoch"] = metadata.producer_epoch
    return _next(
        metadata,
        TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        topic_partitions=partitions,
        # An abort without partitions has no start; Kafka requires one and takes the time of the abort.
        start_timestamp_ms=metadata.start_timestamp_ms if ongoing else now_ms,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=version,
        next_producer_id=next_producer_id,
        **changes,
    )


def prepare_fence(
    metadata: TransactionMetadata, version: TransactionVersion, now_ms: int, *, fenced: bool = False
) -> TransactionMetadata:
    """Abort an ongoing transaction on the broker's own account: one bump of the epoch, which nobody is told.

    No retry is recognised afterwards by InitProducerId (`last_producer_epoch` is -1), so the old holder is fenced.
    The last epoch of a producer id, never handed out, is there for this. Every registered partition gets a marker.
    """
    assert metadata.state is TransactionState.ONGOING
    return _next(
        metadata,
        TransactionState.PREPARE_ABORT,
        producer_epoch=min(metadata.producer_epoch + 1, MAX_PRODUCER_EPOCH),
        last_producer_epoch=NO_PRODUCER_EPOCH,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=version,
        fenced=fenced,
        **without_session(metadata),
    )


def fence_idle(metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Lock out the holder of the epoch while no transaction is open: the next epoch, which nobody is told.

    After an abort by `prepare_fence` the epoch is nobody's already and stays; what changes is that the aborted
    transaction is no longer known, so that its end cannot be asked for again by a retry that would be told the epoch.
    """
    epoch = metadata.producer_epoch if metadata.fenced else min(metadata.producer_epoch + 1, MAX_PRODUCER_EPOCH)
    return _next(
        metadata,
        TransactionState.EMPTY,
        producer_epoch=epoch,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        start_timestamp_ms=-1,
        last_update_timestamp_ms=now_ms,
        topic_partitions=NO_PARTITIONS,
        fenced=True,
        **without_session(metadata),
    )


def raised_epoch(metadata: TransactionMetadata, producer_epoch: int) -> TransactionMetadata:
    """The same value under a higher epoch that no producer holds; it is in the log with the id's next record."""
    assert producer_epoch > metadata.producer_epoch, "an epoch never falls"
    return replace(
        metadata,
        producer_epoch=producer_epoch,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        fenced=metadata.state is not TransactionState.ONGOING,
    )


def without_session(metadata: TransactionMetadata) -> dict[str, Any]:
    """The changes that end the session, if there is one."""
    if not metadata.session_partitions:
        return {}
    return {
        "session_partitions": NO_PARTITIONS,
        "preregistered": NO_PARTITIONS,
        "ended_session_epoch": metadata.producer_epoch,
    }


def complete_end(metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Every marker is on disk."""
    commit = metadata.state is TransactionState.PREPARE_COMMIT
    changes: dict[str, Any] = {}
    if metadata.client_transaction_version.supports_epoch_bump and metadata.next_producer_id != NO_PRODUCER_ID:
        changes["producer_id"] = metadata.next_producer_id
        changes["previous_producer_id"] = metadata.producer_id
        changes["producer_epoch"] = 0
    return _next(
        metadata,
        TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT,
        topic_partitions=NO_PARTITIONS,
        next_producer_id=NO_PRODUCER_ID,
        last_update_timestamp_ms=now_ms,
        **changes,
    )


def _next(metadata: TransactionMetadata, state: TransactionState, **changes: Any) -> TransactionMetadata:
    assert metadata.state in VALID_PREVIOUS_STATES[state], f"{metadata.state.label} → {state.label}"
    changed = replace(metadata, state=state, **changes)
    assert changed.producer_epoch >= 0
    if changed.producer_id == metadata.producer_id:
        assert changed.producer_epoch >= metadata.producer_epoch, "an epoch never falls"
    else:
        assert changed.producer_epoch == 0, "a new producer id starts at epoch 0"
    if state.is_prepare and metadata.state is TransactionState.ONGOING:
        assert changed.topic_partitions <= metadata.topic_partitions
    if state is TransactionState.ONGOING:
        assert changed.session_partitions <= changed.topic_partitions
    return changed
