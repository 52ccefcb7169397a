"""Defines the states of a transaction, the valid transitions between them, and the protocol levels of KIP-890.

Pure data. The numbers of the states are those in the log records. The names are those that DescribeTransactions and
ListTransactions return. Both are Kafka's.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import Final, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""A (topic, partition index) pair."""

NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()
"""The empty set, shared by all transactional ids because a separate set would take 216 bytes."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_PRODUCER_EPOCH: Final = 32767


class TransactionState(IntEnum):
    """The state of a transactional id; the value is `TransactionLogValue.transaction_status`."""

    EMPTY = 0
    """No transaction has begun under this producer epoch."""
    ONGOING = 1
    """The transaction has registered partitions; their logs may contain its batches."""
    PREPARE_COMMIT = 2
    """The decision to commit is in the log, and is durable before any response. The markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """The transaction is committed, and every marker is durable."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """The transactional id has expired. The log never contains this state, because a tombstone replaces the record."""
    PREPARE_EPOCH_FENCE = 7
    """A state that clients may name in filters, but that no transactional id is ever in.

    Kafka uses it in memory between the bump of the epoch and the abort that follows. This broker does both in one
    transition.
    """

    label: str
    """The state's name in responses, such as "PrepareCommit"."""
    is_prepare: bool
    """Whether the decision to commit or abort has been made, but markers are still missing."""
    is_complete: bool
    """Whether the transaction was committed or aborted, and its markers are durable."""
    may_expire: bool
    """Whether no transaction is open, so that the transactional id may expire when it is idle."""
    is_commit: bool
    """Whether the decision was to commit. Markers may still be missing."""

    def __init__(self, _value: int) -> None:
        self.label = self.name.title().replace("_", "")
        self.is_prepare = self.name in ("PREPARE_COMMIT", "PREPARE_ABORT")
        self.is_complete = self.name in ("COMPLETE_COMMIT", "COMPLETE_ABORT")
        self.may_expire = self.name == "EMPTY" or self.is_complete
        self.is_commit = self.name in ("PREPARE_COMMIT", "COMPLETE_COMMIT")


STATE_BY_LABEL: Final = MappingProxyType({state.label: state for state in TransactionState})

_S = TransactionState
VALID_PREVIOUS_STATES: Final = MappingProxyType(
    {
        _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
        # A version 2 transaction may be aborted before any partition is registered, because the epoch must still be
        # bumped.
        _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
        _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
        _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.PREPARE_EPOCH_FENCE: frozenset(),
    }
)
"""For each state, the states from which it may be entered."""


class TransactionVersion(IntEnum):
    """The levels of the feature `transaction.version`."""

    TV_0 = 0
    TV_1 = 1
    """Log records have flexible fields (value version 1)."""
    TV_2 = 2
    """KIP-890: producing to a partition registers the partition, and every transaction ends with a new epoch."""

    @property
    def supports_epoch_bump(self) -> bool:
        """Whether each EndTxn returns a new producer epoch."""
        return self >= TransactionVersion.TV_2

    @property
    def log_value_version(self) -> int:
        """The version of TransactionLogValue that is written at this level."""
        return 1 if self >= TransactionVersion.TV_1 else 0


def is_epoch_exhausted(producer_epoch: int) -> bool:
    """Whether the producer id has no epoch left that a producer may use. The last epoch is reserved for fencing."""
    return producer_epoch >= MAX_PRODUCER_EPOCH - 1
