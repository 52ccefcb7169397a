"""Decides how a transactional id changes with InitProducerId, AddPartitionsToTxn, EndTxn and fencing.

The rules are pure functions of the transactional id's current value, the request and the time. Each returns the value
to append next, or a `Step` that says what the caller must do first, or raises KafkaError with Kafka's code. The
functions neither wait nor change anything. The caller appends the returned value without an await in between. If the
caller has to await, it decides again.

`pending` is true while an earlier transition is appended but not yet durable. No decision may build on such a
transition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from .metadata import (
    TransactionMetadata,
    Written,
    add_partitions,
    fence_idle,
    increment_epoch,
    prepare_end,
    prepare_fence,
    repeat_init,
    rotate_producer_id,
)
from .state import (
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    TransactionState,
    TransactionVersion,
    is_epoch_exhausted,
)


class Step(Enum):
    """What the caller must do before a transition or instead of it."""

    WAIT = "wait"
    """Wait until the earlier transition is durable or the earlier transaction is complete, then decide again."""
    NEEDS_PRODUCER_ID = "needs producer id"
    """Allocate a producer id, then decide again with it."""
    NEEDS_RECORDS = "needs records"
    """Wait until the records of the transaction are durable, then decide again."""
    NOTHING = "nothing"
    """Do nothing: the transactional id is already in the requested state."""


class ProducerIdentity(NamedTuple):
    """A producer id with its epoch. (-1, -1) stands for no producer."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def decide_init(
    metadata: TransactionMetadata,
    *,
    pending: bool,
    timeout_ms: int,
    expected: ProducerIdentity | None,
    server_version: TransactionVersion,
    new_producer_id: int | None,
    now_ms: int,
) -> TransactionMetadata | Step:
    """Decide how an InitProducerId request changes a known transactional id.

    `expected` is the identity that the producer currently holds (KIP-360). It is None for a new instance, which fences
    the current holder of the transactional id. Return the id's next value, in state EMPTY, with the identity for the
    response. If a transaction is ongoing, return a value in state PREPARE_ABORT instead, which aborts the transaction
    and fences its producer; the caller decides again when the abort is complete. Raise KafkaError PRODUCER_FENCED if
    `expected` is stale.

    This is stricter than Kafka in two respects. A request with a stale `expected` epoch gets PRODUCER_FENCED without
    first aborting the ongoing transaction, so a zombie cannot disturb its successor. When this request aborts a
    transaction, an EndTxn of the aborted producer gets PRODUCER_FENCED immediately. (In Kafka, the EndTxn gets
    INVALID_TXN_STATE until the abort is complete.)
    """
    if pending:
        return Step.WAIT
    current = (metadata.producer_id, metadata.producer_epoch)
    if expected is not None and not _may_match(metadata, expected):
        if _is_next_identity(metadata, expected):
            return Step.WAIT
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if metadata.state.is_prepare:
        return Step.WAIT
    if metadata.state is TransactionState.ONGOING:
        if expected is not None and expected != current:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return prepare_fence(metadata, server_version, now_ms, fenced=True)
    if expected is None:
        if not metadata.is_epoch_exhausted:
            return increment_epoch(metadata, timeout_ms, NO_PRODUCER_EPOCH, now_ms)
        return _rotate(metadata, new_producer_id, timeout_ms, NO_PRODUCER_EPOCH, now_ms)
    if metadata.producer_epoch == NO_PRODUCER_EPOCH or expected == current:
        if not metadata.is_epoch_exhausted:
            return increment_epoch(metadata, timeout_ms, metadata.producer_epoch, now_ms)
        return _rotate(metadata, new_producer_id, timeout_ms, metadata.producer_epoch, now_ms)
    if expected.producer_epoch == metadata.last_producer_epoch:
        return repeat_init(metadata, timeout_ms, now_ms)
    raise KafkaError(ErrorCode.PRODUCER_FENCED)


def decide_add(
    metadata: TransactionMetadata,
    *,
    pending: bool,
    identity: ProducerIdentity,
    partitions: Collection[TopicPartition],
    version: TransactionVersion,
    now_ms: int,
    session: bool = False,
    gone: frozenset[TopicPartition] = frozenset(),
) -> TransactionMetadata | Step:
    """Decide how partitions are registered with the ongoing transaction. If none is ongoing, a transaction starts.

    Used for AddPartitionsToTxn, AddOffsetsToTxn, the implicit registration of KIP-890 and a session's first batch. With
    `session` the partitions stay registered after the transaction. `gone` are partitions of the session that no longer
    exist. Raise KafkaError INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED if `identity` is not the current producer.
    """
    if pending or _is_next_identity(metadata, identity):
        return Step.WAIT
    _check_current(metadata, identity)
    if metadata.state.is_prepare:
        return Step.WAIT
    if (
        metadata.state is TransactionState.ONGOING
        and metadata.topic_partitions.issuperset(partitions)
        and (not session or metadata.preregistered.issuperset(partitions))
    ):
        return Step.NOTHING
    return add_partitions(metadata, partitions, version, now_ms, session=session, gone=gone)


