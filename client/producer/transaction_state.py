"""The states of a transactional producer, and the table of allowed transitions between them.

A producer is in one state at a time. `TransactionManager.become` makes the changes and checks the table. Only
`TransactionManager.crashed` does not use it, because a producer may become unusable in any state.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """The states, with Kafka's names. Kafka does not have the following two.

    FLUSHING: a commit has begun, but EndTxn is sent only after the records have been acknowledged. COMMIT_UNKNOWN:
    EndTxn was sent, but no response has arrived.
    """

    UNINITIALIZED = "not initialized"
    INITIALIZING = "initializing"
    READY = "ready for a transaction"
    IN_TRANSACTION = "in a transaction"
    FLUSHING = "sending the last records before its commit"
    COMMITTING_TRANSACTION = "committing"
    COMMIT_UNKNOWN = "waiting to learn whether its commit succeeded"
    ABORTING_TRANSACTION = "aborting"
    ABORTABLE_ERROR = "in a transaction that can only be aborted"
    FATAL_ERROR = "unusable"


S = State
PREVIOUS: Final[dict[State, frozenset[State]]] = {
    S.UNINITIALIZED: frozenset({S.INITIALIZING}),  # initialising failed and may be tried again
    # A producer may be initialised between transactions, and in the failed states, which ends an open transaction.
    S.INITIALIZING: frozenset({S.UNINITIALIZED, S.READY, S.COMMIT_UNKNOWN, S.ABORTABLE_ERROR, S.FATAL_ERROR}),
    S.READY: frozenset({S.INITIALIZING, S.COMMITTING_TRANSACTION, S.ABORTING_TRANSACTION}),
    # After a commit that was given up before EndTxn was sent, the transaction is still open.
    S.IN_TRANSACTION: frozenset({S.READY, S.FLUSHING, S.COMMITTING_TRANSACTION}),
    S.FLUSHING: frozenset({S.IN_TRANSACTION}),
    S.COMMITTING_TRANSACTION: frozenset({S.IN_TRANSACTION, S.FLUSHING, S.COMMIT_UNKNOWN}),
    S.COMMIT_UNKNOWN: frozenset({S.COMMITTING_TRANSACTION}),
    S.ABORTING_TRANSACTION: frozenset({S.IN_TRANSACTION, S.ABORTABLE_ERROR}),
    S.ABORTABLE_ERROR: frozenset(
        {S.IN_TRANSACTION, S.FLUSHING, S.COMMITTING_TRANSACTION, S.ABORTING_TRANSACTION, S.ABORTABLE_ERROR}
    ),
    S.FATAL_ERROR: frozenset(State),
}
"""Each state with the states that it may follow."""

GOES_ON: Final = (S.IN_TRANSACTION, S.FLUSHING)
"""The states in which batches and offsets of the transaction may be sent, and in which their failure fails it."""


def may_follow(before: State, after: State) -> bool:
    """Return whether a producer may change from state `before` to state `after`."""
    return before in PREVIOUS[after]
