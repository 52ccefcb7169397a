"""What a request does to a transactional id: the rules of InitProducerId, AddPartitionsToTxn, EndTxn and fencing.

Pure functions of the id's current value, the request and the time. Each returns the value to append next, or a `Step`
that says what the caller has to do first, or raises KafkaError with Kafka's code. They neither wait nor change
anything: the caller appends what they return without an await in between, or asks again.

`pending` is true while an earlier transition is appended but not yet durable: nothing may be decided on top of it.
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
    """What has to happen before, or instead of, a transition."""

    WAIT = "wait"
    """An earlier transition or transaction is not finished: ask again when it is."""
    NEEDS_PRODUCER_ID = "needs producer id"
    """Ask again with a fresh producer id."""
    NOTHING = "nothing"
    """The request is already fulfilled."""


class ProducerIdentity(NamedTuple):
    """Who a producer is; (-1, -1) is nobody."""

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
    """InitProducerId of a known transactional id.

    `expected` is what the producer believes to be (KIP-360), None for a new instance, which fences whoever holds the
    id. The answer is an EMPTY value with the identity to return, or, while a transaction is ongoing, its abort under a
    fenced epoch (then ask again when that is complete).

    Stricter than Kafka in one point: an `expected` epoch that is not the current one never aborts an ongoing
    transaction on its way to PRODUCER_FENCED; a zombie cannot disturb its successor.
    """
    if pending:
        return Step.WAIT
    current = (metadata.producer_id, metadata.producer_epoch)
    if expected is not None and not _may_be(metadata, expected):
        if _takes_over(metadata, expected):
            return Step.WAIT
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if metadata.state.is_prepare:
        return Step.WAIT
    if metadata.state is TransactionState.ONGOING:
        if expected is not None and expected != current:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return prepare_fence(metadata, server_version, now_ms)
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
    """AddPartitionsToTxn, AddOffsetsToTxn, the implicit registration of KIP-890 and the opening by a session.

    `session`: the partitions stay registered; `gone` are partitions of the session that no longer exist.
    """
    if pending or _takes_over(metadata, identity):
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
    """Lock out whoever holds the id, and abort what is ongoing; a decided transaction is completed as decided first.

    NOTHING: the holder is locked out and no transaction is open. Asked again it never bumps the epoch a second time.
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
    """EndTxn by a client; `version` is TV_2 from request version 5 on, where every end bumps the epoch.

    `written` is asked for the partitions that get a marker when a decision is about to be made, None: all that are
    registered. It raises KafkaError INVALID_REQUEST.
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
        # The session's next transaction, of which nothing has come: aborted all the same, for what comes yet is late.
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
    """EndTxn of KIP-890: the request's epoch says whether it is this transaction's or a retry of the last one's.

    ============== ===================== ====================
    state          abort: retry/current  commit: retry/current
    ============== ===================== ====================
    EMPTY          fenced / ends         fenced / wrong
    COMPLETE_ABORT nothing / ends        wrong / wrong
    COMPLETE_COMMIT wrong / ends         nothing / wrong
    ============== ===================== ====================
    """
    if pending or _takes_over(metadata, identity):
        # First of all checks: the producer may already use the id that takes over when this transition is complete.
        return Step.WAIT
    # The end that rotated the producer id is the last one only if its client bumps epochs: transactions of an older
    # client that took over by InitProducerId all have epoch 0, too.
    after_rotation = (
        metadata.previous_producer_id == identity.producer_id
        and identity.producer_epoch == MAX_PRODUCER_EPOCH - 1
        and metadata.producer_epoch == 0
        and metadata.client_transaction_version.supports_epoch_bump
    )
    # An epoch used up by fencing is nobody's: its old holder must not be told of it by way of a retry.
    nobodys = metadata.fenced or (
        metadata.producer_epoch == MAX_PRODUCER_EPOCH and metadata.next_producer_id == NO_PRODUCER_ID
    )
    after_bump = metadata.producer_epoch == identity.producer_epoch + 1 and not nobodys
    current = metadata.producer_epoch == identity.producer_epoch and not nobodys
    state = metadata.state
    if metadata.producer_id != identity.producer_id and not after_rotation:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if state.is_prepare and current:
        # The next transaction's end, before this one is done: a producer is told its next epoch with the decision.
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
    """Whether a batch of an older client may be appended: only into the ongoing transaction, on a registered partition.

    A batch that comes after the decision is late, and stays so: INVALID_TXN_STATE, where a newer client would wait.
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


def _takes_over(metadata: TransactionMetadata, identity: ProducerIdentity) -> bool:
    """The producer uses the id that it was told at EndTxn, and that takes over when the markers are written."""
    return metadata.state.is_prepare and identity == (metadata.next_producer_id, 0)


def _may_be(metadata: TransactionMetadata, expected: ProducerIdentity) -> bool:
    """The believed identity could be the current one, or the one before a rotation whose answer got lost."""
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
    wish = "commit" if commit else "abort"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"cannot {wish} the transaction of {metadata.transactional_id!r}: it is in state {metadata.state.label}",
    )