def decide_fence(
    metadata: TransactionMetadata, *, pending: bool, server_version: TransactionVersion, now_ms: int
) -> TransactionMetadata | Step:
    """Decide how to fence a transactional id's producer.

    An ongoing transaction is aborted. While a transaction is being ended, the result is Step.WAIT. If no transaction is
    open, the next state is EMPTY. A repeated call does not bump the epoch again: if the producer is already fenced, the
    epoch stays the same, and the result is Step.NOTHING if the state is EMPTY already. The result is also Step.NOTHING
    if the transactional id has no epoch yet.
    """
    if pending or metadata.state.is_prepare:
        return Step.WAIT
    if metadata.producer_epoch == NO_PRODUCER_EPOCH:
        return Step.NOTHING
    if metadata.state is TransactionState.ONGOING:
        return prepare_fence(metadata, server_version, now_ms, fenced=True)
    if metadata.state is TransactionState.EMPTY and (metadata.fenced or metadata.producer_epoch == MAX_PRODUCER_EPOCH):
        return Step.NOTHING
    return fence_idle(metadata, now_ms)


def decide_end(
    metadata: TransactionMetadata,
    *,
    pending: bool,
    identity: ProducerIdentity,
    commit: bool,
    version: TransactionVersion,
    new_producer_id: int | None,
    now_ms: int,
    written: Callable[[TransactionMetadata], Written] | None = None,
) -> TransactionMetadata | Step:
    """Decide how a client's EndTxn request ends the transaction.

    `version` is TV_2 for request version 5 and above, in which every EndTxn bumps the epoch. `written` is called just
    before the decision is made, and returns the partitions that get a marker. It may raise KafkaError INVALID_REQUEST.
    If `written` is None, every registered partition gets a marker. Raise KafkaError INVALID_PRODUCER_ID_MAPPING,
    PRODUCER_FENCED or INVALID_TXN_STATE if the request is refused.
    """
    if version.supports_epoch_bump:
        return _decide_end_v2(metadata, pending, identity, commit, version, new_producer_id, now_ms, written)
    _check_current(metadata, identity)
    if pending:
        return Step.WAIT
    state = metadata.state
    if state is TransactionState.ONGOING:
        return prepare_end(metadata, commit, version, now_ms, written=written and written(metadata))
    if not commit and state.is_commit and metadata.session_partitions:
        # The session's next transaction has no batch yet. Abort it nevertheless, so that a batch that arrives from now
        # on is refused as late.
        if state.is_prepare:
            return Step.WAIT
        return prepare_end(metadata, commit, version, now_ms, written=written and written(metadata))
    if state is TransactionState.EMPTY or state.is_commit != commit:
        raise _wrong_end(metadata, commit)
    return Step.WAIT if state.is_prepare else Step.NOTHING


