"""The states of a transaction, which may follow which, and the protocol levels of KIP-890.

Pure data. State ids are those of the log records, names those that DescribeTransactions and ListTransactions show;
both are Kafka's.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import Final, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""(topic, partition index)."""

NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()
"""The one empty set of all transactional ids: each further one would take 216 bytes."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_PRODUCER_EPOCH: Final = 32767


class TransactionState(IntEnum):
    """Where a transactional id stands; the value is `TransactionLogValue.transaction_status`."""

    EMPTY = 0
    """No transaction yet under this producer epoch."""
    ONGOING = 1
    """Partitions are registered; batches may be open in their logs."""
    PREPARE_COMMIT = 2
    """Decided; durable before anyone is told. Markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """Every marker is on disk."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id has expired; never written, the record becomes a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """Known by name to clients' filters. Kafka holds it in memory between a bump of the epoch and the abort that
    follows; here both are one transition, so nothing is ever in this state."""

    @property
    def label(self) -> str:
        """The name that clients see: "PrepareCommit"."""
        return self.name.title().replace("_", "")

    @property
    def is_prepare(self) -> bool:
        """Decided, markers outstanding."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """Decided and done."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def may_expire(self) -> bool:
        """No transaction is open, so the id may be forgotten when it is idle."""
        return self is TransactionState.EMPTY or self.is_complete

    @property
    def is_commit(self) -> bool:
        """The decision is (or was) to commit."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


STATE_BY_LABEL: Final = MappingProxyType({state.label: state for state in TransactionState})

_S = TransactionState
VALID_PREVIOUS_STATES: Final = MappingProxyType(
    {
        _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
        # Version 2 transactions may be aborted before any partition is registered: the epoch must still move on.
        _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
        _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
        _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.PREPARE_EPOCH_FENCE: frozenset(),
    }
)
"""For each state, those it may be entered from."""


class TransactionVersion(IntEnum):
    """Levels of the feature `transaction.version`."""

    TV_0 = 0
    TV_1 = 1
    """Log records are flexible (value version 1)."""
    TV_2 = 2
    """KIP-890: partitions register by being produced to, and every transaction ends with a new epoch."""

    @property
    def supports_epoch_bump(self) -> bool:
        """Each EndTxn hands out a new producer epoch."""
        return self >= TransactionVersion.TV_2

    @property
    def log_value_version(self) -> int:
        """Version of TransactionLogValue that is written at this level."""
        return 1 if self >= TransactionVersion.TV_1 else 0


def is_epoch_exhausted(producer_epoch: int) -> bool:
    """No further epoch may be handed out: the last one is kept back so that fencing always finds one."""
    return producer_epoch >= MAX_PRODUCER_EPOCH - 1
