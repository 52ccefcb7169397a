"""Defines the state of one transactional id, and the pure functions that compute its next value.

Contains the values and the rules for changing them; never logs, waits, reads a clock or touches a file. A transition is
prepared here, then appended to the log, and becomes current when it is durable (`TransactionStateManager`).

Invariants, asserted by `_next`:

* A state is entered only from its valid previous states.
* A new producer id starts at epoch 0, and the epoch of a producer id never decreases.
* The partitions that get a marker are those registered when the transaction ends, or a subset of them if the producer
  named the partitions that it wrote.
* The partitions of an ongoing transaction include the session's partitions.
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
    """The partitions that a transaction wrote, as computed by `session.written`.

    With `begins_session` these partitions stay registered after the transaction. `gone` are deleted partitions of the
    transaction or the session.
    """

    partitions: frozenset[TopicPartition]
    begins_session: bool = False
    gone: frozenset[TopicPartition] = NO_PARTITIONS


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """One immutable value of a transactional id's state. Times are in ms since the epoch.

    * `previous_producer_id`: the producer id before the latest change of the producer id.
    * `next_producer_id`: the producer id that becomes current when the markers are written. It is used when the epochs
      are exhausted (KIP-890).
    * `last_producer_epoch`: the epoch in the latest request that bumped the epoch; a retry of this request has the same
      epoch. It is not in the log, so a retry after a restart is fenced, as in Kafka.
    * `topic_partitions`: the partitions of the ongoing transaction. From PREPARE_* on, they are exactly the partitions
      that get a marker.
    * `session_partitions`: the partitions that stay registered after this transaction, either because the previous
      transaction wrote them or because they are registered for the whole session.
    * `preregistered`: the partitions that are registered for the whole session. They are not in the log; after a
      restart they equal `session_partitions`.
    * `unknown_tags`: the unknown tagged fields of a record from a newer version, which are written back.
    * `fenced`: whether no producer holds the current epoch, so that the previous holder stays fenced. Not in the log.
    * `ended_session_epoch`: the producer epoch at the end of the latest session. Not in the log.
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
        """Whether the current producer id has no epoch left that a producer may use."""
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def deadline_ms(self) -> int:
        """The time at which the ongoing transaction times out, in ms since the epoch."""
        return self.start_timestamp_ms + self.timeout_ms

    def has_timed_out(self, now_ms: int) -> bool:
        """Whether a transaction is ongoing and past its timeout."""
        return self.state is TransactionState.ONGOING and self.deadline_ms < now_ms

    def has_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the transactional id has no open transaction and has been idle for at least `expiration_ms`."""
        return self.state.may_expire and self.last_update_timestamp_ms <= now_ms - expiration_ms


class Owner(NamedTuple):
    """The state of the transactional id that owns a producer id: its current value, and its pending value or None."""

    metadata: TransactionMetadata
    pending: TransactionMetadata | None


def new_metadata(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """Return the state of a new transactional id. Its epoch is -1 until InitProducerId bumps it to 0."""
    return TransactionMetadata(transactional_id, producer_id, NO_PRODUCER_EPOCH, timeout_ms, now_ms)


def increment_epoch(
    metadata: TransactionMetadata, timeout_ms: int, recorded_epoch: int, now_ms: int
) -> TransactionMetadata:
    """Return the transactional id's next value, in state EMPTY, for an InitProducerId that bumps the epoch.

    `recorded_epoch` is the epoch in the request, which a retry would repeat; -1 if the request has none.
    """
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
    """Return the transactional id's next value, in state EMPTY, for a retried InitProducerId (KIP-360).

    The retry has the epoch before the bump. The epoch is not bumped a second time.
    """
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
    """Return the transactional id's next value, in state EMPTY, for an InitProducerId when the epochs are exhausted.

    The value has the new `producer_id` with epoch 0.

    `recorded_epoch` is the epoch in the request, which a retry would repeat; -1 if the request has none.
    """
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
    """Return the transactional id's next value, in state ONGOING, with these partitions registered.

    With `session` they stay registered after the transaction. The first registration starts the transaction and its
    timeout, and includes the session's partitions. Partitions in `gone` no longer exist and leave the session.
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
    """Return the transactional id's next value, in state PREPARE_COMMIT or PREPARE_ABORT, for an EndTxn.

    If `version` supports KIP-890, the EndTxn bumps the producer's epoch. `next_producer_id` replaces a producer id
    whose epochs are exhausted.

    With `written`, only the partitions in it get a marker. If `written.begins_session` is true, they also stay
    registered for the next transaction: they belong to the session. Without `written`, every registered partition gets
    a marker, and the session does not change. If `version` is older than KIP-890, an abort always ends the session,
    because a late batch of the aborted transaction must not open another transaction.
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
        # An abort without partitions has no start time. Kafka requires a start time and uses the time of the abort.
        start_timestamp_ms=metadata.start_timestamp_ms if ongoing else now_ms,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=version,
        next_producer_id=next_producer_id,
        **changes,
    )


def prepare_fence(
    metadata: TransactionMetadata, version: TransactionVersion, now_ms: int, *, fenced: bool = False
) -> TransactionMetadata:
    """Return the transactional id's next value, in state PREPARE_ABORT, for an abort that the broker initiates.

    The epoch is bumped, and the current producer is fenced. Every registered partition gets a marker.

    `fenced` is true if the cause is an InitProducerId, another producer of the group, or an operator. No producer then
    receives the new epoch, and InitProducerId recognises no retry (`last_producer_epoch` is -1).

    If `fenced` is false, as after a timeout, the fenced producer may return: if it initialises again with its previous
    epoch, and no other producer has initialised since, it receives the new epoch (KIP-588). The exception is the last
    epoch of a producer id, which no producer receives.
    """
    assert metadata.state is TransactionState.ONGOING
    epoch = min(metadata.producer_epoch + 1, MAX_PRODUCER_EPOCH)
    may_return = not fenced and epoch < MAX_PRODUCER_EPOCH
    return _next(
        metadata,
        TransactionState.PREPARE_ABORT,
        producer_epoch=epoch,
        last_producer_epoch=metadata.producer_epoch if may_return else NO_PRODUCER_EPOCH,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=version,
        fenced=fenced,
        **without_session(metadata),
    )


def fence_idle(metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return the transactional id's next value, in state EMPTY, which fences the producer while no transaction is open.

    No producer receives the bumped epoch. If no producer holds the current epoch (`fenced`), the epoch stays the same.
    The state becomes EMPTY, so that a retried EndTxn for an aborted transaction cannot succeed and return the epoch.
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
    """Return the value with the epoch raised to `producer_epoch`, which no producer holds.

    The transactional id's next record writes the epoch to the log.
    """
    assert producer_epoch > metadata.producer_epoch, "a producer epoch never decreases"
    return replace(
        metadata,
        producer_epoch=producer_epoch,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        fenced=metadata.state is not TransactionState.ONGOING,
    )


def without_session(metadata: TransactionMetadata) -> dict[str, Any]:
    """Return the changes that end the session and unregister its partitions; an empty dict if there is no session."""
    if not metadata.session_partitions:
        return {}
    return {
        "session_partitions": NO_PARTITIONS,
        "preregistered": NO_PARTITIONS,
        "ended_session_epoch": metadata.producer_epoch,
    }


def complete_end(metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return the transactional id's next value, in state COMPLETE_*, when all of its markers are durable."""
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
        assert changed.producer_epoch >= metadata.producer_epoch, "a producer epoch never decreases"
    else:
        assert changed.producer_epoch == 0, "a new producer id starts at epoch 0"
    if state.is_prepare and metadata.state is TransactionState.ONGOING:
        assert changed.topic_partitions <= metadata.topic_partitions
    if state is TransactionState.ONGOING:
        assert changed.session_partitions <= changed.topic_partitions
    return changed