def _decide_end_v2(
    metadata: TransactionMetadata,
    pending: bool,
    identity: ProducerIdentity,
    commit: bool,
    version: TransactionVersion,
    new_producer_id: int | None,
    now_ms: int,
    written: Callable[[TransactionMetadata], Written] | None,
) -> TransactionMetadata | Step:
    """Decide how an EndTxn request of KIP-890 ends the transaction.

    The epoch distinguishes a retried EndTxn of the previous transaction, which has the previous epoch, from an EndTxn
    of the current epoch. The table shows the outcome when no transaction is open:

    =============== ================= ============== ================= =================
    state           abort, retried    abort, current commit, retried   commit, current
    =============== ================= ============== ================= =================
    EMPTY           PRODUCER_FENCED   a new abort    PRODUCER_FENCED   INVALID_TXN_STATE
    COMPLETE_ABORT  success           a new abort    INVALID_TXN_STATE INVALID_TXN_STATE
    COMPLETE_COMMIT INVALID_TXN_STATE a new abort    success           INVALID_TXN_STATE
    =============== ================= ============== ================= =================

    "success" changes nothing. "a new abort" bumps the epoch.
    """
    if pending or _is_next_identity(metadata, identity):
        # Check this first: the producer may already use the producer id that becomes current when this transition
        # completes.
        return Step.WAIT
    # Whether this is a retry of the EndTxn that bumped the epoch, or of the one that replaced the producer id. The
    # epoch shows this only if the last EndTxn bumped it. An older client's EndTxn does not bump it: then the higher
    # epoch belongs to that client, which has fenced the sender.
    bumps = metadata.client_transaction_version.supports_epoch_bump
    after_rotation = (
        metadata.previous_producer_id == identity.producer_id
        and identity.producer_epoch == MAX_PRODUCER_EPOCH - 1
        and metadata.producer_epoch == 0
        and bumps
    )
    # No producer may hold an epoch that was bumped for fencing. A fenced producer must not obtain it by retrying its
    # EndTxn.
    unheld = metadata.fenced or (
        metadata.producer_epoch == MAX_PRODUCER_EPOCH and metadata.next_producer_id == NO_PRODUCER_ID
    )
    after_bump = metadata.producer_epoch == identity.producer_epoch + 1 and bumps and not unheld
    current = metadata.producer_epoch == identity.producer_epoch and not unheld
    state = metadata.state
    if metadata.producer_id != identity.producer_id and not after_rotation:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if state.is_prepare and current:
        # This is the EndTxn of the next transaction, sent before the current transaction is complete. The response to
        # the previous EndTxn, sent as soon as the decision was durable, already contained the next epoch.
        return Step.WAIT
    if state.is_prepare:
        valid = after_bump
    elif state.is_complete:
        valid = after_bump or after_rotation or current
    else:
        valid = current
    if not valid:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if state.is_prepare:
        if state.is_commit != commit:
            raise _wrong_end(metadata, commit)
        return Step.WAIT
    if state is not TransactionState.ONGOING:
        if state.is_complete and (after_bump or after_rotation):
            if state.is_commit != commit:
                raise _wrong_end(metadata, commit)
            return Step.NOTHING
        if commit:
            raise _wrong_end(metadata, commit)
    if metadata.is_epoch_exhausted and new_producer_id is None:
        return Step.NEEDS_PRODUCER_ID
    next_id = new_producer_id if metadata.is_epoch_exhausted and new_producer_id is not None else NO_PRODUCER_ID
    return prepare_end(metadata, commit, version, now_ms, next_id, written and written(metadata))


def verify_partition(metadata: TransactionMetadata, identity: ProducerIdentity, partition: TopicPartition) -> ErrorCode:
    """Return NONE if a batch of a client without KIP-890 may be appended, else the error code.

    The batch may be appended if the transaction is ongoing and contains the partition. A batch that arrives while the
    transaction's markers are being written is late and gets INVALID_TXN_STATE. (A newer client's batch waits instead.)
    """
    if metadata.producer_id != identity.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != identity.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if metadata.state.is_prepare:
        return ErrorCode.INVALID_TXN_STATE
    if metadata.state is TransactionState.ONGOING and partition in metadata.topic_partitions:
        return ErrorCode.NONE
    return ErrorCode.TRANSACTION_ABORTABLE


def _check_current(metadata: TransactionMetadata, identity: ProducerIdentity) -> None:
    if metadata.producer_id != identity.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != identity.producer_epoch or metadata.fenced:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _is_next_identity(metadata: TransactionMetadata, identity: ProducerIdentity) -> bool:
    """Whether `identity` has the next producer id, which becomes current when the transaction's markers are durable."""
    return metadata.state.is_prepare and identity == (metadata.next_producer_id, 0)


def _may_match(metadata: TransactionMetadata, expected: ProducerIdentity) -> bool:
    """Whether `expected` has the current producer id, or the replaced one.

    A producer that has not received its new producer id still has the replaced one, whose epochs are exhausted. If the
    transactional id has no epoch yet, any producer id is accepted.
    """
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or metadata.producer_id == expected.producer_id
        or (metadata.previous_producer_id == expected.producer_id and is_epoch_exhausted(expected.producer_epoch))
    )


def _rotate(
    metadata: TransactionMetadata, producer_id: int | None, timeout_ms: int, recorded_epoch: int, now_ms: int
) -> TransactionMetadata | Step:
    if producer_id is None:
        return Step.NEEDS_PRODUCER_ID
    return rotate_producer_id(metadata, producer_id, timeout_ms, recorded_epoch, now_ms)


def _wrong_end(metadata: TransactionMetadata, commit: bool) -> KafkaError:
    action = "commit" if commit else "abort"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"Cannot {action} the transaction of {metadata.transactional_id!r}: it is in state {metadata.state.label}.",
    )
