"""The states of a transaction, the valid transitions between them, and the protocol levels of KIP-890.

Pure data. State ids are those in the log records; names are those that DescribeTransactions and ListTransactions
return. Both are Kafka's.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import Final, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""(topic, partition index)."""

NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()
"""The empty set that all transactional ids share: each further one would take 216 bytes."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_PRODUCER_EPOCH: Final = 32767


class TransactionState(IntEnum):
    """The state of a transactional id; the value is `TransactionLogValue.transaction_status`."""

    EMPTY = 0
    """No transaction yet under this producer epoch."""
    ONGOING = 1
    """Partitions are registered; batches may be open in their logs."""
    PREPARE_COMMIT = 2
    """The transaction is decided, durably before any response. Markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """Every marker is durable."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id has expired. The state is never written: the record becomes a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """A name that clients may use in filters. Kafka uses the state in memory between a bump of the epoch and the abort
    that follows; here both are one transition, so no id is ever in this state."""

    @property
    def label(self) -> str:
        """The name that clients see: "PrepareCommit"."""
        return self.name.title().replace("_", "")

    @property
    def is_prepare(self) -> bool:
        """Whether the transaction is decided and its markers are outstanding."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """Whether the transaction is decided and its markers are durable."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def may_expire(self) -> bool:
        """Whether no transaction is open, so that the id may expire when it is idle."""
        return self is TransactionState.EMPTY or self.is_complete

    @property
    def is_commit(self) -> bool:
        """Whether the decision is (or was) to commit."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


STATE_BY_LABEL: Final = MappingProxyType({state.label: state for state in TransactionState})

_S = TransactionState
VALID_PREVIOUS_STATES: Final = MappingProxyType(
    {
        _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
        # Version 2 transactions may be aborted before any partition is registered: the epoch must still be bumped.
        _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
        _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
        _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.PREPARE_EPOCH_FENCE: frozenset(),
    }
)
"""For each state, the states from which it may be entered."""


class TransactionVersion(IntEnum):
    """Levels of the feature `transaction.version`."""

    TV_0 = 0
    TV_1 = 1
    """Log records are flexible (value version 1)."""
    TV_2 = 2
    """KIP-890: producing to a partition registers it, and every transaction ends with a new epoch."""

    @property
    def supports_epoch_bump(self) -> bool:
        """Whether each EndTxn returns a new producer epoch."""
        return self >= TransactionVersion.TV_2

    @property
    def log_value_version(self) -> int:
        """The version of TransactionLogValue that is written at this level."""
        return 1 if self >= TransactionVersion.TV_1 else 0


def is_epoch_exhausted(producer_epoch: int) -> bool:
    """Whether no further epoch may be given to a producer; the last one is reserved for fencing."""
    return producer_epoch >= MAX_PRODUCER_EPOCH - 1
